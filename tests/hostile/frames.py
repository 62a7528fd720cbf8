"""zstd frames put together by hand: every size in their headers can be a lie."""

from __future__ import annotations

import struct
from math import log2

MAGIC = 0xFD2FB528
BLOCK = 128 * 1024
_RAW, _REPEATED = 0, 1


def frame(
    blocks: bytes, content_size: int | None = None, window: int | None = None, flags: int = 0
) -> bytes:
    """A frame with a content size of 8 bytes, or none; in one segment where it has no window."""
    descriptor = flags | (0 if content_size is None else 0xC0) | (0x20 if window is None else 0)
    head = struct.pack("<IB", MAGIC, descriptor)
    if window is not None:
        head += bytes((int(log2(window)) - 10 << 3,))
    if content_size is not None:
        head += struct.pack("<Q", content_size)
    return head + blocks


def raw_blocks(data: bytes) -> bytes:
    """Data as it is."""
    pieces = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)] or [b""]
    return b"".join(
        _block(_RAW, len(piece), last=number == len(pieces) - 1) + piece
        for number, piece in enumerate(pieces)
    )


def zeros(size: int) -> bytes:
    """Blocks of four bytes, each of which unpacks to 128 kB of zeros."""
    whole, rest = divmod(size, BLOCK)
    return (_block(_REPEATED, BLOCK, last=False) + b"\0") * whole + (
        _block(_REPEATED, rest, last=True) + b"\0"
    )


def skippable(data: bytes) -> bytes:
    return struct.pack("<II", 0x184D2A50, len(data)) + data


def _block(kind: int, size: int, *, last: bool) -> bytes:
    return struct.pack("<I", size << 3 | kind << 1 | last)[:3]
