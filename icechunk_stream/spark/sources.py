"""The rows of one micro-batch: taken by the driver, or left with the executors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyspark.sql.functions as sql

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.spark.tasks import RowsInTasks
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.stream.targets import DELETE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

    from icechunk_stream.stream.layout import Rows
    from icechunk_stream.stream.row_source import RowSource

WriteMode: TypeAlias = Literal["auto", "driver", "executors"]
# What the driver takes of a batch when it may choose.
_DRIVER_BYTES = 32 * 2**20
_TEXT_BYTES = 32


@contextmanager
def rows_of(df: DataFrame, layout: Rows, mode: WriteMode) -> Iterator[RowSource]:
    """The rows with the columns of a layout; they are the same in every pass over them."""
    chosen = _chosen(df, layout)
    taken = None if mode == "executors" else _taken(chosen, mode)
    if taken is not None:
        yield RowsInMemory(taken)
        return
    kept = chosen.persist()
    try:
        yield RowsInTasks(kept)
    finally:
        kept.unpersist()


def _taken(chosen: DataFrame, mode: WriteMode) -> pa.Table | None:
    """The rows in the driver; None where there are too many for it."""
    if mode == "driver":
        return chosen.toArrow()
    most = _DRIVER_BYTES // _row_bytes(chosen)
    table = chosen.limit(most + 1).toArrow()
    return table if len(table) <= most else None


def _row_bytes(df: DataFrame) -> int:
    """About how large a row is in memory."""
    return sum(_TEXT_BYTES if _is_text(field) else 8 for field in df.schema.fields) or 1


def _is_text(field: StructField) -> bool:
    return field.dataType.typeName() in {"string", "binary"}


def _chosen(df: DataFrame, layout: Rows) -> DataFrame:
    """The columns of a layout; rows that delete are marked."""
    missing = [name for name in layout.columns if name not in df.columns]
    if missing:
        message = (
            f"the stream has no columns {missing}: it has {df.columns}; select or rename columns,"
            " or name others in the layout with column=..."
        )
        raise InvalidInputError(message)
    chosen = [sql.col(f"`{name}`") for name in layout.columns]
    if layout.deletes is not None:
        # Where the predicate is unknown (null), the row deletes nothing.
        is_delete = sql.coalesce(sql.expr(layout.deletes), sql.lit(False))
        chosen.append(is_delete.alias(DELETE))
    return df.select(*chosen)


def drain(df: DataFrame) -> None:
    """Read all rows and keep none: a stateful query fails where its batch is not consumed."""
    df.write.format("noop").mode("overwrite").save()
