"""What tasks do with their rows; pickled to executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, LongType, StructField, StructType

from icechunk_stream.errors import StreamError
from icechunk_stream.spark.parcels import Parcels, packed, together
from icechunk_stream.spark.worker_garbage import settle
from icechunk_stream.stream.located import unit_numbers
from icechunk_stream.stream.placed_rows import place_rows
from icechunk_stream.stream.rejected import MAX_BAD_ROWS
from icechunk_stream.stream.row_source import most_duplicates
from icechunk_stream.stream.tally import Tally
from icechunk_stream.stream.targets import UNIT, index_column
from icechunk_stream.stream.write_chunks import write_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.packs import ChunkPlace
    from icechunk_stream.stream.targets import Plan

_PACKED = ("refs", "unplaced", "rejected")
_COUNTS = ("received", "written", "duplicates")
_REPORT = pa.schema(
    [
        *((name, pa.binary()) for name in _PACKED),
        *((name, pa.int64()) for name in _COUNTS),
        ("reached", pa.list_(pa.int64())),
    ]
)
# Not as a text, which Spark would parse anew for each batch.
REPORT = StructType(
    [
        *(StructField(name, BinaryType()) for name in _PACKED),
        *(StructField(name, LongType()) for name in _COUNTS),
        StructField("reached", ArrayType(LongType())),
    ]
)


def quoted(name: str) -> str:
    """A column as Spark takes it, whatever is in its name."""
    return f"`{name.replace('`', '``')}`"


@dataclass(frozen=True, slots=True)
class RowPlacer:
    """Finds the places of rows, and makes parcels of them.

    Rows without a place make parcels of their own, if this is the one to tell of them.
    """

    axes: tuple[Axis, ...]
    plan: Plan
    parcels: Parcels
    tells: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        rejected: list[pa.Table] = []
        yield from self.parcels.of(self._placed(batches, rejected))
        for rows in rejected if self.tells else ():
            (batch,) = rows.combine_chunks().to_batches()
            yield self.parcels.without_place(batch)

    def _placed(
        self, batches: Iterable[pa.RecordBatch], rejected: list[pa.Table]
    ) -> Iterator[pa.RecordBatch]:
        for batch in together(batches):
            rows = place_rows(pa.Table.from_batches([batch]), self.axes)
            # A batch with more of them fails, whatever they are.
            if sum(map(len, rejected)) <= MAX_BAD_ROWS:
                rejected += rows.rejected
            units = pa.array(unit_numbers(rows.table, self.plan))
            yield from rows.table.append_column(UNIT, units).combine_chunks().to_batches()


@dataclass(frozen=True, slots=True)
class UnitWriter:
    """Stores the units of one task, and reports their references and what was left out."""

    plan: Plan
    chunks: ChunkPlace
    parcels: Parcels | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        tally, reached = Tally(self.plan), [-1] * len(self.plan.dims)
        unplaced: list[bytes] = []
        rows = batches if self.parcels is None else self.parcels.rows(batches, unplaced)
        placed = (self._placed(batch, reached) for batch in rows)
        with self.chunks.writer() as writer:
            for refs in write_chunks(placed, self.plan, writer, tally):
                writer.flush()
                yield _report(refs=packed(refs))
        for data in unplaced:
            yield _report(unplaced=data)
        for rows_left in tally.bad_rows:
            yield _report(rejected=packed(rows_left))
        counts = (tally.rows + tally.bad, tally.rows, most_duplicates(tally))
        yield _report(**dict(zip(_COUNTS, counts, strict=True)), reached=reached)

    def _placed(self, batch: pa.RecordBatch, reached: list[int]) -> pa.RecordBatch:
        """The rows, none of which lacks its place; ``reached`` is the highest index of all."""
        for at, name in enumerate(map(index_column, self.plan.dims)):
            indices = batch.column(name).cast(pa.int64())
            if indices.null_count:
                message = (
                    f"rows have labels along {self.plan.dims[at]!r} that were not there when the"
                    " labels of the batch were read: its DataFrame gives other rows each time that"
                    " it runs. Take out what is random or asks for the time, or use"
                    " write_mode='driver'"
                )
                raise StreamError(message)
            reached[at] = max(reached[at], int(indices.to_numpy().max(initial=-1)))
            batch = batch.set_column(batch.schema.get_field_index(name), name, indices)
        return batch


def _report(**found: bytes | int | list[int]) -> pa.RecordBatch:
    blank = dict.fromkeys(_PACKED) | dict.fromkeys(_COUNTS, 0) | {"reached": []}
    return pa.RecordBatch.from_pylist([blank | found], _REPORT)
