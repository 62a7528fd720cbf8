"""Paths and keys in every spelling, through every call that takes one, as in the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from tests.oracle import plans
from tests.oracle.dump import open_repository
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS
from tests.oracle.maker import make_repository
from tests.oracle.outcomes import answer, is_failure, refused

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.compat

Pair = tuple[Any, Any]

CHANGES = (
    plans.PutGroup("/", {}),
    plans.PutArray("/a", (4,), (2,), None, {}),
    plans.PutGroup("/ab", {}),
    plans.PutArray("/c", (2,), (1,), None, {}),
    plans.PutGroup("/g", {}),
    plans.PutArray("/g/cc", (4,), (2,), None, {}),
    plans.PutArray("/g/empty", (4,), (2,), None, {}),
    plans.PutArray("/g/zero", (0, 3), (2, 2), None, {}),
    plans.PutGroup("/orphans/below", {}),
    plans.PutArray("/x", (), (), None, {}),
    plans.WriteChunks(array=0, index=0, count=1, length=None, fill=1),
    plans.WriteChunks(array=1, index=0, count=2, length=None, fill=1),
    plans.WriteChunks(array=2, index=0, count=2, length=None, fill=1),
    plans.WriteChunks(array=5, index=0, count=1, length=None, fill=9),
)


@pytest.fixture(scope="module", params=SPEC_VERSIONS, ids="v{}".format)
def sessions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The reference's session and ours, over one repository."""
    folder = str(tmp_path_factory.mktemp("paths"))
    steps = (plans.Commit(0, CHANGES, "made", {}),)
    plan = plans.Plan(spec_version=request.param, inline_threshold=512, steps=steps)
    location = f"{folder}/repository"
    make_repository(REFERENCE, plan, location, plans.Containers(folder))
    reference, ours = (
        open_repository(library, location).readonly_session("main")
        for library in (REFERENCE, icechunk_stream)
    )
    return reference, ours


# What each call says of a path, in one form for both libraries.
SESSION_CALLS: dict[str, Callable[[Any, str], Any]] = {
    "chunk_coordinates": lambda session, path: session.chunk_coordinates(path),
    "chunk_type": lambda session, path: _chunk_type(session, path, [0]),
    "get_node_id": lambda session, path: session.get_node_id(path),
}
STORE_CALLS: dict[str, Callable[[Any, str], Any]] = {
    "list_dir": lambda session, path: session.store.list_dir(path),
    "list_prefix": lambda session, path: session.store.list_prefix(path),
    "is_empty": lambda session, path: session.store.is_empty(path),
    "getsize_prefix": lambda session, path: session.store.getsize_prefix(path),
}
KEY_CALLS: dict[str, Callable[[Any, str], Any]] = {
    "get": lambda session, key: session.store.get(key, default_buffer_prototype()),
    "exists": lambda session, key: session.store.exists(key),
    "getsize": lambda session, key: session.store.getsize(key),
}


def _chunk_type(session: Any, path: str, coords: list[int]) -> str:
    return str(session.chunk_type(path, coords)).rsplit(".", 1)[-1].lower()


def _rows(session: Any, path: str) -> Any:
    batches = answer(session.store.array_chunk_iterator, path, 10)
    return batches if is_failure(batches) else [batch[0].tolist() for batch in batches]


ABSOLUTE = ("/", "/a", "/ab", "/c", "/g", "/g/cc", "/g/empty", "/g/zero", "/orphans/below", "/x")
ABSENT = ("/nope", "/a/c", "/a/x", "/A", "/a ", "/orphans", "/g/c", "/e\u0301", "/\0", "/zarr.json")
RELATIVE = ("a", "a/", "a//", "g/cc", "", ".", "nope", " ", "..")
CLIMBING = ("/..", "/../a", "/g/../a", "/a/..", "/g/..")
PATHS = (*ABSOLUTE, *ABSENT, *RELATIVE, *CLIMBING)
# Needless slashes and dots, and what they stand for. What the reference finds under such spellings
# depends on which other nodes there are: its search goes by the bytes, its match by the components.
LOOSE = dict.fromkeys(("/a/", "//a", "/a//", "/./a", "/a/."), "/a")
LOOSE |= dict.fromkeys(("/g/", "//g", "/./g", "/g/."), "/g")
LOOSE |= dict.fromkeys(("/g/cc/", "/g//cc", "/g/./cc", "///g//cc"), "/g/cc")
LOOSE |= dict.fromkeys(("//", "/.", "/./"), "/")


@pytest.mark.parametrize("path", PATHS, ids=ascii)
@pytest.mark.parametrize("call", SESSION_CALLS)
def test_session_calls_take_paths_as_in_the_reference(call: str, path: str, sessions: Pair) -> None:
    expected, found = (answer(SESSION_CALLS[call], each, path) for each in sessions)
    if expected == {"error": {}}:  # a ValueError, where other calls say so with a kind
        expected = refused("invalid-path")
    assert found == expected


@pytest.mark.parametrize("path", PATHS, ids=ascii)
def test_the_columnar_iterator_takes_paths_as_in_the_reference(path: str, sessions: Pair) -> None:
    expected, found = (_rows(each, path) for each in sessions)
    assert found == (refused("invalid-path") if expected == {"error": {}} else expected)


@pytest.mark.parametrize("path", LOOSE)
@pytest.mark.parametrize("call", SESSION_CALLS)
def test_a_loose_path_means_its_normal_form(call: str, path: str, sessions: Pair) -> None:
    reference, ours = sessions
    expected = answer(SESSION_CALLS[call], reference, LOOSE[path])
    assert answer(SESSION_CALLS[call], ours, path) == expected
    assert _rows(ours, path) == _rows(reference, LOOSE[path])


@pytest.mark.parametrize("coords", [[0], [1], [2], [9], [], [0, 0], [2**32 - 1]], ids=str)
@pytest.mark.parametrize("path", ["/a", "/x", "/g/empty", "/g/zero"])
def test_chunks_that_are_not_there_are_uninitialized(
    path: str, coords: list[int], sessions: Pair
) -> None:
    expected, found = (_chunk_type(each, path, coords) for each in sessions)
    assert found == expected


@pytest.mark.parametrize("coords", [[-1], [2**32], [2**64]], ids=str)
def test_coordinates_beyond_32_bits_are_refused(coords: list[int], sessions: Pair) -> None:
    for session in sessions:
        with pytest.raises((OverflowError, ValueError)):
            session.chunk_type("/a", coords)


PREFIXES = (
    *("", "/", "a", "a/", "a//", "g", "g/", "g/cc", "g/cc/", "ab", "c", "x", "g/empty", "g/zero"),
    *("a/c", "a/c/", "a/c/0", "c/c", "g/cc/c", "x/c", "g/empty/c", "a/zarr.json", "zarr.json"),
    *("nope", "g/c", " ", "A", "orphans", "orphans/below", "\0"),
    *("..", "a/..", "g/../a"),
)


@pytest.mark.parametrize("prefix", PREFIXES, ids=ascii)
@pytest.mark.parametrize("call", STORE_CALLS)
def test_store_calls_take_prefixes_as_in_the_reference(
    call: str, prefix: str, sessions: Pair
) -> None:
    expected, found = (answer(STORE_CALLS[call], each, prefix) for each in sessions)
    assert found == expected


@pytest.mark.parametrize("slash", ["/", ""], ids=["absolute", "relative"])
@pytest.mark.parametrize("path", LOOSE)
@pytest.mark.parametrize("call", STORE_CALLS)
def test_a_loose_prefix_means_its_normal_form(
    call: str, path: str, slash: str, sessions: Pair
) -> None:
    reference, ours = sessions
    expected = answer(STORE_CALLS[call], reference, LOOSE[path].strip("/"))
    assert answer(STORE_CALLS[call], ours, slash + path[1:]) == expected


DOCUMENTS = (
    *("zarr.json", "/zarr.json", "a/zarr.json", "g/cc/zarr.json", "c/zarr.json", "nope/zarr.json"),
    *("A/zarr.json", "\0/zarr.json", "zarr.json/zarr.json", "orphans/zarr.json"),
    *(
        "orphans/below/zarr.json",
        "a/zarr.json/",
        "../zarr.json",
        "a/../zarr.json",
        "g/../zarr.json",
    ),
)
OLD = (".zarray", ".zgroup", ".zattrs", ".zmetadata", "a/.zarray", "nope/.zgroup", "x.zarray")
CHUNKS = (
    *("a/c/0", "a/c/00", "a/c/+0", "a/c/1", "a/c/2", "a/c/99"),
    *("a/c/4294967295", "a/c/4294967296", "a/c/0/0", "a/c", "c/c/0", "c/c/1", "c/c", "g/cc/c/1"),
    *("g/cc/c", "x/c", "x/c/0", "g/zero/c/0/0", "g/empty/c/1", "nope/c/0", "nope/c", "orphans/c/0"),
    *("g/c/0", "ab/c", "c", "c/0", "/c/0", "abc", "xyzc", "orphans/below/c/0"),
)
MALFORMED = (
    *("", "/", "foo", "a", "a/", "a/c/", "a/c//0", "a/c/0/", "a/c/-1", "a/c/ 0", "a/c/0 ", "a/0"),
    *("a/c0", "a/c/x", "a/c/1_0", "a/c/0x1", "a/c/\u0663", "a/c/\uff11", "a/c/1.0", "a/c/++1"),
    *("a/c/+", "../a/c/0", "g/../a/c/0", "a/c/..", "a/c/0/zarr", "A", "\0"),
)


@pytest.mark.parametrize("key", [*DOCUMENTS, *OLD, *CHUNKS, *MALFORMED], ids=ascii)
@pytest.mark.parametrize("call", KEY_CALLS)
def test_keys_are_taken_as_in_the_reference(call: str, key: str, sessions: Pair) -> None:
    expected, found = (answer(KEY_CALLS[call], each, key) for each in sessions)
    assert found == expected


LOOSE_KEYS = dict.fromkeys(("//zarr.json", "./zarr.json", "/./zarr.json"), "zarr.json")
LOOSE_KEYS |= dict.fromkeys(("/a/zarr.json", "//a/zarr.json", "a//zarr.json"), "a/zarr.json")
LOOSE_KEYS |= dict.fromkeys(("./a/zarr.json", "a/./zarr.json"), "a/zarr.json")
LOOSE_KEYS |= dict.fromkeys(("/a/c/0", "//a/c/0", "a//c/0", "./a/c/0", "a/./c/0"), "a/c/0")
LOOSE_KEYS |= dict.fromkeys(("/g/cc/c/1", "g//cc/c/1", "g/./cc/c/1"), "g/cc/c/1")


@pytest.mark.parametrize("key", LOOSE_KEYS)
@pytest.mark.parametrize("call", KEY_CALLS)
def test_a_loose_key_means_its_normal_form(call: str, key: str, sessions: Pair) -> None:
    reference, ours = sessions
    expected = answer(KEY_CALLS[call], reference, LOOSE_KEYS[key])
    assert answer(KEY_CALLS[call], ours, key) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_batches_are_no_longer_than_asked(size: int, sessions: Pair) -> None:
    expected, found = (
        [len(batch[1]) for batch in answer(each.store.array_chunk_iterator, "c", size)]
        for each in sessions
    )
    assert found == expected
    coordinates = [answer(each.chunk_coordinates, "/c", size) for each in sessions]
    assert coordinates[1] == coordinates[0] == [(0,), (1,)]


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_of_nothing_is_refused(size: int, sessions: Pair) -> None:
    ours = sessions[1]  # the reference panics
    assert is_failure(answer(ours.store.array_chunk_iterator, "c", size))
    assert is_failure(answer(ours.chunk_coordinates, "/c", size))


def test_the_store_says_what_it_supports_as_in_the_reference(sessions: Pair) -> None:
    names = ["supports_writes", "supports_deletes", "supports_listing", "read_only"]
    names += ["supports_partial_writes", "supports_consolidated_metadata"]
    expected, found = ({name: getattr(each.store, name) for name in names} for each in sessions)
    assert found == expected
