"""What batches tell of those after them: how large they are, which decides who writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyspark.sql.functions as sql
from pyspark.sql.types import BinaryType, StringType

from icechunk_stream.spark.arrow_batches import width_of
from icechunk_stream.spark.task_work import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# What the driver takes of a batch when it may choose.
DRIVER_BYTES = 32 * 2**20
# Files hardly hold rows of different cells in a smaller part of the memory that they take.
_PACKED = 64
# Where a long value lies takes that much, and what is nested is guessed.
_OTHER_WIDTH = 8
_LONG = (StringType, BinaryType)


@dataclass(slots=True)
class BatchSizes:
    """What the batches before tell of the next one."""

    row_bytes: float | None = None
    rows: int | None = None
    # How many units tasks may expect.
    units: int | None = None
    _schemas: tuple[StructType, pa.Schema] | None = None

    @property
    def are_small(self) -> bool | None:
        """Whether the driver takes the next one as it is; None where nothing is known."""
        if self.rows is None or self.row_bytes is None:
            return None
        return self.rows * self.row_bytes <= DRIVER_BYTES

    def surely_fit(self, planned: int | None) -> bool:
        """Whether the driver takes all of a batch that Spark's plan says to be so large."""
        return bool(self.are_small) and planned is not None and planned * _PACKED <= DRIVER_BYTES

    @property
    def most_rows(self) -> int | None:
        """How many the driver takes; None where nothing is known."""
        return None if self.row_bytes is None else int(DRIVER_BYTES // self.row_bytes)

    def schema(self, chosen: DataFrame) -> pa.Schema:
        """That of the rows in Arrow; Spark is asked by a job."""
        known, given = self._schemas, chosen.schema
        if known is None or known[0] != given:
            known = (given, chosen.limit(0).toArrow().schema)
            self._schemas = known
        return known[1]

    def learn(self, table: pa.Table) -> None:
        self.rows = len(table)
        if len(table):
            self.row_bytes = max(table.nbytes / len(table), 1)

    def learn_units(self, count: int) -> None:
        """One small batch does not stand for all that follow."""
        self.units = max(count, (self.units or 0) // 2, 1)

    def measure(self, chosen: DataFrame) -> None:
        """Count rows, and about how large one is in memory; this reads all of them."""
        kinds = {field.name: field.dataType for field in chosen.schema.fields}
        long = [sql.octet_length(quoted(name)) for name in kinds if isinstance(kinds[name], _LONG)]
        count, *lengths = chosen.agg(sql.count(sql.lit(1)), *map(sql.avg, long)).collect()[0]
        fixed = sum(width_of(kind) or _OTHER_WIDTH for kind in kinds.values())
        self.rows, self.row_bytes = count, fixed + sum(float(mean or 0) for mean in lengths)
