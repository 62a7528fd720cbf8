"""Rows of a micro-batch that stay with the executors: their tasks place and write them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark.sql.functions as sql
from pyspark.errors import PythonException

from icechunk_stream.spark.carried import carried
from icechunk_stream.spark.even_partitions import in_turn
from icechunk_stream.spark.locating import Located, locate
from icechunk_stream.spark.parcels import MOST_UNITS, PARCEL_DDL, in_parcels, unpacked
from icechunk_stream.spark.stages import stage
from icechunk_stream.spark.task_work import REPORT_DDL, UnitWriter, quoted
from icechunk_stream.stream.placement import label_column
from icechunk_stream.stream.rejected import bad_rows_of
from icechunk_stream.stream.row_source import Rejected, WrittenChunks
from icechunk_stream.stream.targets import DELETE, UNIT, index_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.row_source import ChunkPlace
    from icechunk_stream.stream.targets import Plan

SMALLER_BATCHES = (
    "keep batches below 32 MiB or so: lower maxOffsetsPerTrigger (Kafka), maxFilesPerTrigger or"
    " maxBytesPerTrigger of the source"
)
_IF_TASKS_CANNOT = (
    "Tasks of executors make chunks of a batch that is too large for the driver. Where they have no"
    f" way to the storage, give write_mode='driver', and {SMALLER_BATCHES}"
)


@dataclass(frozen=True, eq=False)
class RowsInTasks:
    """Rows of a DataFrame, which must give the same labels each time that it is run.

    It runs twice, once for the labels; rows whose labels were not there then fail the batch.
    """

    df: DataFrame

    @cached_property
    def schema(self) -> pa.Schema:
        return self.df.limit(0).toArrow().schema

    @property
    def is_empty(self) -> bool:
        return bool(self.df.isEmpty())

    def place(self, axes: Sequence[Axis]) -> PlacedInTasks:
        with stage(self.df, "place labels"):
            return PlacedInTasks(locate(self.df, axes, self.schema), self.schema)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedInTasks:
    """Rows of a DataFrame with their indices."""

    located: Located
    schema: pa.Schema

    @property
    def df(self) -> DataFrame:
        return self.located.df

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.located.axes

    @property
    def rejected(self) -> Rejected:
        return self.located.rejected

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
        wanted = [*plan.columns, DELETE] if DELETE in self.df.columns else plan.columns
        rows = self.df.select(*map(quoted, wanted), unit_number(plan).alias(UNIT))
        units = self._units_at_most(plan)
        are_parcels = units <= MOST_UNITS
        if are_parcels:
            rows = rows.mapInArrow(carried(in_parcels), PARCEL_DDL)
        # Rows of one unit come to one task, side by side.
        count = min(units, _shuffle_partitions(self.df))
        turn = in_turn(sql.col(quoted(UNIT)), count)
        by_unit = rows.repartition(count, turn).sortWithinPartitions(quoted(UNIT))
        work = UnitWriter(plan, chunks, are_parcels)
        try:
            reports = by_unit.mapInArrow(carried(work), REPORT_DDL).toArrow()
        except PythonException as error:
            error.add_note(_IF_TASKS_CANNOT)
            raise
        return WrittenChunks(
            refs=tuple(unpacked(data.as_py()) for data in reports["refs"] if data.is_valid),
            received=_total(reports["received"]),
            written=_total(reports["written"]),
            duplicates=_total(reports["duplicates"]),
            rejected=self._rejected(reports, axes),
        )

    def _units_at_most(self, plan: Plan) -> int:
        """More tasks than units would have nothing to do."""
        pairs = zip(plan.dims, plan.unit, strict=True)
        return max(math.prod(self.located.touched[name].units(size) for name, size in pairs), 1)

    def _rejected(self, reports: pa.Table, axes: Sequence[Axis]) -> Rejected:
        """The rows with values that cannot be stored; their labels are found by their indices."""
        found = [unpacked(data.as_py()) for data in reports["rejected"] if data.is_valid]
        tables = [_with_labels(pa.Table.from_batches([rows]), axes, self.schema) for rows in found]
        return Rejected(bad_rows_of(tables), tuple(tables))


def unit_number(plan: Plan) -> Column:
    """The number of the unit of a row that has its indices, in the order of units."""
    number = sql.lit(0).cast("long")
    for name, length, size in zip(plan.dims, plan.shape, plan.unit, strict=True):
        index = sql.col(quoted(index_column(name)))
        number = number * sql.lit(-(-length // size)) + sql.floor(index / sql.lit(size))
    return number


def _shuffle_partitions(df: DataFrame) -> int:
    return int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _with_labels(rows: pa.Table, axes: Sequence[Axis], schema: pa.Schema) -> pa.Table:
    for axis in axes:
        indices = rows.column(index_column(axis.name)).to_numpy()
        labels = label_column(axis, indices).cast(schema.field(axis.column).type)
        rows = rows.append_column(axis.column, labels)
    return rows


def _total(column: pa.ChunkedArray) -> int:
    return int(sum(number.as_py() for number in column))
