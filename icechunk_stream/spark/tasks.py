"""Rows of a micro-batch that stay with the executors: their tasks place and write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark.sql.functions as sql
from pyspark.sql.types import ShortType, StringType, StructField, StructType

from icechunk_stream.spark.stages import stage
from icechunk_stream.spark.task_work import REPORT_DDL, Placer, Sieve, UnitWriter, quoted, unpacked
from icechunk_stream.stream.dimensions import Append
from icechunk_stream.stream.placed_rows import place_rows
from icechunk_stream.stream.placement import label_column
from icechunk_stream.stream.rejected import BAD_COLUMN, BAD_REASON, MAX_BAD_ROWS, bad_rows_of
from icechunk_stream.stream.row_source import Rejected, WrittenChunks
from icechunk_stream.stream.targets import UNIT, index_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.row_source import ChunkPlace
    from icechunk_stream.stream.targets import Plan


@dataclass(frozen=True, eq=False)
class RowsInTasks:
    """Rows of a DataFrame, which must give the same ones each time that it is run."""

    df: DataFrame

    @cached_property
    def schema(self) -> pa.Schema:
        return self.df.limit(0).toArrow().schema

    @property
    def is_empty(self) -> bool:
        return bool(self.df.isEmpty())

    def place(self, axes: Sequence[Axis]) -> PlacedInTasks:
        """Find the places of all labels: each of them once, on the driver.

        Axes that are appended to come last: a row that is bad along another one adds no label.
        """
        placed = PlacedInTasks(self.df, (), self.schema)
        with stage(self.df, "place labels"):
            for axis in sorted(axes, key=lambda axis: isinstance(axis.dimension, Append)):
                placed = _along(placed, axis)
        by_name = {axis.name: axis for axis in placed.axes}
        ordered = tuple(by_name[axis.name] for axis in axes)
        return PlacedInTasks(placed.df, ordered, placed.schema, placed.rejected)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedInTasks:
    """Rows of a DataFrame, all of whose labels have their places."""

    df: DataFrame
    axes: tuple[Axis, ...]
    schema: pa.Schema
    rejected: Rejected = field(default_factory=Rejected)

    def write(self, plans: Sequence[Plan], chunks: ChunkPlace) -> WrittenChunks:
        with stage(self.df, "write chunks"):
            found = [self._written(plan, chunks) for plan in plans]
        rejected = Rejected()
        for each in found:
            rejected = rejected.joined(each.rejected)
        return WrittenChunks(
            refs=tuple(refs for each in found for refs in each.refs),
            received=max((each.received for each in found), default=0),
            written=max((each.written for each in found), default=0),
            duplicates=max((each.duplicates for each in found), default=0),
            rejected=rejected,
        )

    def _written(self, plan: Plan, chunks: ChunkPlace) -> WrittenChunks:
        axes = tuple(axis for axis in self.axes if axis.name in plan.dims)
        placer = Placer(plan, axes)
        rows = self.df.select(*map(quoted, placer.wanted(self.df.columns)))
        placed = rows.mapInArrow(placer, placer.schema(rows.schema))
        # Rows of one unit come to one task, side by side.
        by_unit = placed.repartition(sql.col(quoted(UNIT))).sortWithinPartitions(quoted(UNIT))
        reports = by_unit.mapInArrow(UnitWriter(plan, chunks), REPORT_DDL).toArrow()
        return WrittenChunks(
            refs=tuple(unpacked(data.as_py()) for data in reports["refs"] if data.is_valid),
            received=_total(reports["received"]),
            written=_total(reports["written"]),
            duplicates=_total(reports["duplicates"]),
            rejected=self._rejected(reports, axes),
        )

    def _rejected(self, reports: pa.Table, axes: Sequence[Axis]) -> Rejected:
        """The rows with values that cannot be stored; their labels are found by their indices."""
        found = [unpacked(data.as_py()) for data in reports["rejected"] if data.is_valid]
        tables = [_with_labels(pa.Table.from_batches([rows]), axes, self.schema) for rows in found]
        return Rejected(bad_rows_of(tables), tuple(tables))


def _along(placed: PlacedInTasks, axis: Axis) -> PlacedInTasks:
    """Rows that have their places along one more axis."""
    rows = placed.df
    labels = rows.select(quoted(axis.column)).distinct().toArrow()
    found = place_rows(labels, [axis])
    axes = (*placed.axes, *found.axes)
    if not found.bad.groups:
        return PlacedInTasks(rows, axes, placed.schema, placed.rejected)
    bad = _sieved(rows, Sieve(found.axes[0], keeps_bad=True)).limit(MAX_BAD_ROWS + 1).toArrow()
    bad = _with_reasons(bad)
    good = _sieved(rows, Sieve(found.axes[0], keeps_bad=False))
    rejected = placed.rejected.joined(Rejected(bad_rows_of([bad]), (bad,)))
    return PlacedInTasks(good, axes, placed.schema, rejected)


def _sieved(rows: DataFrame, sieve: Sieve) -> DataFrame:
    if not sieve.keeps_bad:
        return rows.mapInArrow(sieve, rows.schema)
    blame = [StructField(BAD_COLUMN, StringType()), StructField(BAD_REASON, ShortType())]
    return rows.mapInArrow(sieve, StructType([*rows.schema.fields, *blame]))


def _with_reasons(rows: pa.Table) -> pa.Table:
    """With reasons as they were before Spark, which has no unsigned numbers, held them."""
    at = rows.schema.get_field_index(BAD_REASON)
    return rows.set_column(at, BAD_REASON, rows.column(at).cast(pa.uint8()))


def _with_labels(rows: pa.Table, axes: Sequence[Axis], schema: pa.Schema) -> pa.Table:
    for axis in axes:
        indices = rows.column(index_column(axis.name)).to_numpy()
        labels = label_column(axis, indices).cast(schema.field(axis.column).type)
        rows = rows.append_column(axis.column, labels)
    return rows


def _total(column: pa.ChunkedArray) -> int:
    return int(sum(number.as_py() for number in column))
