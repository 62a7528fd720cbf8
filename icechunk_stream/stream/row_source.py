"""The rows of one batch, wherever they are: placed along axes, and written as chunks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from icechunk_stream.stream.bad_rows import BadRows
from icechunk_stream.stream.placed_rows import place_rows
from icechunk_stream.stream.rejected import bad_rows_of
from icechunk_stream.stream.tally import Tally
from icechunk_stream.stream.write_chunks import write_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.packs import PackWriter
    from icechunk_stream.stream.placed_rows import PlacedRows
    from icechunk_stream.stream.refs_batch import Refs
    from icechunk_stream.stream.targets import Plan
    from icechunk_stream.stream.warm_units import WarmUnits


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rows that are left out: how many for which reason, and the first of them."""

    bad: BadRows = field(default_factory=BadRows)
    rows: tuple[pa.Table, ...] = ()

    def joined(self, other: Rejected) -> Rejected:
        return Rejected(self.bad.joined(other.bad), (*self.rows, *other.rows))


@dataclass(frozen=True, slots=True)
class WrittenChunks:
    """The references of chunks, what became of the rows, and the axes as they need them."""

    refs: tuple[Refs, ...]
    axes: tuple[Axis, ...]
    received: int
    written: int
    duplicates: int
    rejected: Rejected = field(default_factory=Rejected)


class PlacedSource(Protocol):
    """Rows on their way to their places, and those that are known to have none.

    ``axes`` have grown by the labels of the rows, or by as much as these may make them grow.
    """

    @property
    def axes(self) -> tuple[Axis, ...]: ...

    @property
    def rejected(self) -> Rejected: ...

    def write(self, plans: Sequence[Plan], writer: PackWriter, warm: WarmUnits) -> WrittenChunks:
        """Write the chunks of all plans; they are stored once the writer has stored what waits.

        Rows with values that cannot be stored are left out. Whoever does it in this process makes
        use of ``warm``, others have writers of their own.

        Raises:
            ConflictingRowsError: rows give different values to one cell.
        """


class RowSource(Protocol):
    """Rows of a batch: the same ones, however often they are asked for."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def is_empty(self) -> bool: ...

    def place(self, axes: Sequence[Axis]) -> PlacedSource:
        """Find the places of all rows.

        Raises:
            BadRowsError: labels are late where the layout lets them fail.
        """


@dataclass(frozen=True, slots=True, eq=False)
class RowsInMemory:
    """Rows in this process."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def is_empty(self) -> bool:
        return not len(self.table)

    def place(self, axes: Sequence[Axis]) -> PlacedInMemory:
        return PlacedInMemory(place_rows(self.table, axes))


@dataclass(frozen=True, slots=True, eq=False)
class PlacedInMemory:
    """Rows in this process with their indices."""

    rows: PlacedRows

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.rows.axes

    @property
    def rejected(self) -> Rejected:
        return Rejected(self.rows.bad, self.rows.rejected)

    def write(self, plans: Sequence[Plan], writer: PackWriter, warm: WarmUnits) -> WrittenChunks:
        refs: list[Refs] = []
        tallies = [Tally(plan) for plan in plans]
        for plan, tally in zip(plans, tallies, strict=True):
            rows = self.rows.table.combine_chunks().to_batches()
            refs += write_chunks(rows, plan, writer, tally, warm)
        return WrittenChunks(
            refs=tuple(refs),
            axes=self.axes,
            received=len(self.rows.table),
            written=max((tally.rows for tally in tallies), default=0),
            duplicates=max((most_duplicates(tally) for tally in tallies), default=0),
            rejected=rejected_by(tallies),
        )


def most_duplicates(tally: Tally) -> int:
    """Rows that others repeat or replace, in the variable that has most of them."""
    return max(tally.duplicates.values(), default=0)


def rejected_by(tallies: Iterable[Tally]) -> Rejected:
    """Rows that were left out while chunks were made."""
    found = [pa.Table.from_batches([batch]) for tally in tallies for batch in tally.bad_rows]
    return Rejected(bad_rows_of(found), tuple(found))
