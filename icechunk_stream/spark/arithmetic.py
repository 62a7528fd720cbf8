"""Indices along regular dimensions as expressions of Spark, where these are simple and exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as sql
from pyspark.sql.types import IntegerType, LongType, TimestampType

from icechunk_stream.spark.task_work import quoted
from icechunk_stream.stream.cf_time import nanoseconds
from icechunk_stream.stream.dimensions import Regular

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import Column, DataFrame

    from icechunk_stream.stream.axes import Axis

_NANOS = 1_000


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Labels ``low + n * step`` to ``low + n * step + slack`` have the index ``n``.

    They are integers, or times as counts of microseconds.
    """

    column: str
    is_time: bool
    low: int
    step: int
    slack: int

    @property
    def index(self) -> Column:
        above = self._above
        return sql.expr(f"({above} - pmod({above}, {self.step})) div {self.step}")

    @property
    def is_off(self) -> Column:
        """Whether a label is null, or has no index."""
        above = self._above
        off_grid = f"{above} < 0 or pmod({above}, {self.step}) > {self.slack}"
        return sql.coalesce(sql.expr(off_grid), sql.lit(True))

    def gives(self, labels: pa.ChunkedArray, indices: npt.NDArray[np.int64]) -> bool:
        """Whether labels have these indices by this arithmetic."""
        counts = labels.cast(pa.int64()).to_numpy()
        return np.array_equal((counts - self.low) // self.step, indices)

    @property
    def _above(self) -> str:
        column = quoted(self.column)
        count = f"unix_micros({column})" if self.is_time else column
        return f"(cast({count} as bigint) - {self.low})"


def arithmetic(rows: DataFrame, axis: Axis) -> Arithmetic | None:
    """That of an axis, if Spark can do it with the labels of the rows."""
    kind, grid = rows.schema[axis.column].dataType, _grid(axis.dimension)
    is_time = isinstance(kind, TimestampType)
    if grid is None or not (is_time or isinstance(kind, IntegerType | LongType)):
        return None
    return Arithmetic(axis.column, is_time, *grid)


def _grid(dimension: object) -> tuple[int, int, int] | None:
    """The lowest label of the first cell, the step, and the width of a cell, as Spark counts."""
    match dimension:
        case Regular(int(start), int(step), int(tolerance)):
            return start - tolerance, step, 2 * tolerance
        case Regular(np.datetime64() as start, np.timedelta64() as step, np.timedelta64() as off):
            spans: Any = (start, step, off)
            first, wide, slack = map(nanoseconds, spans)
            is_whole = not (first % _NANOS or wide % _NANOS or slack % _NANOS)
            low, step, width = first - slack, wide, 2 * slack
            return (low // _NANOS, step // _NANOS, width // _NANOS) if is_whole else None
        case _:
            return None
