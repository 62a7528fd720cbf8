"""Rows of a micro-batch that stay with the executors: their tasks place and write them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as sql
from pyspark.errors import PythonException

from icechunk_stream.spark.arithmetic import arithmetic
from icechunk_stream.spark.carried import carried
from icechunk_stream.spark.stages import stage
from icechunk_stream.spark.task_work import REPORT_DDL, UnitWriter, quoted, unpacked
from icechunk_stream.stream.dimensions import Append
from icechunk_stream.stream.frozen import FrozenMap
from icechunk_stream.stream.placed_rows import place_rows
from icechunk_stream.stream.placement import label_column
from icechunk_stream.stream.rejected import BAD_COLUMN, BAD_REASON, MAX_BAD_ROWS, bad_rows_of
from icechunk_stream.stream.row_source import Rejected, WrittenChunks
from icechunk_stream.stream.targets import DELETE, UNIT, index_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from pyspark.sql import Column, DataFrame

    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.row_source import ChunkPlace
    from icechunk_stream.stream.targets import Plan

    Numbers = npt.NDArray[np.int64]

_LABEL = "#label"
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
        """Find the places of all labels: each of them once, on the driver.

        Axes that are appended to come last: a row that is bad along another one adds no label.
        """
        placed = PlacedInTasks(self.df, (), self.schema, FrozenMap())
        ordered = sorted(axes, key=lambda axis: isinstance(axis.dimension, Append))
        with stage(self.df, "place labels"):
            labels = _labels(self.df, ordered)
            for number, axis in enumerate(ordered):
                good = len(placed.rejected.rows)
                placed = _along(placed, axis, labels[axis.name])
                if len(placed.rejected.rows) > good:
                    labels |= _labels(placed.df, ordered[number + 1 :])
        by_name = {axis.name: axis for axis in placed.axes}
        return replace(placed, axes=tuple(by_name[axis.name] for axis in axes))


@dataclass(frozen=True, slots=True, eq=False)
class PlacedInTasks:
    """Rows of a DataFrame with a column ``#<dimension>`` for each axis.

    ``touched`` are the indices of their labels along each axis.
    """

    df: DataFrame
    axes: tuple[Axis, ...]
    schema: pa.Schema
    touched: FrozenMap[str, Numbers]
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
        wanted = [*plan.columns, DELETE] if DELETE in self.df.columns else plan.columns
        rows = self.df.select(*map(quoted, wanted), unit_number(plan).alias(UNIT))
        # Rows of one unit come to one task, side by side.
        count = min(self._units_at_most(plan), _shuffle_partitions(self.df))
        by_unit = rows.repartition(count, quoted(UNIT)).sortWithinPartitions(quoted(UNIT))
        try:
            reports = by_unit.mapInArrow(carried(UnitWriter(plan, chunks)), REPORT_DDL).toArrow()
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
        counts = (len(np.unique(self.touched[name] // size)) for name, size in pairs)
        return max(math.prod(counts), 1)

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


def _labels(rows: DataFrame, axes: Sequence[Axis]) -> dict[str, pa.Array]:
    """The distinct labels of rows along each axis."""
    if not axes:
        return {}
    columns = [sql.col(quoted(axis.column)) for axis in axes]
    asked = [sql.collect_set(column) for column in columns]
    asked += [sql.coalesce(sql.bool_or(column.isNull()), sql.lit(False)) for column in columns]
    row = rows.agg(*(each.alias(str(at)) for at, each in enumerate(asked))).toArrow()
    found = {}
    for at, axis in enumerate(axes):
        labels = row.column(at).chunk(0).flatten()
        if row.column(len(axes) + at)[0].as_py():
            labels = pa.concat_arrays([labels, pa.nulls(1, labels.type)])
        found[axis.name] = labels
    return found


def _along(placed: PlacedInTasks, axis: Axis, labels: pa.Array) -> PlacedInTasks:
    """Rows with their indices along one more axis, which each label has from the driver."""
    rows, spark = placed.df, placed.df.sparkSession
    found = place_rows(pa.table({axis.column: labels}), [axis])
    axes, rejected = (*placed.axes, *found.axes), placed.rejected
    if found.bad.groups:
        blame = _named(pa.concat_tables(found.rejected).drop_columns([BAD_COLUMN]))
        blame = blame.set_column(1, BAD_REASON, blame.column(BAD_REASON).cast(pa.int16()))
        reasons = sql.broadcast(spark.createDataFrame(blame))
        is_bad = _is_same(axis.column)
        bad = rows.join(reasons, is_bad, "inner").drop(_LABEL).limit(MAX_BAD_ROWS + 1)
        blamed = _blamed(bad.toArrow(), axis.column)
        rows = rows.join(reasons, is_bad, "left_anti")
        rejected = rejected.joined(Rejected(bad_rows_of([blamed]), (blamed,)))
    found_at = found.table.column(index_column(axis.name)).to_numpy()
    return PlacedInTasks(
        df=_with_indices(rows, axis, found.table),
        axes=axes,
        schema=placed.schema,
        touched=FrozenMap({**placed.touched, axis.name: found_at}),
        rejected=rejected,
    )


def _with_indices(rows: DataFrame, axis: Axis, found: pa.Table) -> DataFrame:
    """Rows with the index of each label; null for labels that are not found."""
    name = index_column(axis.name)
    simple = arithmetic(rows, axis, found)
    if simple is not None:
        return rows.withColumn(name, simple)
    indices = sql.broadcast(rows.sparkSession.createDataFrame(_named(found)))
    return rows.join(indices, _is_same(axis.column), "left_outer").drop(_LABEL)


def _is_same(column: str) -> Column:
    return sql.col(quoted(column)).eqNullSafe(sql.col(quoted(_LABEL)))


def _named(found: pa.Table) -> pa.Table:
    """What was found of labels, which come first, under a name that no column of rows has."""
    return found.rename_columns([_LABEL, *found.column_names[1:]])


def _blamed(rows: pa.Table, column: str) -> pa.Table:
    """Rows with the column to blame, and reasons as they were before Spark held them."""
    at = rows.schema.get_field_index(BAD_REASON)
    rows = rows.set_column(at, BAD_REASON, rows.column(at).cast(pa.uint8()))
    return rows.append_column(BAD_COLUMN, pa.repeat(pa.scalar(column), len(rows)))


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
