"""Flatbuffers written front to back: single tables by struct, vectors of tables by numpy.

A table stands before everything that it points to, so that positions only grow and nothing is
moved: an offset is left zero and linked when its target is appended. Tables of one shape are
records of one size; a block of them is filled by column and appended while it is in the cache.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.format.header import MAX_PAYLOAD, SPEC_VERSIONS, FileType, seal_envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    Fill = Callable[["Block", slice], None]
    Payload = bytes | bytearray | memoryview

IDENTIFIER = b"Ichk"
BLOCK = 16384
MAX_LEVEL = 22

OFFSET = "I"
ID12_CODE = "12s"
ID8_CODE = "8s"

_WORD = 4
_U32 = struct.Struct("<I")
_FORMATS = {
    "?": "u1",
    "B": "u1",
    "H": "<u2",
    "I": "<u4",
    "i": "<i4",
    "Q": "<u8",
    ID12_CODE: "V12",
    ID8_CODE: "V8",
}
_ALIGNMENTS = {"?": 1, "B": 1, "H": 2, "I": 4, "i": 4, "Q": 8, ID12_CODE: 1, ID8_CODE: 1}


def invalid(message: str) -> InvalidInputError:
    """A value that has no place in the format."""
    return InvalidInputError(message, ErrorKind.SERIALIZATION)


def utf8(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"messages and names of metadata items are strings, not {text!r}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"the text {text!r} holds a lone surrogate: it has no UTF-8") from error


def aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A vtable: the slots that its tables have, each with its struct code and its place."""

    fields: tuple[tuple[int, str], ...]
    places: Mapping[int, int]
    size: int
    alignment: int
    vtable: bytes
    packer: struct.Struct


@cache
def shape(*fields: tuple[int, str]) -> Shape:
    """Tables with these slots, placed in the order given after the vtable's offset."""
    packed = "<i"
    places: dict[int, int] = {}
    size = _WORD
    for slot, code in fields:
        place = aligned(size, _ALIGNMENTS[code])
        packed += f"{place - size}x{code}"
        places[slot] = place
        size = place + struct.calcsize(f"<{code}")
    slots = [places.get(slot, 0) for slot in range(max(places, default=-1) + 1)]
    vtable = struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), size, *slots)
    alignment = max((_WORD, *(_ALIGNMENTS[code] for _, code in fields)))
    return Shape(fields, places, size, alignment, vtable, struct.Struct(packed))


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Tables of one shape as numpy records, named by slot.

    With ``items``, each record ends with the vector of 32-bit words that its table owns.
    """

    shape: Shape
    dtype: np.dtype[np.void]
    constants: tuple[tuple[str, int], ...]

    @property
    def alignment(self) -> int:
        return self.shape.alignment

    @property
    def stride(self) -> int:
        return self.dtype.itemsize

    def block(self, at: int, vtable: int, count: int, heap: int) -> Block:
        """Records from a position on, filled with what does not depend on their values."""
        records = np.zeros(count, self.dtype)
        first = at - vtable
        records["vtable"] = np.arange(first, first + count * self.stride, self.stride)
        for name, value in self.constants:
            records[name] = value
        return Block(self, records, at, heap)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Records to be filled: where they will stand, and where the heap after all of them will."""

    layout: Layout
    records: npt.NDArray[np.void]
    at: int
    heap: int

    def has(self, slot: int) -> bool:
        return slot in self.layout.shape.places

    def set(self, slot: int, values: npt.ArrayLike) -> None:
        self.records[str(int(slot))] = values

    def link(self, slot: int, targets: npt.NDArray[np.int64]) -> None:
        """Let the offsets in a slot point to positions counted from the heap's begin."""
        first = self.at + self.layout.shape.places[slot] - self.heap
        stride = self.layout.stride
        self.set(slot, targets - np.arange(first, first + len(targets) * stride, stride))

    def set_items(self, items: npt.NDArray[np.uint32]) -> None:
        """Fill the vectors that the tables own."""
        self.records["items"] = items


@cache
def layout(of: Shape) -> Layout:
    """Records that are their table, and nothing else."""
    return Layout(of, _dtype(of, [], aligned(of.size, of.alignment)), ())


@cache
def owning_layout(of: Shape, slot: int, count: int, words: int) -> Layout:
    """Records that own the vector in ``slot``: ``count`` items, ``words`` words in all."""
    at = aligned(of.size, _WORD)
    tail = [("count", "<u4", at), ("items", ("<u4", (words,)), at + _WORD)]
    size = aligned(at + _WORD + words * _WORD, of.alignment)
    return Layout(
        of, _dtype(of, tail, size), ((str(int(slot)), at - of.places[slot]), ("count", count))
    )


def _dtype(of: Shape, tail: Sequence[tuple[str, object, int]], size: int) -> np.dtype[np.void]:
    table = [(str(int(slot)), _FORMATS[code], of.places[slot]) for slot, code in of.fields]
    names, formats, offsets = zip(("vtable", "<i4", 0), *table, *tail, strict=True)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Some tables of a vector: their layout, the places that they take, and what fills them."""

    layout: Layout
    count: int
    fill: Fill
    places: npt.NDArray[np.intp] | None = None


class Writer:
    """A flatbuffer that grows at its end; methods return the position of what they appended."""

    __slots__ = ("_vtables", "data", "tables")

    def __init__(self) -> None:
        self.data = bytearray(_WORD) + IDENTIFIER
        self.tables = 0
        self._vtables: dict[bytes, int] = {}

    def table(self, of: Shape, *values: object) -> int:
        """A table with a value for each field of its shape; zero for offsets, linked later."""
        vtable = self.vtable(of.vtable)
        at = self.pad(of.alignment)
        try:
            self.data += of.packer.pack(at - vtable, *values)
        except struct.error as error:
            raise invalid(f"a value is too large or negative: {error}") from error
        self.tables += 1
        return at

    def link(self, field: int, target: int) -> None:
        """Let an offset field point to a later position."""
        _U32.pack_into(self.data, field, target - field)

    def link_all(self, vector: int, targets: npt.NDArray[np.intp]) -> None:
        """Let all offsets of a vector point to later positions."""
        first = vector + _WORD
        fields = np.arange(first, first + _WORD * len(targets), _WORD)
        self.data[first : first + _WORD * len(targets)] = (targets - fields).astype("<u4").tobytes()

    def attach(self, table: int, of: Shape, slot: int, target: int) -> None:
        """Let a table's field point to what was appended after it."""
        self.link(table + of.places[slot], target)

    def text(self, text: str) -> int:
        at = self.blob(utf8(text))
        self.data.append(0)
        return at

    def blob(self, octets: bytes) -> int:
        at = self.pad(_WORD)
        self.reserve(_WORD + len(octets) + 1)
        self.data += _U32.pack(len(octets))
        self.data += octets
        return at

    def vector(self, items: npt.NDArray[np.generic], alignment: int = _WORD) -> int:
        """A vector of numbers or structs, the first of them aligned."""
        self.data += bytes(-(len(self.data) + _WORD) % max(alignment, _WORD))
        at = len(self.data)
        self.reserve(_WORD + items.nbytes)
        self.data += _U32.pack(len(items))
        self.append(items)
        return at

    def offsets(self, count: int) -> int:
        """A vector of offsets to be linked; the ``i``-th one stands at 4 + 4 * i in it."""
        at = self.pad(_WORD)
        self.reserve(_WORD + count * _WORD)
        self.data += _U32.pack(count) + bytes(count * _WORD)
        return at

    def records(self, groups: Sequence[Records], heap_size: int = 0) -> int:
        """A vector of tables, group after group; the heap that they link to is appended next."""
        vtables = [self.vtable(group.layout.shape.vtable) for group in groups]
        vector = self.pad(_WORD)
        total = sum(group.count for group in groups)
        starts, end = _starts(groups, vector + _WORD + total * _WORD)
        heap = aligned(end, _WORD)
        self.reserve(heap - vector + heap_size)
        self.data += _U32.pack(total)
        self.append(_places(groups, starts, vector + _WORD, total))
        for group, vtable, start in zip(groups, vtables, starts, strict=True):
            self.pad(group.layout.alignment)
            assert len(self.data) == start
            self._fill(group, vtable, heap)
        self.pad(_WORD)
        self.tables += total
        return vector

    def append(self, items: npt.NDArray[np.generic]) -> None:
        self.data += np.ascontiguousarray(items).reshape(-1).view(np.uint8).data

    def pad(self, alignment: int) -> int:
        self.data += bytes(-len(self.data) % alignment)
        return len(self.data)

    def vtable(self, octets: bytes) -> int:
        """The one vtable of all tables with these fields, appended when it is first needed."""
        known = self._vtables.get(octets)
        if known is None:
            known = self._vtables[octets] = self.pad(2)
            self.data += octets
        return known

    def reserve(self, size: int) -> None:
        """Refuse what would not fit, before memory is spent on it."""
        if len(self.data) + size > MAX_PAYLOAD:
            raise invalid(
                f"an object of more than {MAX_PAYLOAD} bytes before compression: split it"
            )

    def seal(self, root: int, file_type: FileType, spec_version: int, level: int) -> bytes:
        """The object as it is stored, its root table being at ``root``."""
        self.link(0, root)
        self.reserve(0)
        return seal(self.data, file_type, spec_version, level)

    def _fill(self, group: Records, vtable: int, heap: int) -> None:
        for rows in blocks(group.count):
            block = group.layout.block(len(self.data), vtable, rows.stop - rows.start, heap)
            group.fill(block, rows)
            self.append(block.records)


def seal(payload: Payload, file_type: FileType, spec_version: int, level: int) -> bytes:
    """A flatbuffer as an object is stored."""
    if spec_version not in SPEC_VERSIONS:
        raise invalid(f"spec version {spec_version}: 1 or 2 can be written")
    if not 0 <= level <= MAX_LEVEL:
        raise invalid(f"compression level {level}: 0 to {MAX_LEVEL} are possible")
    return seal_envelope(payload, file_type, spec_version, level)


def blocks(count: int, size: int = BLOCK) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _starts(groups: Sequence[Records], at: int) -> tuple[list[int], int]:
    """Where each group's records begin, and where the last one's end."""
    starts: list[int] = []
    for group in groups:
        at = aligned(at, group.layout.alignment)
        starts.append(at)
        at += group.count * group.layout.stride
    return starts, at


def _places(
    groups: Sequence[Records], starts: Sequence[int], at: int, total: int
) -> npt.NDArray[np.uint32]:
    """The offsets of a vector of tables whose first one stands at ``at``."""
    offsets = np.empty(total, np.uint32)
    for group, start in zip(groups, starts, strict=True):
        rows = np.arange(group.count, dtype=np.uint32)
        places = rows if group.places is None else group.places.astype(np.uint32)
        records = rows * np.uint32(group.layout.stride) + np.uint32(start - at)
        offsets[places] = records - places * np.uint32(_WORD)
    return offsets
