"""Indices along regular dimensions as expressions of Spark, where these are simple and exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as sql
from pyspark.sql.types import IntegerType, LongType, TimestampType

from icechunk_stream.spark.task_work import quoted
from icechunk_stream.stream.cf_time import nanoseconds
from icechunk_stream.stream.dimensions import Regular
from icechunk_stream.stream.targets import index_column

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import Column, DataFrame

    from icechunk_stream.stream.axes import Axis

_NANOS = 1_000


def arithmetic(rows: DataFrame, axis: Axis, found: pa.Table) -> Column | None:
    """The index of each row, where an expression gives it; ``found`` has all labels with theirs.

    The expression is computed for all of these labels, and must give the same.
    """
    grid = _grid(axis.dimension)
    kind = rows.schema[axis.column].dataType
    if grid is None or not isinstance(kind, TimestampType | IntegerType | LongType):
        return None
    low, step = grid
    indices = (_counts(found.column(axis.column)) - low) // step
    if not np.array_equal(indices, found.column(index_column(axis.name)).to_numpy()):
        return None
    column = quoted(axis.column)
    count = f"unix_micros({column})" if isinstance(kind, TimestampType) else column
    above = f"(cast({count} as bigint) - {low})"
    return sql.expr(f"({above} - pmod({above}, {step})) div {step}")


def _grid(dimension: object) -> tuple[int, int] | None:
    """The lowest label of the first cell and the step, as Spark counts; None where it cannot."""
    match dimension:
        case Regular(int(start), int(step), int(tolerance)):
            return start - tolerance, step
        case Regular(np.datetime64() as start, np.timedelta64() as step, np.timedelta64() as off):
            spans: Any = (start, step, off)
            first, wide, slack = map(nanoseconds, spans)
            is_whole = not (first % _NANOS or wide % _NANOS or slack % _NANOS)
            return ((first - slack) // _NANOS, wide // _NANOS) if is_whole else None
        case _:
            return None


def _counts(labels: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Labels as the integers that Spark makes of them."""
    counts: npt.NDArray[np.int64] = labels.cast(pa.int64()).to_numpy()
    return counts
