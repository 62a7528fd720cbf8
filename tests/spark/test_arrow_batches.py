"""Rows of a known size go to Python workers by number, and the session stays as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from icechunk_stream.spark.arrow_batches import RECORDS, counted_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MOST_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
NUMBERS = "cast(id as float) as v", "current_timestamp() as t", "cast(id as decimal(20, 3)) as d"


def lengths(df: DataFrame) -> list[int]:
    def count(batches: Any) -> Iterator[pa.RecordBatch]:
        yield from (pa.RecordBatch.from_pydict({"n": [len(batch)]}) for batch in batches)

    found: list[int] = df.mapInArrow(count, "n long").toArrow()["n"].to_pylist()
    return found


def limits(spark: SparkSession) -> list[str | None]:
    return [spark.conf.get(name, None) for name in (MOST_BYTES, MOST_RECORDS)]


def test_numbers_come_in_batches_of_so_many_rows(spark: SparkSession) -> None:
    rows = spark.range(0, 3 * RECORDS, 1, 1).selectExpr(*NUMBERS)
    before = limits(spark)
    with counted_rows(rows):
        assert lengths(rows) == [RECORDS] * 3
    assert limits(spark) == before


@pytest.mark.parametrize("column", ["repeat('x', 10) as s", "array(id) as a", "X'00' as b"])
def test_rows_that_may_be_long_are_measured_as_ever(spark: SparkSession, column: str) -> None:
    rows = spark.range(0, 3 * RECORDS, 1, 1).selectExpr("id", column)
    before = limits(spark)
    with counted_rows(rows):
        assert limits(spark) == before


def fail_inside(rows: DataFrame) -> None:
    with counted_rows(rows), counted_rows(rows):
        assert limits(rows.sparkSession)[1] == str(RECORDS)
        raise LookupError


def test_what_the_user_has_set_comes_back_even_after_a_failure(spark: SparkSession) -> None:
    rows = spark.range(5)
    spark.conf.set(MOST_RECORDS, "7")
    try:
        with pytest.raises(LookupError):
            fail_inside(rows)
        assert limits(spark)[1] == "7"
    finally:
        spark.conf.unset(MOST_RECORDS)


def test_a_session_that_may_not_be_configured_is_used_as_it_is(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PySparkException("this is not available here")

    rows = spark.range(0, 3 * RECORDS, 1, 1)
    for name in ("set", "get"):
        monkeypatch.setattr(type(spark.conf), name, refuse)
        with counted_rows(rows):
            assert sum(lengths(rows)) == 3 * RECORDS
