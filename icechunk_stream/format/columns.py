"""Vectors of flatbuffer tables read as numpy columns, with every position checked first.

Tables are taken in blocks that fit the processor's cache, and within a block by vtable, so that
one gather reads a field of all of them. No Python object is made for a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from icechunk_stream.format.flat import OFFSET_SIZE, FlatBuffer, Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    Positions = npt.NDArray[np.intp]
    Rows = slice | Positions

BLOCK = 16384
# A writer shares vtables: each combination of fields has one. More is an attack on the loop below.
MAX_LAYOUTS = 4096
# What a group costs beside its tables, in bytes of tables.
_GROUP = 64


@dataclass(frozen=True, slots=True)
class TableGroup:
    """Tables of one vtable: their rows in the vector, and their positions in the buffer."""

    buffer: FlatBuffer
    rows: Rows
    at: Positions
    vtable: int
    layout: Layout

    def has(self, slot: int) -> bool:
        return self.layout.field(slot) != 0

    def scalars(self, slot: int, dtype: str) -> npt.NDArray[np.generic] | None:
        """A number of every table, or None where the vtable has no such field."""
        kind = np.dtype(dtype)
        at = self._field(slot, kind.itemsize, kind.itemsize)
        return None if at is None else self.buffer.aligned(kind)[at // kind.itemsize]

    def structs(self, slot: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void] | None:
        at = self._field(slot, dtype.itemsize, 1)
        return None if at is None else cast("npt.NDArray[np.void]", gather(self.buffer, at, dtype))

    def offsets(self, slot: int) -> Positions | None:
        """Where the offsets themselves stand, not yet followed."""
        return self._field(slot, OFFSET_SIZE, OFFSET_SIZE)

    def targets(self, slot: int) -> Positions | None:
        """Where the strings, vectors or tables of an offset field begin, inside the buffer."""
        at = self.offsets(slot)
        if at is None:
            return None
        offsets = self.buffer.words[at >> 2]
        if not offsets.all():
            raise self.buffer.error(f"an offset in slot {slot} points to itself")
        targets: Positions = at + offsets
        check_positions(self.buffer, targets, OFFSET_SIZE, "a field's target")
        return targets

    def vectors(self, slot: int, item_size: int) -> tuple[Positions, Positions] | None:
        """Where the items of each vector begin, and how many there are."""
        targets = self.targets(slot)
        if targets is None:
            return None
        counts = self.buffer.words[targets >> 2].astype(np.intp)
        starts = targets + OFFSET_SIZE
        ends = starts + counts * item_size
        if len(ends) and int(ends.max()) > len(self.buffer):
            raise self.buffer.error("a vector or string goes past the end")
        return starts, counts

    def _field(self, slot: int, size: int, alignment: int) -> Positions | None:
        offset = self.layout.field(slot)
        if not offset:
            return None
        if offset + size > self.layout.table_size:
            raise self.buffer.error(f"slot {slot} is cut by the end of its table")
        at = self.at + offset
        if np.bitwise_or.reduce(at) & (alignment - 1):
            raise self.buffer.error(f"slot {slot} of a table is not aligned to {alignment}")
        return at


def table_groups(buffer: FlatBuffer, vector_at: int) -> Iterator[TableGroup]:
    """The tables of a vector in its order, block by block, grouped by vtable."""
    start, count = buffer.vector(vector_at, OFFSET_SIZE)
    buffer.check(start, 0, OFFSET_SIZE, "a vector of offsets")
    buffer.spend(count * OFFSET_SIZE)
    return _groups(buffer, count, lambda first, size: _line(start, first, size))


def nested_groups(buffer: FlatBuffer, starts: Positions, counts: Positions) -> Iterator[TableGroup]:
    """The tables of many vectors, one vector after the other, as if they were one."""
    total = int(counts.sum())
    buffer.spend(total * OFFSET_SIZE)
    before = np.cumsum(counts) - counts
    shifts = np.repeat(starts - before * OFFSET_SIZE, counts)
    return _groups(
        buffer, total, lambda first, size: shifts[first : first + size] + _line(0, first, size)
    )


def linked_groups(buffer: FlatBuffer, offsets: Positions) -> Iterator[TableGroup]:
    """The tables that offsets at checked positions point to."""
    return _groups(buffer, len(offsets), lambda first, size: offsets[first : first + size])


def _groups(
    buffer: FlatBuffer, count: int, fields: Callable[[int, int], Positions]
) -> Iterator[TableGroup]:
    layouts: set[int] = set()
    for first in range(0, count, BLOCK):
        at = _targets(buffer, fields(first, min(BLOCK, count - first)))
        vtables = at - buffer.words[at >> 2].view(np.int32)
        for rows, vtable in _by_vtable(vtables, first):
            layouts.add(vtable)
            if len(layouts) > MAX_LAYOUTS:
                raise buffer.error(f"more than {MAX_LAYOUTS} vtables in one vector")
            inside = at if isinstance(rows, slice) else at[rows - first]
            yield _checked_group(buffer, rows, inside, vtable)


def zeros(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A column in Arrow's pool, which keeps memory mapped: new pages cost more than to fill it."""
    kind = np.dtype(dtype)
    octets = np.frombuffer(pa.allocate_buffer(count * kind.itemsize), np.uint8)
    octets.fill(0)
    return octets.view(kind)


def check_positions(buffer: FlatBuffer, at: Positions, size: int, what: str) -> None:
    """Every position holds ``size`` bytes and is aligned for an offset."""
    if not len(at):
        return
    if int(at.min()) < 0 or int(at.max()) + size > len(buffer):
        raise buffer.error(f"{what} is outside of the buffer")
    if np.bitwise_or.reduce(at) & (OFFSET_SIZE - 1):
        raise buffer.error(f"{what} is not aligned")


def gather(
    buffer: FlatBuffer, at: Positions, dtype: np.dtype[np.generic]
) -> npt.NDArray[np.generic]:
    """Values of one size at checked positions, aligned or not."""
    size = dtype.itemsize
    windows = np.ndarray(
        (max(len(buffer) - size + 1, 0),), np.dtype((np.void, size)), buffer.data, 0, (1,)
    )
    return windows[at].view(dtype.newbyteorder("<"))


def _line(start: int, first: int, count: int) -> Positions:
    """Places of offsets that stand side by side, from the ``first``-th after a start on."""
    start += first * OFFSET_SIZE
    return np.arange(start, start + count * OFFSET_SIZE, OFFSET_SIZE, dtype=np.intp)


def _targets(buffer: FlatBuffer, fields: Positions) -> Positions:
    at: Positions = fields + buffer.words[fields >> 2]
    check_positions(buffer, at, OFFSET_SIZE, "a table")
    return at


def _by_vtable(vtables: Positions, first: int) -> Iterator[tuple[Rows, int]]:
    """Rows (counted from the vector's start) of each vtable; one slice where all share one."""
    if (vtables == vtables[0]).all():
        yield slice(first, first + len(vtables)), int(vtables[0])
        return
    # They are few: taking out one after the other is faster than to sort.
    rows = np.arange(first, first + len(vtables))
    while len(vtables):
        vtable = int(vtables[0])
        same = vtables == vtable
        yield rows[same], vtable
        rows, vtables = rows[~same], vtables[~same]


def _checked_group(buffer: FlatBuffer, rows: Rows, at: Positions, vtable: int) -> TableGroup:
    layout = buffer.layout(vtable)
    if int(at.max()) + layout.table_size > len(buffer):
        raise buffer.error("a table goes past the end")
    buffer.spend(_GROUP + len(at) * layout.table_size)
    return TableGroup(buffer, rows, at, vtable, layout)
