"""How objects are refused: always by a FormatError that names their key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icechunk_stream.errors import FormatError
from tests.hostile.reading import KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.hostile.raw import Table
    from tests.hostile.reading import Kind


def refusal(read: Callable[[], object]) -> FormatError:
    """The error that a read ends with."""
    with pytest.raises(FormatError) as caught:
        read()
    assert caught.value.key == KEY
    assert caught.value.message.startswith(f"{KEY}: ")
    return caught.value


def refuses_object(read: Callable[[], object], key: str) -> FormatError:
    """The error that an operation of a repository ends with, because of one object."""
    with pytest.raises(FormatError) as caught:
        read()
    assert caught.value.key == key
    assert key in caught.value.message
    return caught.value


def reason(kind: Kind, document: Table, spec_version: int = 2) -> str:
    """Why a document is refused."""
    error = refusal(lambda: kind.read_document(document, spec_version))
    return error.message.removeprefix(f"{KEY}: ")


def reads_or_refuses(read: Callable[[], object], key: str = KEY) -> None:
    """Let a read end in a refusal, which names the object."""
    try:
        read()
    except FormatError as error:
        if error.key != key:
            raise AssertionError("a refusal without the object's key") from error
