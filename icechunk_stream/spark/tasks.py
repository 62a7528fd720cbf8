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

from icechunk_stream.spark.arithmetic import Arithmetic, arithmetic
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
class Touched:
    """Indices of rows along an axis, or those at both ends of a span."""

    indices: Numbers
    is_span: bool

    def units(self, size: int) -> int:
        """How many units of this length they lie in at most."""
        units = np.unique(self.indices // size)
        return int(units[-1] - units[0] + 1) if self.is_span and len(units) else len(units)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedInTasks:
    """Rows of a DataFrame with a column ``#<dimension>`` for each axis.

    ``touched`` are the indices of their labels along each axis.
    """

    df: DataFrame
    axes: tuple[Axis, ...]
    schema: pa.Schema
    touched: FrozenMap[str, Touched]
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
        return max(math.prod(self.touched[name].units(size) for name, size in pairs), 1)

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


def _labels(
    rows: DataFrame, axes: Sequence[Axis], *, by_arithmetic: bool = True
) -> dict[str, pa.Array]:
    """The labels of rows along each axis; those at both ends where arithmetic does the others."""
    if not axes:
        return {}
    simple = {axis.name: arithmetic(rows, axis) if by_arithmetic else None for axis in axes}
    asked = [part for axis in axes for part in _asked(axis, simple[axis.name])]
    row = rows.agg(*(each.alias(str(at)) for at, each in enumerate(asked))).toArrow()
    found, off = {}, []
    for at, axis in enumerate(axes):
        labels = row.column(2 * at).chunk(0).flatten().drop_null()
        if row.column(2 * at + 1)[0].as_py():
            labels = pa.concat_arrays([labels, pa.nulls(1, labels.type)])
            off += [axis] if simple[axis.name] is not None else []
        found[axis.name] = labels
    return found | _labels(rows, off, by_arithmetic=False)


def _asked(axis: Axis, simple: Arithmetic | None) -> tuple[Column, Column]:
    """The labels that are needed, and whether there are null or bad ones besides."""
    column = sql.col(quoted(axis.column))
    if simple is None:
        labels, is_off = sql.collect_set(column), column.isNull()
    else:
        labels, is_off = sql.array(sql.min(column), sql.max(column)), simple.is_off
    return labels, sql.coalesce(sql.bool_or(is_off), sql.lit(False))


def _along(placed: PlacedInTasks, axis: Axis, labels: pa.Array) -> PlacedInTasks:
    """Rows with their indices along one more axis, which each label has from the driver."""
    rows, simple = placed.df, arithmetic(placed.df, axis)
    found = place_rows(pa.table({axis.column: labels}), [axis])
    if found.bad.groups and simple is not None:
        # Between two ends that are bad others may be good, or bad for other reasons.
        labels = _labels(rows, [axis], by_arithmetic=False)[axis.name]
        found = place_rows(pa.table({axis.column: labels}), [axis])
    rejected = placed.rejected
    if found.bad.groups:
        rows, bad = _parted(rows, axis.column, pa.concat_tables(found.rejected))
        rejected = rejected.joined(bad)
    at = found.table.column(index_column(axis.name)).to_numpy()
    if simple is not None and simple.gives(found.table.column(axis.column), at):
        rows = rows.withColumn(index_column(axis.name), simple.index)
        touched = Touched(at, is_span=True)
    else:
        rows = _looked_up(rows, axis, found.table)
        touched = Touched(at, is_span=False)
    return PlacedInTasks(
        df=rows,
        axes=(*placed.axes, *found.axes),
        schema=placed.schema,
        touched=FrozenMap({**placed.touched, axis.name: touched}),
        rejected=rejected,
    )


def _parted(rows: DataFrame, column: str, bad: pa.Table) -> tuple[DataFrame, Rejected]:
    """Rows without those that have bad labels, and these."""
    blame = _named(bad.drop_columns([BAD_COLUMN]))
    blame = blame.set_column(1, BAD_REASON, blame.column(BAD_REASON).cast(pa.int16()))
    reasons = sql.broadcast(rows.sparkSession.createDataFrame(blame))
    found = rows.join(reasons, _is_same(column), "inner").drop(_LABEL)
    blamed = _blamed(found.limit(MAX_BAD_ROWS + 1).toArrow(), column)
    good = rows.join(reasons, _is_same(column), "left_anti")
    return good, Rejected(bad_rows_of([blamed]), (blamed,))


def _looked_up(rows: DataFrame, axis: Axis, found: pa.Table) -> DataFrame:
    """Rows with the index of each label; null for labels that are not found."""
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
