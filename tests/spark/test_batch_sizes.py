"""How much of a batch comes to the driver before it is known to be too large for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from icechunk_stream.spark import Rows, batch_sizes, fixed, regular, sources
from icechunk_stream.spark.batch_sizes import BatchSizes
from icechunk_stream.spark.planned_bytes import planned_bytes
from icechunk_stream.spark.sources import BatchRows
from icechunk_stream.spark.tasks import RowsInTasks
from icechunk_stream.stream.row_source import RowsInMemory

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

LAYOUT = Rows({"time": regular(0, 1), "station": fixed(["a"])}, {"temp": "float64"})
# Two numbers of eight bytes, and a text of ten with its place.
ROW_BYTES = 8 + 8 + 10 + 8
PARTITIONS = 20


@pytest.fixture
def taken(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows came to the driver, each time that some did."""
    found: list[int] = []
    kind = type(spark.range(0))
    to_arrow = kind.toArrow

    def count(df: DataFrame) -> object:
        table = to_arrow(df)
        found.append(len(table))
        return table

    monkeypatch.setattr(kind, "toArrow", count)
    return found


def rows_of(spark: SparkSession, count: int, *, skewed: bool = False) -> DataFrame:
    """Rows in many partitions, or in one of them."""
    columns = "id as time", "'0123456789' as station", "id * 0.5d as temp"
    df = spark.range(0, count, 1, PARTITIONS).selectExpr(*columns)
    return df.repartition(PARTITIONS, "station") if skewed else df


def take(df: DataFrame, sizes: BatchSizes) -> type:
    rows = BatchRows(df, LAYOUT, "auto", sizes)
    return type(rows._taken())


@pytest.mark.parametrize("skewed", [False, True])
def test_a_first_batch_that_is_too_large_stays_where_it_is(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, taken: list[int], skewed: bool
) -> None:
    monkeypatch.setattr(batch_sizes, "DRIVER_BYTES", ROW_BYTES * 1_000)
    assert take(rows_of(spark, 1_001, skewed=skewed), BatchSizes()) is RowsInTasks
    assert taken == []
    assert take(rows_of(spark, 1_000, skewed=skewed), BatchSizes()) is RowsInMemory
    assert taken == [1_000]


def test_a_batch_that_is_larger_than_those_before_comes_in_part_at_most(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    monkeypatch.setattr(batch_sizes, "DRIVER_BYTES", 64 * 1_000)
    sizes = BatchSizes()
    assert take(rows_of(spark, 10), sizes) is RowsInMemory
    assert take(rows_of(spark, 1_000_000, skewed=True), sizes) is RowsInTasks
    assert taken[0] == 10
    assert taken[1] < 10_000


def test_files_that_are_small_enough_are_taken_without_a_limit(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, taken: list[int]
) -> None:
    limits: list[int] = []

    def limited(df: DataFrame, count: int) -> DataFrame:
        limits.append(count)
        return first(df, count)

    def in_files(count: int) -> DataFrame:
        path = str(tmp_path / str(len(taken)))
        rows_of(spark, count).coalesce(1).write.parquet(path, "overwrite")
        return spark.read.parquet(path)

    first = sources._first
    monkeypatch.setattr(sources, "_first", limited)
    monkeypatch.setattr(batch_sizes, "DRIVER_BYTES", 2**20)
    # One that is not small after all goes to tasks, as those after it do.
    counts = [10, 10_000, 100_000, 10]
    sizes = BatchSizes()
    found = []
    for count in counts:
        found.append((take(in_files(count), sizes), len(limits)))
        sizes.rows = count
    tasks, memory = RowsInTasks, RowsInMemory
    assert found == [(memory, 0), (memory, 1), (tasks, 2), (tasks, 2)]
    assert taken[:2] == [10, 10_000]
    assert taken[2] < 100_000


class Unasked:
    """Rows as Spark Connect has them, without a plan, or a cluster that keeps it to itself."""

    def __init__(self, **hidden: object) -> None:
        self.__dict__ |= hidden


@pytest.mark.parametrize("rows", [Unasked(), Unasked(_jdf=None), Unasked(_jdf=Unasked())])
def test_where_the_plan_cannot_be_asked_no_batch_is_known_to_fit(rows: Any) -> None:
    assert planned_bytes(rows) is None
    sizes = BatchSizes(row_bytes=40, rows=10)
    assert not sizes.surely_fit(None)
    assert sizes.surely_fit(40)


def test_what_was_seen_of_batches_tells_of_the_next_one(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    monkeypatch.setattr(batch_sizes, "DRIVER_BYTES", 64 * 1_000)
    sizes = BatchSizes()
    kinds = []
    for count in (5, 5_000, 5_000, 5, 5):
        kinds.append(take(rows_of(spark, count), sizes))
        # As the sink learns from what became of the batch.
        sizes.rows = count
    tasks, memory = RowsInTasks, RowsInMemory
    assert kinds == [memory, tasks, tasks, tasks, memory]
