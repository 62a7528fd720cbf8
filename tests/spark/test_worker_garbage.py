"""Workers are not looked through for garbage in what they have imported, task after task."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from icechunk_stream.spark import Rows, fixed, icechunk_sink, regular, worker_garbage
from icechunk_stream.spark.worker_garbage import settle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

LAYOUT = Rows({"time": regular(0, 1), "station": fixed(range(4))}, {"temp": "float64"})
COUNTS = "kept long, looked_through long"


@pytest.fixture
def own_workers(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark with workers that nothing else has run in: it keeps some for each environment."""
    environment = spark.sparkContext.environment
    environment["TESTS_OF"] = "garbage"
    yield spark
    del environment["TESTS_OF"]


def counts(spark: SparkSession) -> list[dict[str, int]]:
    """How many objects the worker of each of two tasks is done with, and how many it is not."""

    def count(batches: Any) -> Iterator[pa.RecordBatch]:
        list(batches)
        found = {"kept": [gc.get_freeze_count()], "looked_through": [len(gc.get_objects())]}
        yield pa.RecordBatch.from_pydict(found)

    rows: list[dict[str, int]] = (
        spark.range(0, 2, 1, 2).mapInArrow(count, COUNTS).toArrow().to_pylist()
    )
    return rows


def test_after_some_batches_next_to_nothing_is_looked_through(
    own_workers: SparkSession, tmp_path: Path
) -> None:
    sink = icechunk_sink(str(tmp_path), layout=LAYOUT, app_id="a", write_mode="executors")
    for number in range(4):
        times = own_workers.range(10 * number, 10 * number + 10, 1, 2)
        sink.write(times.selectExpr("id as time", "cast(id % 4 as int) station", "0.5d as temp"))
    for each in counts(own_workers):
        assert each["kept"] > worker_garbage._MANY
        assert each["looked_through"] < worker_garbage._MANY


def test_what_tasks_leave_later_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_garbage, "_MANY", 0)
    monkeypatch.setattr(worker_garbage, "_done", [])
    kept = []
    try:
        for _ in range(worker_garbage._TIMES + 2):
            garbage = [[number] for number in range(1_000)]
            settle()
            kept.append(gc.get_freeze_count())
            del garbage
    finally:
        gc.unfreeze()
    assert kept[-1] <= kept[-3]


def test_a_worker_that_has_little_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = gc.get_freeze_count()
    monkeypatch.setattr(worker_garbage, "_MANY", 10**9)
    settle()
    assert gc.get_freeze_count() == frozen
