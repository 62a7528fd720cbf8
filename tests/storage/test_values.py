import pickle

import pytest

from icechunk_stream.errors import (
    ErrorKind,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
)
from icechunk_stream.storage import From, Last, Span, resolve_range


@pytest.mark.parametrize("bounds", [(0, 0), (5, 5), (6, 5), (-1, 5), (-2, -1)])
def test_a_span_without_bytes_cannot_be_asked_for(bounds: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Span(*bounds)
    assert caught.value.kind == ErrorKind.INVALID_BYTE_RANGE


@pytest.mark.parametrize(("kind", "number"), [(From, -1), (Last, 0), (Last, -1)])
def test_an_offset_from_outside_cannot_be_asked_for(
    kind: type[From] | type[Last], number: int
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        kind(number)
    assert caught.value.kind == ErrorKind.INVALID_BYTE_RANGE


def test_a_range_resolves_within_the_object() -> None:
    assert resolve_range(None, 0, "k") == (0, 0)
    assert resolve_range(Span(2, 1 << 60), 5, "k") == (2, 5)
    assert resolve_range(From(2), 5, "k") == (2, 5)
    assert resolve_range(Last(1 << 60), 5, "k") == (0, 5)


def test_errors_keep_their_key_when_pickled() -> None:
    for error in (StorageError("failed", "io", key="a/b"), ObjectNotFoundError("gone", key="a/b")):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert (copy.message, copy.kind, copy.key) == (error.message, error.kind, "a/b")
