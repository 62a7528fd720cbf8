"""Virtual chunks as callers describe them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from operator import index as whole
from typing import TYPE_CHECKING

from icechunk_stream.config.redact import redact_location as shown
from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.format.chunk_refs import Checksum, ETag, LastModified, VirtualChunk

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_INDEX = 2**32 - 1
MAX_OFFSET = 2**64 - 1
_MAX_SECONDS = 2**32 - 1


@dataclass(frozen=True, slots=True, repr=False)
class VirtualChunkSpec:
    """A chunk that is a range of an object outside of the repository.

    Args:
        index: Position in the grid of chunks.
        location: URL of the object; what a URL reserves is percent-encoded.
        offset: Where in the object the chunk begins.
        length: Bytes of the chunk.
        etag_checksum: Reading fails once the object has another etag.
        last_updated_at_checksum: Reading fails once the object was modified after this time.
    """

    index: list[int]
    location: str
    offset: int
    length: int
    etag_checksum: str | None = None
    last_updated_at_checksum: datetime | None = None

    def __post_init__(self) -> None:
        check_range(self.offset, self.length)
        check_index(self.index)
        check_text(self.location, "location")
        checksum_of(self.etag_checksum)
        checksum_of(self.last_updated_at_checksum)

    def __repr__(self) -> str:
        """The location without what a signed URL would give away."""
        where = f"{shown(self.location)!r}, offset={self.offset}, length={self.length}"
        return f"VirtualChunkSpec(index={self.index}, location={where})"

    @property
    def chunk(self) -> VirtualChunk:
        """What is stored of it; an etag counts before a time."""
        given = self.last_updated_at_checksum if self.etag_checksum is None else self.etag_checksum
        checksum = checksum_of(given)
        return VirtualChunk(self.location, whole(self.offset), whole(self.length), checksum)


def check_range(offset: int, length: int) -> tuple[int, int]:
    """The range in plain integers; refuses one that no object can have."""
    first, size = whole(offset), whole(length)
    if not (first >= 0 and size >= 0 and first + size <= MAX_OFFSET):
        raise _invalid(f"an object has no {size} bytes from {first} on")
    return first, size


def check_text(text: str, what: str) -> None:
    """Refuse a string that has no UTF-8."""
    if not isinstance(text, str):
        raise TypeError(f"the {what} of a virtual chunk is a string, not {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _invalid(f"its {what} holds a lone surrogate: give valid Unicode") from error


def check_index(index: Sequence[int]) -> None:
    if not all(0 <= whole(at) <= MAX_INDEX for at in index):
        raise _invalid(f"the chunk index {list(index)} is not made of numbers from 0 up")


def checksum_of(given: str | datetime | None) -> Checksum | None:
    """An etag, or the second in which the object was last modified."""
    match given:
        case None:
            return None
        case str():
            check_text(given, "etag")
            return ETag(given)
        case datetime():
            return LastModified(_seconds(given))
        case _:
            raise TypeError(f"a checksum is an etag or a datetime, not {given!r}")


def _seconds(time: datetime) -> int:
    if time.tzinfo is None:
        raise _invalid(f"the time {time} has no time zone: write it with tzinfo=datetime.UTC")
    seconds = int((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    if not 0 < seconds <= _MAX_SECONDS:
        raise _invalid(f"the time {time} does not fit: give one between 1970 and 2106")
    return seconds


def _invalid(why: str) -> InvalidInputError:
    return InvalidInputError(f"invalid virtual chunk: {why}", ErrorKind.INVALID_VIRTUAL_REF)
