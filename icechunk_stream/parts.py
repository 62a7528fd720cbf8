"""What new manifests hold of one array, by either way of laying them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from icechunk_stream.format.ref_rows import DELETED, chosen_rows, joined
from icechunk_stream.manifests.places import parted
from icechunk_stream.manifests.rebuild import pieces, remaining
from icechunk_stream.packing import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from icechunk_stream.changes.runs import Run
    from icechunk_stream.format.ref_tables import RefTable
    from icechunk_stream.manifests.rebuild import Grid, Plan
    from icechunk_stream.manifests.tiered import Merge, NewTable, TieredPlan
    from icechunk_stream.old_manifests import OldManifests
    from icechunk_stream.packing import PartKey


@dataclass(frozen=True, slots=True, eq=False)
class CellParts:
    """One part for each cell that changes."""

    old: OldManifests
    run: Run | None
    state: PartKey
    plan: Plan

    @property
    def kept(self) -> npt.NDArray[np.intp]:
        return self.plan.kept

    @property
    def merges(self) -> Sequence[Merge]:
        return ()

    def reads(self) -> list[int]:
        """The manifests whose references are needed."""
        numbers: list[int] = self.plan.read.tolist()
        return numbers

    def made(self) -> Iterator[Part]:
        loaded = {number: self.old.table(number) for number in self.reads()}
        for piece in pieces(self.plan, loaded, self.run):
            sources = _ids(self.old, (number for number in piece.sources if number >= 0))
            yield Part((*self.state, piece.cell, *sources), self.old.node.id, piece.table)


@dataclass(frozen=True, slots=True, eq=False)
class TieredParts:
    """Parts with what is new, and those that had to change for it."""

    old: OldManifests
    grid: Grid
    run: Run | None
    state: PartKey
    plan: TieredPlan
    most: int

    @property
    def kept(self) -> npt.NDArray[np.intp]:
        return self.plan.kept

    @property
    def merges(self) -> Sequence[Merge]:
        return self.plan.merges

    def reads(self) -> list[int]:
        """The manifests whose references are needed."""
        return [number for new in self.plan.new for number in new.sources]

    def made(self) -> Iterator[Part]:
        for new in self.plan.new:
            table = self._table(new)
            key = (*self.state, *_ids(self.old, new.sources), new.rows.tobytes())
            for number, part in enumerate(self._parted(table)):
                yield Part((*key, number), self.old.node.id, part)

    def _table(self, new: NewTable) -> RefTable | None:
        """What stays of the old manifests, and the rows that are no deletions; None if nothing."""
        found = [remaining(self.old.table(each), self.run, self.grid) for each in new.sources]
        if self.run is not None and len(new.rows):
            rows = new.rows[self.run.table.kinds[new.rows] != DELETED]
            found.append(chosen_rows(self.run.table, rows))
        filled = [table for table in found if len(table)]
        return joined(filled) if filled else None

    def _parted(self, table: RefTable | None) -> list[RefTable]:
        """A table as it is, or in parts where it would be much more than a full manifest."""
        if table is None:
            return []
        if len(table) <= 2 * self.most:
            return [table]
        return [chosen_rows(table, rows) for rows in parted(table.indices, 0, self.most)]


Parts: TypeAlias = CellParts | TieredParts


def merged(old: OldManifests, merge: Merge) -> Part:
    """All references of neighbouring manifests."""
    table = joined([old.table(number) for number in merge.numbers])
    return Part((old.node.id, *_ids(old, merge.numbers)), old.node.id, table)


def _ids(old: OldManifests, numbers: Iterable[int]) -> tuple[bytes, ...]:
    return tuple(old.refs.ids[number].tobytes() for number in numbers)
