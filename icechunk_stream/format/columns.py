"""Vectors of flatbuffer tables read as numpy columns, with every position checked first.

Tables are taken in blocks that fit the processor's cache, and within a block by vtable, so that
one gather reads a field of all of them. No Python object is made for a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from icechunk_stream.format.flat import OFFSET_SIZE, FlatBuffer, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Positions = npt.NDArray[np.intp]
    Rows = slice | Positions

BLOCK = 16384
# A writer shares vtables: each combination of fields has one. More is an attack on the loop below.
MAX_LAYOUTS = 4096


@dataclass(frozen=True, slots=True)
class TableGroup:
    """Tables of one vtable: their rows in the vector, and their positions in the buffer."""

    buffer: FlatBuffer
    rows: Rows
    at: Positions
    layout: Layout

    def has(self, slot: int) -> bool:
        return self.layout.field(slot) != 0

    def scalars(self, slot: int, dtype: str) -> npt.NDArray[np.generic] | None:
        """A number of every table, or None where the vtable has no such field."""
        kind = np.dtype(dtype)
        at = self._field(slot, kind.itemsize, kind.itemsize)
        return None if at is None else gather(self.buffer, at, kind)

    def structs(self, slot: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void] | None:
        at = self._field(slot, dtype.itemsize, 1)
        return None if at is None else cast("npt.NDArray[np.void]", gather(self.buffer, at, dtype))

    def targets(self, slot: int) -> Positions | None:
        """Where the strings, vectors or tables of an offset field begin, inside the buffer."""
        at = self._field(slot, OFFSET_SIZE, OFFSET_SIZE)
        if at is None:
            return None
        targets: Positions = at + self.buffer.words[at >> 2]
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
        if alignment > 1 and np.bitwise_and(at, alignment - 1).any():
            raise self.buffer.error(f"slot {slot} of a table is not aligned to {alignment}")
        return at


def table_groups(buffer: FlatBuffer, vector_at: int) -> Iterator[TableGroup]:
    """The tables of a vector in its order, block by block, grouped by vtable."""
    start, count = buffer.vector(vector_at, OFFSET_SIZE)
    buffer.check(start, 0, OFFSET_SIZE, "a vector of offsets")
    buffer.spend(count * OFFSET_SIZE)
    layouts: set[int] = set()
    for first in range(0, count, BLOCK):
        size = min(BLOCK, count - first)
        at = _table_positions(buffer, start + first * OFFSET_SIZE, size)
        vtables = at - buffer.words[at >> 2].view(np.int32)
        for rows, vtable in _by_vtable(vtables, first):
            layouts.add(vtable)
            if len(layouts) > MAX_LAYOUTS:
                raise buffer.error(f"more than {MAX_LAYOUTS} vtables in one vector")
            inside = at if isinstance(rows, slice) else at[rows - first]
            yield _checked_group(buffer, rows, inside, buffer.layout(vtable))


def check_positions(buffer: FlatBuffer, at: Positions, size: int, what: str) -> None:
    """Every position holds ``size`` bytes and is aligned for an offset."""
    if not len(at):
        return
    if int(at.min()) < 0 or int(at.max()) + size > len(buffer):
        raise buffer.error(f"{what} is outside of the buffer")
    if np.bitwise_and(at, OFFSET_SIZE - 1).any():
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


def _table_positions(buffer: FlatBuffer, start: int, count: int) -> Positions:
    fields = np.arange(start, start + count * OFFSET_SIZE, OFFSET_SIZE, dtype=np.intp)
    at = fields + buffer.words[start >> 2 : (start >> 2) + count]
    check_positions(buffer, at, OFFSET_SIZE, "a table")
    return at


def _by_vtable(vtables: Positions, first: int) -> Iterator[tuple[Rows, int]]:
    """Rows (counted from the vector's start) of each vtable; one slice where all share one."""
    if (vtables == vtables[0]).all():
        yield slice(first, first + len(vtables)), int(vtables[0])
        return
    distinct, groups = np.unique(vtables, return_inverse=True)
    order = np.argsort(groups, kind="stable")
    bounds = np.searchsorted(groups[order], np.arange(len(distinct) + 1))
    for number, vtable in enumerate(distinct):
        yield order[bounds[number] : bounds[number + 1]] + first, int(vtable)


def _checked_group(buffer: FlatBuffer, rows: Rows, at: Positions, layout: Layout) -> TableGroup:
    if int(at.max()) + layout.table_size > len(buffer):
        raise buffer.error("a table goes past the end")
    return TableGroup(buffer, rows, at, layout)
