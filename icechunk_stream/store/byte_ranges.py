"""Byte ranges of values as zarr asks for them: strict, as the reference library is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from icechunk_stream.errors import ErrorKind, InvalidInputError

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest


def chunk_range(request: ByteRequest | None, length: int) -> tuple[int, int]:
    """Start and end within a chunk; at least the first byte asked for must exist."""
    start, end = _bounds(request, length)
    starts_at = None if isinstance(request, SuffixByteRequest) else start
    if request is not None and starts_at is not None and starts_at >= length:
        raise _beyond(request, length)
    return start, end


def document_range(request: ByteRequest | None, length: int) -> tuple[int, int]:
    """Start and end within a zarr.json, where an empty range at the end is allowed."""
    return _bounds(request, length)


def _bounds(request: ByteRequest | None, length: int) -> tuple[int, int]:
    match request:
        case None:
            return 0, length
        case RangeByteRequest(start, end):
            bounds = start, end
        case OffsetByteRequest(offset):
            bounds = offset, length
        case SuffixByteRequest(suffix):
            bounds = length - suffix, length
        case _:
            raise InvalidInputError(
                f"Unexpected byte_range, got {request!r}", ErrorKind.INVALID_BYTE_RANGE
            )
    if not 0 <= bounds[0] <= bounds[1] <= length:
        raise _beyond(request, length)
    return bounds


def _beyond(request: ByteRequest, length: int) -> InvalidInputError:
    message = f"{request} does not lie within the {length} bytes of the value"
    return InvalidInputError(message, ErrorKind.INVALID_BYTE_RANGE)
