"""What tasks do with their rows; pickled to executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from icechunk_stream.stream.placement import place
from icechunk_stream.stream.rejected import BAD_COLUMN, BAD_REASON
from icechunk_stream.stream.row_source import most_duplicates
from icechunk_stream.stream.tally import Tally
from icechunk_stream.stream.targets import DELETE, UNIT, index_column
from icechunk_stream.stream.write_chunks import write_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.row_source import ChunkPlace
    from icechunk_stream.stream.targets import Plan

    Numbers = npt.NDArray[np.int64]

_COUNTS = ("received", "written", "duplicates")
_REPORT = pa.schema(
    [("refs", pa.binary()), ("rejected", pa.binary()), *((name, pa.int64()) for name in _COUNTS)]
)
REPORT_DDL = "refs binary, rejected binary, received long, written long, duplicates long"


def quoted(name: str) -> str:
    """A column as Spark takes it, whatever is in its name."""
    return f"`{name.replace('`', '``')}`"


@dataclass(frozen=True, slots=True)
class Sieve:
    """Parts rows that have a place along an axis from those that have none."""

    axis: Axis
    keeps_bad: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            reasons = place(batch.column(self.axis.column), self.axis).reasons
            if self.keeps_bad:
                yield self._blamed(batch, reasons)
            else:
                yield batch.filter(pa.array(reasons == 0))

    def _blamed(self, batch: pa.RecordBatch, reasons: npt.NDArray[np.uint8]) -> pa.RecordBatch:
        bad = batch.filter(pa.array(reasons != 0))
        blame = [
            pa.repeat(pa.scalar(self.axis.column), len(bad)),
            pa.array(reasons[reasons != 0].astype(np.int16)),
        ]
        names = [*bad.schema.names, BAD_COLUMN, BAD_REASON]
        return pa.RecordBatch.from_arrays([*bad.columns, *blame], names)


@dataclass(frozen=True, slots=True)
class Placer:
    """Gives rows their indices, and the number of their unit, in place of their labels."""

    plan: Plan
    axes: tuple[Axis, ...]

    def wanted(self, columns: Sequence[str]) -> list[str]:
        """The columns that are read."""
        names = [axis.column for axis in self.axes] + self._kept
        names += [DELETE] if DELETE in columns else []
        return list(dict.fromkeys(names))

    def schema(self, given: StructType) -> StructType:
        """That of the rows which come out."""
        kept = [given[name] for name in self._kept_of(given.names)]
        return StructType(kept + [StructField(name, LongType(), False) for name in self._made])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = self._kept_of(batch.schema.names)
            indices = [place(batch.column(axis.column), axis).indices for axis in self.axes]
            columns = [*(batch.column(name) for name in names), *map(pa.array, indices)]
            columns.append(pa.array(self._units(indices)))
            yield pa.RecordBatch.from_arrays(columns, [*names, *self._made])

    @property
    def _kept(self) -> list[str]:
        made = {index_column(axis.name) for axis in self.axes}
        return [name for name in self.plan.columns if name not in made]

    def _kept_of(self, names: Sequence[str]) -> list[str]:
        return self._kept + ([DELETE] if DELETE in names else [])

    @property
    def _made(self) -> list[str]:
        return [*(index_column(axis.name) for axis in self.axes), UNIT]

    def _units(self, indices: Sequence[Numbers]) -> Numbers:
        """The number of each row's unit, in the order of units."""
        by_name = {axis.name: each for axis, each in zip(self.axes, indices, strict=True)}
        numbers = np.zeros(len(indices[0]), np.int64)
        for name, length, size in zip(self.plan.dims, self.plan.shape, self.plan.unit, strict=True):
            numbers = numbers * -(-length // size) + by_name[name] // size
        return numbers


@dataclass(frozen=True, slots=True)
class UnitWriter:
    """Stores the units of one task, and reports their references and what was left out."""

    plan: Plan
    chunks: ChunkPlace

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = Tally(self.plan)
        for refs in write_chunks(batches, self.plan, self.chunks.writer(), tally):
            yield _report(refs=_packed(refs))
        for rows in tally.bad_rows:
            yield _report(rejected=_packed(rows))
        counts = (tally.rows + tally.bad, tally.rows, most_duplicates(tally))
        yield _report(**dict(zip(_COUNTS, counts, strict=True)))


def _report(**found: bytes | int) -> pa.RecordBatch:
    row = dict.fromkeys(_COUNTS, 0) | {"refs": None, "rejected": None} | found
    return pa.RecordBatch.from_pylist([row], _REPORT)


def _packed(rows: pa.RecordBatch) -> bytes:
    """Spark knows no unsigned numbers, so rows of them travel in Arrow's own format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpacked(data: bytes) -> pa.RecordBatch:
    """What a task has packed."""
    (rows,) = pa.ipc.open_stream(data)
    return rows
