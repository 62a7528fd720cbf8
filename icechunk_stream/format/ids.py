"""Identifiers: random bytes in files, Crockford base 32 in keys and for people."""

from __future__ import annotations

from base64 import b32encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import pyarrow as pa

from icechunk_stream.errors import ErrorKind, InvalidInputError

if TYPE_CHECKING:
    import numpy.typing as npt

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
OBJECT_ID_SIZE = 12
NODE_ID_SIZE = 8
ID12 = np.dtype("V12")
ID8 = np.dtype("V8")

_ALIASES = {"O": "0", "I": "1", "L": "1"}
_VALUES = {
    spelling: value
    for value, char in enumerate(ALPHABET)
    for canonical in [char, *(alias for alias, of in _ALIASES.items() if of == char)]
    for spelling in (canonical, canonical.lower())
}
_CROCKFORD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", ALPHABET.encode())
_BLOCK = 16384
_TWO_DIGITS = np.frombuffer("".join(a + b for a in ALPHABET for b in ALPHABET).encode(), "<u2")


def encode_id(raw: bytes) -> str:
    """Canonical text of an id: upper case, most significant bit first, zero-padded right."""
    return b32encode(raw).rstrip(b"=").translate(_CROCKFORD).decode()


def decode_id(text: str, size: int) -> bytes:
    """Bytes of an id's text, lenient as the reference is: any case, and I, L, O as digits."""
    if len(text) != text_length(size):
        raise _invalid(text, f"it has {len(text)} characters, {text_length(size)} are expected")
    number = 0
    for char in text:
        value = _VALUES.get(char)
        if value is None:
            raise _invalid(text, f"the character {char!r} is not base 32")
        number = number << 5 | value
    return (number >> (5 * len(text) - 8 * size)).to_bytes(size, "big")


def text_length(size: int) -> int:
    return -(-size * 8 // 5)


def encode_ids(ids: npt.NDArray[np.void]) -> npt.NDArray[np.object_]:
    """Canonical texts of a whole column of ids."""
    width = text_length(ids.dtype.itemsize)
    texts = np.empty((len(ids), -(-width // 2)), "<u2")
    for first in range(0, len(ids), _BLOCK):
        _write_digits(ids[first : first + _BLOCK], texts[first : first + _BLOCK])
    return _strings(np.ascontiguousarray(texts.view(np.uint8)[:, :width]))


def _write_digits(ids: npt.NDArray[np.void], texts: npt.NDArray[np.uint16]) -> None:
    """Two digits, which lie within two octets, at a time."""
    size = ids.dtype.itemsize
    octets = np.zeros((size + 1, len(ids)), np.uint16)
    octets[:size] = np.ascontiguousarray(ids).view(np.uint8).reshape(len(ids), size).T
    pairs = octets[:-1] << 8 | octets[1:]
    for number in range(texts.shape[1]):
        octet, bit = divmod(10 * number, 8)
        texts[:, number] = _TWO_DIGITS[pairs[octet] >> (6 - bit) & 1023]


def _strings(texts: npt.NDArray[np.uint8]) -> npt.NDArray[np.object_]:
    """Rows of ASCII characters as strings."""
    count, width = texts.shape
    bounds = np.arange(0, (count + 1) * width, width, dtype=np.int64)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(texts)]
    column = pa.Array.from_buffers(pa.large_string(), count, buffers)
    strings: npt.NDArray[np.object_] = column.to_numpy(zero_copy_only=False)
    return strings


def _invalid(text: str, why: str) -> InvalidInputError:
    shown = text if len(text) <= 64 else f"{text[:64]}…"  # noqa: PLR2004
    return InvalidInputError(f"invalid id {shown!r}: {why}", ErrorKind.INVALID_SNAPSHOT_ID)


@dataclass(frozen=True, slots=True, order=True)
class _Id:
    """Bytes with a kind, so that one kind of id is never passed for another."""

    raw: bytes
    size: ClassVar[int] = OBJECT_ID_SIZE

    def __post_init__(self) -> None:
        if len(self.raw) != self.size:
            raise _invalid(self.raw.hex(), f"{len(self.raw)} bytes, {self.size} are expected")

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(decode_id(text, cls.size))

    def __str__(self) -> str:
        return encode_id(self.raw)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({encode_id(self.raw)})"


@dataclass(frozen=True, slots=True, order=True, repr=False)
class SnapshotId(_Id):
    """Names a snapshot and its transaction log."""


@dataclass(frozen=True, slots=True, order=True, repr=False)
class ManifestId(_Id):
    """Names a manifest."""


@dataclass(frozen=True, slots=True, order=True, repr=False)
class ChunkId(_Id):
    """Names a chunk object."""


@dataclass(frozen=True, slots=True, order=True, repr=False)
class NodeId(_Id):
    """Names a group or array for its whole life."""

    size: ClassVar[int] = NODE_ID_SIZE


def find_row(ids: npt.NDArray[np.void], id: SnapshotId | ManifestId | NodeId) -> int | None:
    """The row of an id among sorted ones."""
    row = int(np.searchsorted(ids.view(f"S{ids.itemsize}"), np.bytes_(id.raw)))
    return row if row < len(ids) and ids[row].tobytes() == id.raw else None


INITIAL_SNAPSHOT = SnapshotId(bytes.fromhex("0b1cc8d6787580f0e33a6534"))
