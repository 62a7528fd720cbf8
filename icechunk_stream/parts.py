"""What new manifests hold of one array, by either way of laying them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from icechunk_stream.format.ref_rows import DELETED, chosen_rows, joined
from icechunk_stream.manifests.places import parted
from icechunk_stream.manifests.rebuild import pieces, remaining
from icechunk_stream.manifests.stretches import cut_around
from icechunk_stream.packing import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from icechunk_stream.changes.runs import Run
    from icechunk_stream.format.ref_tables import RefTable
    from icechunk_stream.manifests.policy import Tiered
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
    policy: Tiered

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
            key = (*self.state, *_ids(self.old, new.sources), new.rows.tobytes())
            for number, part in enumerate(self._tables(new)):
                yield Part((*key, number), self.old.node.id, part)

    def _tables(self, new: NewTable) -> list[RefTable]:
        """What stays of the old manifests, and the rows that are no deletions; as it is, or cut."""
        stored = [self.old.table(each) for each in new.sources]
        found = [remaining(table, self.run, self.grid) for table in stored]
        replaced = sum(map(len, stored)) - sum(map(len, found))
        if self.run is not None and len(new.rows):
            rows = new.rows[self.run.table.kinds[new.rows] != DELETED]
            found.append(chosen_rows(self.run.table, rows))
        filled = [table for table in found if len(table)]
        if not filled:
            return []
        table = joined(filled)
        groups = self._groups(table, new, replaced)
        return [table] if groups is None else [chosen_rows(table, rows) for rows in groups]

    def _groups(
        self, table: RefTable, new: NewTable, replaced: int
    ) -> Sequence[npt.NDArray[np.intp]] | None:
        """Where a table is cut that would be too large, or of which late data change little."""
        if len(table) > 2 * self.policy.cell_refs:
            return parted(table.indices, 0, self.policy.cell_refs)
        is_late = len(new.sources) == 1 and 0 < len(new.rows) <= 2 * replaced
        if self.run is None or not is_late:
            return None
        return cut_around(table.indices, self.run.table.indices[new.rows], self.policy)


Parts: TypeAlias = CellParts | TieredParts


def merged(old: OldManifests, merge: Merge) -> Part:
    """All references of neighbouring manifests."""
    table = joined([old.table(number) for number in merge.numbers])
    return Part((old.node.id, *_ids(old, merge.numbers)), old.node.id, table)


def _ids(old: OldManifests, numbers: Iterable[int]) -> tuple[bytes, ...]:
    return tuple(old.refs.ids[number].tobytes() for number in numbers)
