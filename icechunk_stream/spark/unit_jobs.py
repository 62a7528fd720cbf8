"""The job that makes chunks of rows: those of one unit come to one task, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PythonException

from icechunk_stream.spark.carried import carried
from icechunk_stream.spark.even_partitions import in_turn
from icechunk_stream.spark.parcels import unpacked
from icechunk_stream.spark.task_work import REPORT, quoted
from icechunk_stream.stream.dimensions import Regular
from icechunk_stream.stream.placement import label_column
from icechunk_stream.stream.rejected import bad_rows_of
from icechunk_stream.stream.row_source import Rejected, WrittenChunks
from icechunk_stream.stream.targets import UNIT, index_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from icechunk_stream.spark.task_work import UnitWriter
    from icechunk_stream.stream.axes import Axis

SMALLER_BATCHES = (
    "keep batches below 32 MiB or so: lower maxOffsetsPerTrigger (Kafka), maxFilesPerTrigger or"
    " maxBytesPerTrigger of the source"
)
_IF_TASKS_CANNOT = (
    "Tasks of executors make chunks of a batch that is too large for the driver. Where they have no"
    f" way to the storage, give write_mode='driver', and {SMALLER_BATCHES}"
)


@dataclass(frozen=True, slots=True, eq=False)
class Reports:
    """What the tasks of one plan tell."""

    dims: tuple[str, ...]
    table: pa.Table

    def total(self, name: str) -> int:
        return int(sum(number.as_py() for number in self.table[name]))

    def unpacked(self, name: str) -> list[pa.RecordBatch]:
        return [unpacked(data.as_py()) for data in self.table[name] if data.is_valid]

    @property
    def reached(self) -> dict[str, int]:
        """The highest index of all rows along each dimension; -1 where there are none."""
        rows = [row for row in self.table["reached"].to_pylist() if row]
        return {
            name: max((row[at] for row in rows), default=-1) for at, name in enumerate(self.dims)
        }


def write_units(rows: DataFrame, work: UnitWriter, units: int) -> Reports:
    """Store units of rows, or of parcels, that have the number of their unit.

    ``units`` tells how many there are at most, or about: more tasks would have nothing to do.
    """
    partitions = rows.sparkSession.conf.get("spark.sql.shuffle.partitions")
    count = min(units, int(partitions or 1))
    by_unit = rows.repartition(count, in_turn(quoted(UNIT), count)).sortWithinPartitions(
        quoted(UNIT)
    )
    try:
        return Reports(work.plan.dims, by_unit.mapInArrow(carried(work), REPORT).toArrow())
    except PythonException as error:
        error.add_note(_IF_TASKS_CANNOT)
        raise


def gathered(reports: Sequence[Reports], axes: Sequence[Axis], schema: pa.Schema) -> WrittenChunks:
    """What the tasks of all plans tell together; ``axes`` grow as far as rows reached."""
    unplaced = [
        pa.Table.from_batches([rows]) for each in reports for rows in each.unpacked("unplaced")
    ]
    rejected = [
        _with_labels(pa.Table.from_batches([rows]), each.dims, axes, schema)
        for each in reports
        for rows in each.unpacked("rejected")
    ]
    tables = (*unplaced, *rejected)
    return WrittenChunks(
        refs=tuple(refs for each in reports for refs in each.unpacked("refs")),
        axes=tuple(_reached(axis, reports) for axis in axes),
        received=max(each.total("received") for each in reports) + sum(map(len, unplaced)),
        written=max(each.total("written") for each in reports),
        duplicates=max(each.total("duplicates") for each in reports),
        rejected=Rejected(bad_rows_of(tables), tables),
    )


def _reached(axis: Axis, reports: Sequence[Reports]) -> Axis:
    if not isinstance(axis.dimension, Regular):
        return axis
    last = max(each.reached.get(axis.name, -1) for each in reports)
    return axis.resized(max(axis.size, last + 1))


def _with_labels(
    rows: pa.Table, dims: Sequence[str], axes: Sequence[Axis], schema: pa.Schema
) -> pa.Table:
    """Rows with values that cannot be stored; their labels are found by their indices."""
    for axis in axes:
        if axis.name in dims:
            indices = rows.column(index_column(axis.name)).to_numpy()
            labels = label_column(axis, indices).cast(schema.field(axis.column).type)
            rows = rows.append_column(axis.column, labels)
    return rows
