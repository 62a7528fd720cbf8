"""Rows of a micro-batch that stay with the executors: their tasks place and write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as sql
from pyspark.sql.types import LongType, StructField, StructType

from icechunk_stream.stream.bad_rows import BadRows
from icechunk_stream.stream.bad_values import bad_values
from icechunk_stream.stream.placed_rows import place_rows
from icechunk_stream.stream.placement import place
from icechunk_stream.stream.refs_batch import REFS
from icechunk_stream.stream.row_source import WrittenChunks, most_duplicates
from icechunk_stream.stream.tally import Tally
from icechunk_stream.stream.targets import DELETE, index_column
from icechunk_stream.stream.write_chunks import write_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt
    from pyspark.sql import DataFrame

    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.refs_batch import Refs
    from icechunk_stream.stream.row_source import ChunkPlace
    from icechunk_stream.stream.targets import Plan

    Numbers = npt.NDArray[np.int64]

_UNIT = "#unit"
_REPORT = pa.schema([("refs", pa.binary()), ("rows", pa.int64()), ("duplicates", pa.int64())])
_REPORT_DDL = "refs binary, rows long, duplicates long"


@dataclass(frozen=True, slots=True, eq=False)
class RowsInTasks:
    """Rows of a DataFrame, which must give the same ones each time that it is run."""

    df: DataFrame

    @property
    def schema(self) -> pa.Schema:
        return self.df.limit(0).toArrow().schema

    @property
    def is_empty(self) -> bool:
        return bool(self.df.isEmpty())

    def place(self, axes: Sequence[Axis]) -> PlacedInTasks:
        """Find the places of all labels: each of them once, on the driver."""
        bad = BadRows()
        grown: list[Axis] = []
        for axis in axes:
            labels = self.df.select(sql.col(f"`{axis.column}`")).distinct().toArrow()
            placed = place_rows(labels, [axis])
            bad = bad.joined(placed.bad)
            grown += placed.axes
        bad.refuse()
        return PlacedInTasks(self.df, tuple(grown))


@dataclass(frozen=True, slots=True, eq=False)
class PlacedInTasks:
    """Rows of a DataFrame, all of whose labels have their places."""

    df: DataFrame
    axes: tuple[Axis, ...]

    def write(self, plans: Sequence[Plan], chunks: ChunkPlace) -> WrittenChunks:
        found = [self._written(plan, chunks) for plan in plans]
        return WrittenChunks(
            refs=tuple(refs for each in found for refs in each.refs),
            received=max((each.received for each in found), default=0),
            written=max((each.written for each in found), default=0),
            duplicates=max((each.duplicates for each in found), default=0),
        )

    def _written(self, plan: Plan, chunks: ChunkPlace) -> WrittenChunks:
        axes = tuple(axis for axis in self.axes if axis.name in plan.dims)
        placer = _Placer(plan, axes)
        rows = self.df.select(*map(_quoted, placer.wanted(self.df.columns)))
        placed = rows.mapInArrow(placer, placer.schema(rows.schema))
        # Rows of one unit come to one task, side by side.
        by_unit = placed.repartition(sql.col(_quoted(_UNIT))).sortWithinPartitions(_quoted(_UNIT))
        reports = by_unit.mapInArrow(_Writer(plan, chunks), _REPORT_DDL).toArrow()
        refs = [_unpacked(data.as_py()) for data in reports["refs"] if data.is_valid]
        return WrittenChunks(
            refs=tuple(refs),
            received=_total(reports["rows"]),
            written=_total(reports["rows"]),
            duplicates=_total(reports["duplicates"]),
        )


@dataclass(frozen=True, slots=True)
class _Placer:
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
        return [*(index_column(axis.name) for axis in self.axes), _UNIT]

    def _units(self, indices: Sequence[Numbers]) -> Numbers:
        """The number of each row's unit, in the order of units."""
        by_name = {axis.name: each for axis, each in zip(self.axes, indices, strict=True)}
        numbers = np.zeros(len(indices[0]), np.int64)
        for name, length, size in zip(self.plan.dims, self.plan.shape, self.plan.unit, strict=True):
            numbers = numbers * -(-length // size) + by_name[name] // size
        return numbers


@dataclass(frozen=True, slots=True)
class _Writer:
    """Stores the units of one task, and reports their references."""

    plan: Plan
    chunks: ChunkPlace

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = Tally(self.plan)
        for refs in write_chunks(batches, self.plan, self.chunks.writer(), tally):
            yield _report(_packed(refs))
        bad_values(tally).refuse()
        yield _report(None, tally.rows, most_duplicates(tally))


def _report(refs: bytes | None, rows: int = 0, duplicates: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"refs": refs, "rows": rows, "duplicates": duplicates}], _REPORT
    )


def _packed(refs: Refs) -> bytes:
    """Spark knows no unsigned numbers, so references travel in Arrow's own format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, REFS) as stream:
        stream.write_batch(refs)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(data: bytes) -> Refs:
    (refs,) = pa.ipc.open_stream(data)
    return refs


def _total(column: pa.ChunkedArray) -> int:
    return int(sum(number.as_py() for number in column))


def _quoted(name: str) -> str:
    return f"`{name}`"
