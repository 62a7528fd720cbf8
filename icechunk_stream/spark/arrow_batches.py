"""How many rows at a time Spark hands to Python workers."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.conf import RuntimeConfig
    from pyspark.sql.types import DataType, StructType

RECORDS = 4_096
# As many as Spark itself allows a batch.
BATCH_BYTES = 64 * 2**20
_LIMITS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(RECORDS),
    # What Spark takes for no limit.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
_WIDTHS = {
    BooleanType: 1,
    ByteType: 1,
    ShortType: 2,
    IntegerType: 4,
    FloatType: 4,
    DateType: 4,
    LongType: 8,
    DoubleType: 8,
    TimestampType: 8,
    TimestampNTZType: 8,
    DecimalType: 16,
}


@contextmanager
def counted_rows(df: DataFrame) -> Iterator[None]:
    """In this block rows of a known size go to Python workers by number.

    By default Spark measures the whole batch anew for each row that it adds: that takes twice as
    long as all the rest of the way. Where others use the session meanwhile, or may not configure
    it, rows are measured after all.
    """
    width = row_width(df.schema)
    if width is None or width * RECORDS > BATCH_BYTES:
        yield
        return
    conf = df.sparkSession.conf
    before = _values(conf)
    if before is None or before == _LIMITS:
        yield
        return
    try:
        _set(conf, _LIMITS)
        yield
    finally:
        _set(conf, before)


def _values(conf: RuntimeConfig) -> dict[str, str | None] | None:
    """What the session has of the limits; None where it does not tell."""
    try:
        return {name: conf.get(name, None) for name in _LIMITS}
    except PySparkException:
        return None


def _set(conf: RuntimeConfig, values: Mapping[str, str | None]) -> None:
    with suppress(PySparkException):
        for name, value in values.items():
            if value is None:
                conf.unset(name)
            else:
                conf.set(name, value)


def row_width(schema: StructType) -> int | None:
    """Bytes of a row; None where some rows are longer than others."""
    widths = [width_of(field.dataType) for field in schema.fields]
    known = [width for width in widths if width is not None]
    return sum(known) if len(known) == len(widths) else None


def width_of(kind: DataType) -> int | None:
    """Bytes of a value; None where some values are longer than others."""
    return _WIDTHS.get(type(kind))
