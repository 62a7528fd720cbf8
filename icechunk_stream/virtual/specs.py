"""Virtual chunks as callers describe them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from icechunk_stream.config.redact import redact_url as shown
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
        if self.last_updated_at_checksum is not None:
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
        return VirtualChunk(self.location, self.offset, self.length, checksum)


def check_range(offset: int, length: int) -> None:
    """Refuse a range of bytes that no object can have."""
    if not (offset >= 0 and length >= 0 and offset + length <= MAX_OFFSET):
        raise _invalid(f"an object has no {length} bytes from {offset} on")


def check_index(index: Sequence[int]) -> None:
    if not all(0 <= at <= MAX_INDEX for at in index):
        raise _invalid(f"the chunk index {list(index)} is not made of numbers from 0 up")


def checksum_of(given: str | datetime | None) -> Checksum | None:
    """An etag, or the second in which the object was last modified."""
    match given:
        case None:
            return None
        case str():
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
