"""The values that go into a storage and come out of it."""

from __future__ import annotations

from dataclasses import dataclass

from icechunk_stream.errors import ErrorKind, InvalidInputError, StorageError

BytesLike = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes from ``start`` (inclusive) to ``end`` (exclusive), fewer where the object ends."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise _malformed(self)


@dataclass(frozen=True, slots=True)
class From:
    """Bytes from ``start`` to the end of the object."""

    start: int

    def __post_init__(self) -> None:
        if self.start < 0:
            raise _malformed(self)


@dataclass(frozen=True, slots=True)
class Last:
    """The last ``count`` bytes, or all of a shorter object."""

    count: int

    def __post_init__(self) -> None:
        if self.count <= 0:
            raise _malformed(self)


ByteRange = Span | From | Last


def resolve_range(byte_range: ByteRange | None, size: int, key: str) -> tuple[int, int]:
    """First byte and end of a range within an object of ``size`` bytes."""
    match byte_range:
        case None:
            return 0, size
        case Last(count):
            return max(0, size - count), size
        case From(start) if start < size:
            return start, size
        case Span(start, end) if start < size:
            return start, min(end, size)
        case _:
            raise beyond_the_end(byte_range, size, key)


def beyond_the_end(byte_range: ByteRange, size: int, key: str) -> StorageError:
    """The error for a range that starts at or past the end of its object."""
    message = (
        f"{byte_range} begins at or past the end of the object {key!r}, which has {size} bytes:"
        " ask for bytes that it has, or check that the object is complete"
    )
    return StorageError(message, ErrorKind.INVALID_BYTE_RANGE, key=key)


def _malformed(byte_range: ByteRange) -> InvalidInputError:
    message = f"{byte_range} asks for no bytes: give offsets from 0 up, and at least one byte"
    return InvalidInputError(message, ErrorKind.INVALID_BYTE_RANGE)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One read of a batch."""

    key: str
    byte_range: ByteRange | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """What one state of a mutable object is told apart by; opaque to callers."""

    token: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """An object's bytes with the version that belongs to exactly these bytes."""

    data: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class NotModified:
    """The object still is in the version that the caller knows."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The object does not exist."""


@dataclass(frozen=True, slots=True)
class Written:
    """A conditional write took place; the object now is in this version."""

    version: Version


@dataclass(frozen=True, slots=True)
class LostRace:
    """A conditional write did not take place: the object is not in the expected version."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as listed; ``modified_at`` is in microseconds since 1970 by the storage's clock."""

    key: str
    size: int
    modified_at: int


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """An object that could not be deleted, and why."""

    key: str
    reason: str
