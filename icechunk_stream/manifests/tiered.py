"""A commit's plan for the manifests of one array, where references are kept in tiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.format.ref_rows import DELETED
from icechunk_stream.manifests.places import Members, Rows, place
from icechunk_stream.manifests.stretches import stays_apart
from icechunk_stream.manifests.tiers import merge_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from icechunk_stream.changes.runs import Run
    from icechunk_stream.format.nodes import ManifestRefs
    from icechunk_stream.manifests.places import Placing
    from icechunk_stream.manifests.policy import Tiered
    from icechunk_stream.manifests.rebuild import Grid

    Numbers = npt.NDArray[np.intp]
    Sizes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NewTable:
    """What one new manifest holds of an array: the rest of old manifests, and rows of the run."""

    sources: tuple[int, ...]
    rows: Numbers


@dataclass(frozen=True, slots=True)
class Merge:
    """Neighbouring manifests that should be one, of so many references; one that ``is_due`` now."""

    numbers: tuple[int, ...]
    size: int
    is_due: bool


@dataclass(frozen=True, slots=True, eq=False)
class TieredPlan:
    """Manifests by their numbers: those ``kept``, what is new, and which of the kept to merge."""

    kept: Numbers
    new: tuple[NewTable, ...]
    merges: tuple[Merge, ...]


def tiered_plan(
    old: ManifestRefs, sizes: Sizes, run: Run | None, grid: Grid, policy: Tiered
) -> TieredPlan | None:
    """Place the rows of a run; None where old manifests reach across cells."""
    layout = _Layout.of(old, sizes, grid)
    if layout is None:
        return None
    touched = layout.clipped.copy()
    new: list[NewTable] = []
    merges: list[Merge] = []
    for members, rows in layout.cells(run):
        placing = place(layout.members(members), _rows(run, rows), policy)
        for group in placing.groups:
            sources = members[list(group.members)]
            touched[sources] = True
            new.append(NewTable(tuple(sources.tolist()), rows[group.rows]))
        merges += _merges(members, placing, sizes, layout.clipped, policy)
    written = {source for table in new for source in table.sources}
    alone = [number for number in np.flatnonzero(layout.clipped).tolist() if number not in written]
    new += [NewTable((number,), np.zeros(0, np.intp)) for number in alone]
    kept = np.flatnonzero(layout.reachable & ~touched)
    merges += layout.passed(run, policy)
    return TieredPlan(kept, tuple(new), tuple(merges))


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Old manifests in the grid as it is now; ``clipped`` ones reach beyond it."""

    boxes: Sizes
    sizes: Sizes
    grid: Grid
    reachable: npt.NDArray[np.bool_]
    clipped: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, old: ManifestRefs, sizes: Sizes, grid: Grid) -> _Layout | None:
        boxes = old.extents.astype(np.int64)
        low, last = boxes[:, :, 0], boxes[:, :, 1] - 1
        reachable = grid.inside(low)
        clipped = reachable & ~grid.inside(last)
        within = np.minimum(last, grid.chunks - 1) // grid.sizes == low // grid.sizes
        if not within.all(axis=1)[reachable].all():
            return None
        return cls(boxes, sizes, grid, reachable, clipped)

    def members(self, numbers: Numbers) -> Members:
        return Members(self.boxes[numbers], self.sizes[numbers])

    def cells(self, run: Run | None) -> Iterator[tuple[Numbers, Numbers]]:
        """For each cell with changes: its manifests, and the rows of the run."""
        if run is None or not len(run):
            return
        numbers = np.flatnonzero(self.reachable)
        inside = np.flatnonzero(self.grid.inside(run.table.indices))
        if self.grid.is_one_cell:
            if len(inside):
                yield numbers, inside
            return
        mine = self.grid.cells(self.boxes[numbers, :, 0])
        theirs = self.grid.cells(run.table.indices[inside])
        by_cell = np.argsort(mine, kind="stable")
        ordered = mine[by_cell]
        order = np.argsort(theirs, kind="stable")
        firsts = np.flatnonzero(np.append(True, theirs[order][1:] != theirs[order][:-1]))
        for part in np.split(order, firsts[1:]):
            if len(part):
                low, high = (
                    np.searchsorted(ordered, theirs[part[0]], side) for side in ("left", "right")
                )
                yield np.sort(numbers[by_cell[low:high]]), np.sort(inside[part])

    def passed(self, run: Run | None, policy: Tiered) -> list[Merge]:
        """All manifests of a cell that writing has left behind, but those that were cut apart."""
        if self.grid.is_one_cell or run is None or not len(run):
            return []
        numbers = np.flatnonzero(self.reachable & ~self.clipped)
        corners = self.boxes[numbers, :, 0] // self.grid.sizes
        front = (run.table.indices // self.grid.sizes.astype(np.uint64)).min(axis=0)
        behind = numbers[(corners < front).any(axis=1)]
        cells = self.grid.cells(self.boxes[behind, :, 0])
        several, counts = np.unique(cells, return_counts=True)
        found = (behind[cells == cell] for cell in several[counts > 1])
        merges = [
            _merge(each.tolist(), self.sizes, is_due=False)
            for each in found
            if not stays_apart(self.sizes[each].tolist(), policy)
        ]
        return [merge for merge in merges if merge.size <= 2 * policy.cell_refs]


def _rows(run: Run | None, rows: Numbers) -> Rows:
    assert run is not None
    return Rows(run.table.indices[rows], run.table.kinds[rows] != DELETED)


def _merges(
    members: Numbers,
    placing: Placing,
    sizes: Sizes,
    clipped: npt.NDArray[np.bool_],
    policy: Tiered,
) -> Iterator[Merge]:
    for row in placing.untouched:
        for part in _open_parts(members[list(row)].tolist(), sizes, clipped, policy):
            chosen = merge_of([int(sizes[number]) for number in part], policy)
            if chosen is not None:
                yield _merge(part[chosen], sizes, is_due=len(part) >= policy.most - 1)


def _merge(numbers: list[int], sizes: Sizes, *, is_due: bool) -> Merge:
    return Merge(tuple(numbers), int(sizes[numbers].sum()), is_due)


def _open_parts(
    row: list[int], sizes: Sizes, clipped: npt.NDArray[np.bool_], policy: Tiered
) -> Iterator[list[int]]:
    """Neighbours none of which is full."""
    part: list[int] = []
    for number in row:
        if policy.is_full(int(sizes[number])) or clipped[number]:
            if part:
                yield part
            part = []
        else:
            part.append(number)
    if part:
        yield part
