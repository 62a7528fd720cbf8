"""Numbered things come to Spark's partitions in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark.sql.functions as sql
import pytest

from icechunk_stream.spark.even_partitions import in_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_each_partition_gets_as_many_numbers_as_the_others(spark: SparkSession, count: int) -> None:
    numbers = spark.range(count * 4).repartition(count, in_turn("id", count))
    found = numbers.groupBy(sql.spark_partition_id().alias("at")).count().collect()
    assert [row["count"] for row in found] == [4] * count
