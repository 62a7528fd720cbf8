"""Rows of a micro-batch that stay with the executors: their tasks place and write them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sql

from icechunk_stream.spark.arrow_batches import counted_rows
from icechunk_stream.spark.batch_sizes import BatchSizes
from icechunk_stream.spark.carried import carried
from icechunk_stream.spark.locating import FEW_LABELS, Located, locate
from icechunk_stream.spark.parcels import MOST_UNITS, Parcels
from icechunk_stream.spark.stages import stage
from icechunk_stream.spark.task_work import RowPlacer, UnitWriter, quoted
from icechunk_stream.spark.unit_jobs import Reports, gathered, write_units
from icechunk_stream.stream.dimensions import Fixed, Regular
from icechunk_stream.stream.row_source import Rejected, WrittenChunks
from icechunk_stream.stream.targets import DELETE, UNIT, index_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.packs import ChunkPlace, PackWriter
    from icechunk_stream.stream.targets import Plan
    from icechunk_stream.stream.warm_units import WarmUnits

# There is no array of so many cells.
_MAX_CELLS = 2**63
# Indices below this travel with 32 bits.
_MAX_SHORT = 2**31


@dataclass(frozen=True, slots=True, eq=False)
class RowsInTasks:
    """Rows of a DataFrame.

    Where their labels have to be read first, it runs twice, and must give the same ones each time:
    rows whose labels were not there then fail the batch.
    """

    df: DataFrame
    sizes: BatchSizes = field(default_factory=BatchSizes)

    @property
    def schema(self) -> pa.Schema:
        return self.sizes.schema(self.df)

    @property
    def is_empty(self) -> bool:
        return bool(self.df.isEmpty())

    def place(self, axes: Sequence[Axis]) -> PlacedInTasks | PlacedByTasks:
        if self._can_be_placed_by_tasks(axes):
            return PlacedByTasks(self.df, tuple(axes), self.schema, self.sizes)
        with stage(self.df, "place labels"):
            located = locate(self.df, axes, self.schema)
        return PlacedInTasks(located, self.schema, self.sizes)

    def _can_be_placed_by_tasks(self, axes: Sequence[Axis]) -> bool:
        """Units have to be few, which the batch before tells, and labels such as tasks know."""
        units = self.sizes.units
        if units is None or units > MOST_UNITS or not all(map(_is_known, axes)):
            return False
        return math.prod(axis.size for axis in map(_longest, axes)) < _MAX_CELLS


def _is_known(axis: Axis) -> bool:
    """Whether a task can tell the index of a label without any other rows."""
    match axis.dimension:
        case Regular():
            return True
        case Fixed():
            return axis.size <= FEW_LABELS
        case _:
            return False


def _longest(axis: Axis) -> Axis:
    """As long as a batch may make it."""
    if isinstance(axis.dimension, Regular):
        return axis.resized(axis.size + axis.max_growth)
    return axis


@dataclass(frozen=True, slots=True, eq=False)
class PlacedByTasks:
    """Rows whose places the tasks find that read them: their DataFrame runs once."""

    df: DataFrame
    known: tuple[Axis, ...]
    schema: pa.Schema
    sizes: BatchSizes

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(map(_longest, self.known))

    @property
    def rejected(self) -> Rejected:
        return Rejected()

    def write(
        self,
        plans: Sequence[Plan],
        writer: PackWriter,
        warm: WarmUnits,  # noqa: ARG002 - they are not where the tasks are
    ) -> WrittenChunks:
        with stage(self.df, "write chunks"):
            reports = [
                self._written(plan, writer.place, tells=not number)
                for number, plan in enumerate(plans)
            ]
        return _remembered(gathered(reports, self.known, self.schema), self.sizes)

    def _written(self, plan: Plan, chunks: ChunkPlace, *, tells: bool) -> Reports:
        parcels = Parcels(_row_schema(plan, self.schema))
        placer = RowPlacer(self.known, replace(plan, base=None), parcels, tells)
        rows = self.df.mapInArrow(carried(placer), parcels.columns)
        with counted_rows(self.df):
            return write_units(rows, UnitWriter(plan, chunks, parcels), self.sizes.units or 1)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedInTasks:
    """Rows of a DataFrame with their indices."""

    located: Located
    schema: pa.Schema
    sizes: BatchSizes

    @property
    def df(self) -> DataFrame:
        return self.located.df

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.located.axes

    @property
    def rejected(self) -> Rejected:
        return self.located.rejected

    def write(
        self,
        plans: Sequence[Plan],
        writer: PackWriter,
        warm: WarmUnits,  # noqa: ARG002 - they are not where the tasks are
    ) -> WrittenChunks:
        with stage(self.df, "write chunks"):
            reports = [self._written(plan, writer.place) for plan in plans]
        return _remembered(gathered(reports, self.axes, self.schema), self.sizes)

    def _written(self, plan: Plan, chunks: ChunkPlace) -> Reports:
        parcels = Parcels(_row_schema(plan, self.schema))
        rows = self.df.select(*map(quoted, parcels.schema.names), unit_number(plan).alias(UNIT))
        units = self._units_at_most(plan)
        with counted_rows(rows):
            if units > MOST_UNITS:
                return write_units(rows, UnitWriter(plan, chunks, None), units)
            rows = rows.mapInArrow(carried(parcels.of), parcels.columns)
            return write_units(rows, UnitWriter(plan, chunks, parcels), units)

    def _units_at_most(self, plan: Plan) -> int:
        pairs = zip(plan.dims, plan.unit, strict=True)
        return max(math.prod(self.located.touched[name].units(size) for name, size in pairs), 1)


def unit_number(plan: Plan) -> Column:
    """The number of the unit of a row that has its indices, in the order of units."""
    number = sql.lit(0).cast("long")
    for name, length, size in zip(plan.dims, plan.shape, plan.unit, strict=True):
        index = sql.col(quoted(index_column(name)))
        number = number * sql.lit(-(-length // size)) + sql.floor(index / sql.lit(size))
    return number


def _row_schema(plan: Plan, schema: pa.Schema) -> pa.Schema:
    """The columns of rows on their way to the tasks that write them."""
    short = max(plan.shape) < _MAX_SHORT
    indices = dict.fromkeys(map(index_column, plan.dims), pa.int32() if short else pa.int64())
    wanted = [*plan.columns, *({DELETE} & {*schema.names})]
    return pa.schema([(name, indices.get(name) or schema.field(name).type) for name in wanted])


def _remembered(written: WrittenChunks, sizes: BatchSizes) -> WrittenChunks:
    """What was written; the next batch expects as many units."""
    paths = pa.chunked_array([refs["path"] for refs in written.refs], pa.string())
    sizes.learn_units(pc.max(pc.value_counts(paths).field("counts")).as_py() or 0)
    return written
