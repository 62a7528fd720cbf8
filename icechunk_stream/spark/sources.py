"""The rows of one micro-batch: taken by the driver, or left with the executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyspark.sql.functions as sql
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    FloatType,
    IntegerType,
    ShortType,
    StringType,
)

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.spark.stages import stage
from icechunk_stream.spark.task_work import quoted
from icechunk_stream.spark.tasks import RowsInTasks
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.stream.targets import DELETE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from icechunk_stream.stream.axes import Axis
    from icechunk_stream.stream.layout import Rows
    from icechunk_stream.stream.row_source import PlacedSource, RowSource

WriteMode: TypeAlias = Literal["auto", "driver", "executors"]
# What the driver takes of a batch when it may choose.
DRIVER_BYTES = 32 * 2**20
_WIDTHS = {BooleanType: 1, ByteType: 1, ShortType: 2, IntegerType: 4, FloatType: 4, DateType: 4}
_OTHER_WIDTH = 8
_LONG = (StringType, BinaryType)
_TOO_LARGE = "spark.driver.maxResultSize"


@dataclass(slots=True)
class BatchSizes:
    """What the batches before tell of the next one."""

    row_bytes: float | None = None
    total_bytes: int | None = None

    @property
    def are_small(self) -> bool:
        """Whether the next one may be taken without looking at its size first."""
        return self.total_bytes is not None and self.total_bytes <= DRIVER_BYTES // 4

    def learn(self, table: pa.Table) -> None:
        self.total_bytes = table.nbytes
        if len(table):
            self.row_bytes = table.nbytes / len(table)


class BatchRows:
    """The rows with the columns of a layout; they are taken when they are first asked for.

    They are the same in every pass over them. Closing lets go of what Spark keeps of them.
    """

    def __init__(self, df: DataFrame, layout: Rows, mode: WriteMode, sizes: BatchSizes) -> None:
        self._df = df
        self._layout = layout
        self._mode = mode
        self._sizes = sizes
        self._source: RowSource | None = None
        self._persisted: DataFrame | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._taken().schema

    @property
    def is_empty(self) -> bool:
        return self._taken().is_empty

    def place(self, axes: Sequence[Axis]) -> PlacedSource:
        return self._taken().place(axes)

    def close(self) -> None:
        if self._persisted is not None:
            self._persisted.unpersist()

    def _taken(self) -> RowSource:
        if self._source is None:
            chosen = _chosen(self._df, self._layout)
            table = None if self._mode == "executors" else self._to_driver(chosen)
            self._source = self._in_tasks(chosen) if table is None else RowsInMemory(table)
        return self._source

    def _in_tasks(self, chosen: DataFrame) -> RowsInTasks:
        self._persisted = chosen.persist()
        return RowsInTasks(self._persisted)

    def _to_driver(self, chosen: DataFrame) -> pa.Table | None:
        """The rows in the driver; None where there are too many for it."""
        with stage(chosen, "take rows"):
            table = chosen.toArrow() if self._mode == "driver" else self._if_small(chosen)
        if table is not None:
            self._sizes.learn(table)
        return table

    def _if_small(self, chosen: DataFrame) -> pa.Table | None:
        if self._sizes.are_small:
            return _unless_refused(chosen)
        most = int(DRIVER_BYTES // self._row_bytes(chosen))
        table = chosen.limit(most + 1).toArrow()
        return table if len(table) <= most else None

    def _row_bytes(self, chosen: DataFrame) -> float:
        """About how large a row is in memory."""
        if self._sizes.row_bytes is not None:
            return max(self._sizes.row_bytes, 1)
        kinds = [field.dataType for field in chosen.schema.fields]
        fixed = sum(_WIDTHS.get(type(kind), _OTHER_WIDTH) for kind in kinds)
        return max(fixed + _long_bytes(chosen), 1)


def _unless_refused(chosen: DataFrame) -> pa.Table | None:
    """All rows; None where Spark finds them too large for the driver."""
    try:
        return chosen.toArrow()
    except Exception as error:
        if _TOO_LARGE in str(error):
            return None
        raise


def _long_bytes(chosen: DataFrame) -> float:
    """The mean length of what is in the columns of any length."""
    long = [field.name for field in chosen.schema.fields if isinstance(field.dataType, _LONG)]
    if not long:
        return 0
    lengths = [sql.coalesce(sql.octet_length(quoted(name)), sql.lit(0)) for name in long]
    row = chosen.select(*map(sql.avg, lengths)).first()
    return 0 if row is None else sum(float(mean or 0) for mean in row)


def _chosen(df: DataFrame, layout: Rows) -> DataFrame:
    """The columns of a layout; rows that delete are marked."""
    missing = [name for name in layout.columns if name not in df.columns]
    if missing:
        message = (
            f"the stream has no columns {missing}: it has {df.columns}; select or rename columns,"
            " or name others in the layout with column=..."
        )
        raise InvalidInputError(message)
    chosen = [sql.col(quoted(name)) for name in layout.columns]
    if layout.deletes is not None:
        # Where the predicate is unknown (null), the row deletes nothing.
        is_delete = sql.coalesce(sql.expr(layout.deletes), sql.lit(False))
        chosen.append(is_delete.alias(DELETE))
    return df.select(*chosen)


def drain(df: DataFrame) -> None:
    """Read all rows and keep none: a stateful query fails where its batch is not consumed."""
    df.write.format("noop").mode("overwrite").save()
