"""Which manifests of an array a commit keeps, and what stands in those that it writes.

Every manifest lies in one cell of the grid. A cell with changes gets one new manifest; one that no
change touches keeps its manifests, and what reached across cells is parted between them. This is
how the reference library lays manifests out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.format.boxes import inside, overlap
from icechunk_stream.format.keys import KeySpace
from icechunk_stream.format.ref_rows import DELETED, chosen_rows, joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from icechunk_stream.changes.runs import Run
    from icechunk_stream.format.keys import Keys
    from icechunk_stream.format.nodes import ManifestRefs
    from icechunk_stream.format.ref_tables import RefTable

    Numbers = npt.NDArray[np.intp]
    Mask = npt.NDArray[np.bool_]

_CHANGED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The chunk grid of an array, cut into cells of equal size."""

    chunks: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    space: KeySpace

    @classmethod
    def of(cls, chunks: Sequence[int], sizes: npt.NDArray[np.int64]) -> Grid:
        lengths = np.array(chunks, np.int64)
        return cls(lengths, sizes, KeySpace.within((-(-lengths // sizes)).tolist()))

    def inside(self, indices: npt.NDArray[np.integer]) -> Mask:
        return inside(indices, self.chunks)

    @property
    def is_one_cell(self) -> bool:
        return all(count <= 1 for count in self.space.bounds)

    def cells(self, indices: npt.NDArray[np.integer]) -> Keys:
        """The cell of each index, in an order that goes row by row."""
        if self.is_one_cell:
            return np.zeros(len(indices), np.int64)
        return self.space.pack((indices // self.sizes).astype(np.uint32))

    def in_order(self, indices: npt.NDArray[np.uint32]) -> Numbers:
        """Rows cell by cell, and in each by their indices."""
        within = np.argsort(KeySpace.within(self.chunks.tolist()).pack(indices), kind="stable")
        order: Numbers = within[np.argsort(self.cells(indices[within]), kind="stable")]
        return order


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What becomes of an array's manifests, given by their numbers.

    Those in ``kept`` stay, those in ``read`` are parted anew, all others go. ``dirty`` are the
    cells in which everything moves into one new manifest; ``is_entangled`` makes that all cells.
    """

    grid: Grid
    kept: Numbers
    kept_cells: Keys
    read: Numbers
    dirty: Keys
    is_entangled: bool


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What one new manifest holds, and from which of the old ones that comes."""

    cell: int | bytes
    table: RefTable
    sources: tuple[int, ...]


def plan(old: ManifestRefs, run: Run | None, grid: Grid) -> Plan:
    """Part an array's manifests into those that stay and those that have to be read."""
    low, last = old.extents[:, :, 0], old.extents[:, :, 1] - 1
    reachable = grid.inside(low)
    entangled = len(old) > 1 and overlap(old.extents)
    within = grid.inside(last) & (low // grid.sizes == last // grid.sizes).all(axis=1)
    cells = grid.cells(low[within])
    dirty = _changed_cells(run, grid)
    stays = within.copy()
    stays[within] = ~np.isin(cells, dirty) & (not entangled)
    return Plan(
        grid=grid,
        kept=np.flatnonzero(stays),
        kept_cells=grid.cells(low[stays]),
        read=np.flatnonzero(reachable & ~stays),
        dirty=dirty,
        is_entangled=entangled,
    )


def pieces(plan: Plan, loaded: Mapping[int, RefTable], run: Run | None) -> list[Piece]:
    """The new manifests of a plan whose manifests to read are loaded."""
    tables = {number: remaining(loaded[number], run, plan.grid) for number in plan.read.tolist()}
    if run is not None:
        tables[_CHANGED] = _present(run, plan.grid)
    filled = {number: table for number, table in tables.items() if len(table)}
    if not filled:
        return []
    if plan.grid.is_one_cell and len(plan.dirty):
        return [Piece(0, joined(list(filled.values())), tuple(sorted(filled)))]
    return _parted(plan, filled)


def extents_of(table: RefTable) -> npt.NDArray[np.uint32]:
    """The tight box around the indices of a table."""
    low, high = table.indices.min(axis=0), table.indices.max(axis=0)
    return np.stack([low, high + 1], axis=1).astype(np.uint32)


def refs_at_most(
    counts: npt.NDArray[np.int64], extents: npt.NDArray[np.uint32]
) -> npt.NDArray[np.int64]:
    """References that manifests have of one array: no more than their boxes have places."""
    spans = extents[:, :, 1].astype(np.float64) - extents[:, :, 0]
    sizes: npt.NDArray[np.int64] = np.minimum(counts, spans.prod(axis=1)).astype(np.int64)
    return sizes


def _changed_cells(run: Run | None, grid: Grid) -> Keys:
    if run is None:
        return grid.cells(np.zeros((0, len(grid.chunks)), np.uint32))
    indices = run.table.indices
    kept = grid.inside(indices)
    if grid.is_one_cell:
        return np.zeros(int(kept.any()), np.int64)
    return np.unique(grid.cells(indices[kept]))


def remaining(table: RefTable, run: Run | None, grid: Grid) -> RefTable:
    """References that the grid still has and that were not changed."""
    kept = grid.inside(table.indices)
    if run is not None:
        kept &= ~run.holds(table.indices)
    return table if kept.all() else chosen_rows(table, kept)


def _present(run: Run, grid: Grid) -> RefTable:
    """Changed references that are not deletions; none where the grid has no place for them."""
    present = (run.table.kinds != DELETED) & grid.inside(run.table.indices)
    return run.table if present.all() else chosen_rows(run.table, present)


def _parted(plan: Plan, tables: Mapping[int, RefTable]) -> list[Piece]:
    """Rows by cell and group; encoding them brings their indices into order.

    A cell without changes has a group for each manifest, so that those which it keeps stay apart.
    """
    table = joined(list(tables.values()))
    cells = plan.grid.cells(table.indices)
    sources = np.repeat(list(tables), [len(each) for each in tables.values()])
    is_dirty = np.isin(cells, plan.dirty) | plan.is_entangled
    groups = np.where(is_dirty, _CHANGED, sources)
    order = _order(cells, groups)
    cells, groups, sources = cells[order], groups[order], sources[order]
    table = chosen_rows(table, order)
    cuts = (cells[1:] != cells[:-1]) | (groups[1:] != groups[:-1])
    bounds = [0, *(np.flatnonzero(cuts) + 1).tolist(), len(table)]
    return [
        Piece(
            cell=cells[start].item(),
            table=chosen_rows(table, slice(start, end)),
            sources=tuple(np.unique(sources[start:end]).tolist()),
        )
        for start, end in pairwise(bounds)
    ]


def _order(cells: Keys, groups: npt.NDArray[np.intp]) -> Numbers:
    order = np.argsort(groups, kind="stable")
    return order[np.argsort(cells[order], kind="stable")]
