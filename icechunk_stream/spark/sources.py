"""The rows of one micro-batch: taken by the driver, or left with the executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import pyspark.sql.functions as sql

from icechunk_stream.errors import InvalidInputError, StreamError
from icechunk_stream.spark.planned_bytes import planned_bytes
from icechunk_stream.spark.stages import stage
from icechunk_stream.spark.task_work import quoted
from icechunk_stream.spark.tasks import RowsInTasks
from icechunk_stream.spark.unit_jobs import SMALLER_BATCHES
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.stream.targets import DELETE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from icechunk_stream.spark.batch_sizes import BatchSizes
    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.layout import Rows
    from icechunk_stream.stream.row_source import PlacedSource, RowSource

WriteMode: TypeAlias = Literal["auto", "driver", "executors"]
# Where Spark puts the number of a row within its partition.
_ROW_BITS = (1 << 33) - 1
_TOO_LARGE = "spark.driver.maxResultSize"


class BatchRows:
    """The rows with the columns of a layout; they are taken when they are first asked for.

    Where the driver takes them they are the same in every pass over them.
    """

    def __init__(self, df: DataFrame, layout: Rows, mode: WriteMode, sizes: BatchSizes) -> None:
        self._df = df
        self._layout = layout
        self._mode = mode
        self._sizes = sizes
        self._source: RowSource | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._taken().schema

    @property
    def is_empty(self) -> bool:
        return self._taken().is_empty

    def place(self, axes: Sequence[Axis]) -> PlacedSource:
        return self._taken().place(axes)

    def _taken(self) -> RowSource:
        if self._source is None:
            chosen = _chosen(self._df, self._layout)
            table = self._to_driver(chosen) if self._is_for_driver else None
            self._source = self._in_tasks(chosen) if table is None else RowsInMemory(table)
        return self._source

    @property
    def _is_for_driver(self) -> bool:
        is_large = self._sizes.are_small is False
        return self._mode == "driver" or (self._mode == "auto" and not is_large)

    def _in_tasks(self, chosen: DataFrame) -> RowsInTasks:
        if self._mode == "driver":
            raise StreamError(f"the batch is larger than {_TOO_LARGE} allows: {SMALLER_BATCHES}")
        return RowsInTasks(chosen, self._sizes)

    def _to_driver(self, chosen: DataFrame) -> pa.Table | None:
        """The rows in the driver; None where there are too many for it."""
        with stage(chosen, "take rows"):
            takes_all = self._mode == "driver"
            table = _unless_refused(chosen) if takes_all else self._if_small(chosen)
        if table is not None:
            self._sizes.learn(table)
        return table

    def _if_small(self, chosen: DataFrame) -> pa.Table | None:
        """What is there is counted only where no batch before tells how much it may be."""
        if self._sizes.are_small is None:
            self._sizes.measure(chosen)
        most = self._sizes.most_rows
        if not self._sizes.are_small or most is None:
            return None
        if not self._sizes.surely_fit(planned_bytes(chosen)):
            # Spark compiles a plan anew for another number, and this one seldom changes.
            chosen = _first(chosen, 1 << most.bit_length())
        table = _unless_refused(chosen)
        return None if table is None or len(table) > most else table


def _first(chosen: DataFrame, count: int) -> DataFrame:
    """Up to so many rows of each partition; a limit of all of them would move them into one."""
    # In Spark's words: each function of its Python is some calls to the JVM.
    return chosen.where(f"(monotonically_increasing_id() & {_ROW_BITS}) < {count}")


def _unless_refused(chosen: DataFrame) -> pa.Table | None:
    """All rows; None where Spark finds them too large for the driver."""
    try:
        return chosen.toArrow()
    except Exception as error:
        if _TOO_LARGE in str(error):
            return None
        raise


def _chosen(df: DataFrame, layout: Rows) -> DataFrame:
    """The columns of a layout; rows that delete are marked."""
    missing = [name for name in layout.columns if name not in df.columns]
    if missing:
        message = (
            f"the stream has no columns {missing}: it has {df.columns}; select or rename columns,"
            " or name others in the layout with column=..."
        )
        raise InvalidInputError(message)
    if list(layout.columns) == df.columns and layout.deletes is None:
        return df
    chosen = [sql.col(quoted(name)) for name in layout.columns]
    if layout.deletes is not None:
        # Where the predicate is unknown (null), the row deletes nothing.
        is_delete = sql.coalesce(sql.expr(layout.deletes), sql.lit(False))
        chosen.append(is_delete.alias(DELETE))
    return df.select(*chosen)


def drain(df: DataFrame) -> None:
    """Read all rows and keep none: a stateful query fails where its batch is not consumed."""
    df.write.format("noop").mode("overwrite").save()
