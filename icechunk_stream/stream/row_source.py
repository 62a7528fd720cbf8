"""The rows of one batch, wherever they are: placed along axes, and written as chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from icechunk_stream.stream.bad_values import bad_values
from icechunk_stream.stream.packs import PackWriter
from icechunk_stream.stream.placed_rows import place_rows
from icechunk_stream.stream.tally import Tally
from icechunk_stream.stream.write_chunks import sorted_by_unit, write_chunks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from icechunk_stream.storage import Storage
    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.placed_rows import PlacedRows
    from icechunk_stream.stream.refs_batch import Refs
    from icechunk_stream.stream.targets import Plan


@dataclass(frozen=True, slots=True)
class WrittenChunks:
    """The references of stored chunks, and how many rows they hold."""

    refs: tuple[Refs, ...]
    received: int
    written: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where chunks are stored: those of up to ``inline_threshold`` bytes in their references."""

    storage: Storage
    inline_threshold: int

    def writer(self) -> PackWriter:
        return PackWriter(self.storage, self.inline_threshold)


class PlacedSource(Protocol):
    """Rows that know their places. ``axes`` have grown by their labels."""

    @property
    def axes(self) -> tuple[Axis, ...]: ...

    def write(self, plans: Sequence[Plan], place: ChunkPlace) -> WrittenChunks:
        """Store the chunks of all plans.

        Raises:
            BadRowsError: a value cannot be stored.
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
            BadRowsError: rows have no place.
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
        placed = place_rows(self.table, axes)
        placed.bad.refuse()
        return PlacedInMemory(placed, len(self.table))


@dataclass(frozen=True, slots=True, eq=False)
class PlacedInMemory:
    """Rows in this process with their indices."""

    rows: PlacedRows
    received: int

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.rows.axes

    def write(self, plans: Sequence[Plan], place: ChunkPlace) -> WrittenChunks:
        refs: list[Refs] = []
        tallies = [Tally(plan) for plan in plans]
        for plan, tally in zip(plans, tallies, strict=True):
            rows = sorted_by_unit(self.rows.table, plan)
            refs += write_chunks(rows.to_batches(), plan, place.writer(), tally)
            bad_values(tally).refuse()
        written = max((tally.rows for tally in tallies), default=0)
        repeated = max((most_duplicates(tally) for tally in tallies), default=0)
        return WrittenChunks(tuple(refs), self.received, written, repeated)


def most_duplicates(tally: Tally) -> int:
    """Rows that others repeat or replace, in the variable that has most of them."""
    return max(tally.duplicates.values(), default=0)
