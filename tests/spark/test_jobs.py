"""Batches of plain jobs, and batches that go on without their bad rows, in every mode."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pyarrow as pa
import pytest
import zarr

from icechunk_stream.errors import BadRowsError, InvalidInputError, StreamGapError
from icechunk_stream.spark import IcechunkSink, Rows, append, fixed, icechunk_sink, regular
from icechunk_stream.spark.stages import stage
from icechunk_stream.stream.outcomes import Committed, Repeated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.compat

LAYOUT = Rows(
    dims={
        "time": regular("2024-01-01", "1h"),
        "station": fixed(["ams", "ber"]),
        "run": append(on_late="quarantine"),
    },
    variables={"count": "int16", "share": "float32"},
)
HOURS = [datetime(2024, 1, 1, hour) for hour in range(4)]  # noqa: DTZ001
HALF_PAST = datetime(2024, 1, 1, 0, 30)  # noqa: DTZ001
ROWS: list[tuple[Any, ...]] = [
    (HOURS[0], "ams", 5, 1, 0.5),
    (HALF_PAST, "ams", 6, 2, 0.5),
    (HOURS[1], "cph", 7, 3, 0.5),
    (HOURS[1], "ber", 5, 100_000, 0.5),
    (None, "ber", 8, 5, 0.5),
    (HOURS[2], "ams", 5, 6, None),
]
DDL = "time timestamp, station string, run long, count int, share float"


def rows(spark: SparkSession, given: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(given, DDL)


def sink(folder: Path, mode: str, **options: Any) -> IcechunkSink:
    given = {"layout": LAYOUT, "app_id": "obs", "write_mode": mode, **options}
    return icechunk_sink(str(folder), **given)


def counts(folder: Path) -> list[Any]:
    storage = icechunk.local_filesystem_storage(str(folder))
    store = icechunk.Repository.open(storage).readonly_session("main").store
    found: list[Any] = np.asarray(zarr.open_group(store, mode="r")["count"])[:, :, 0].tolist()
    return found


@pytest.mark.parametrize("mode", ["driver", "executors", "auto"])
def test_bad_rows_are_dropped_and_counted(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    outcome = sink(tmp_path, mode, on_bad_rows="drop").write(rows(spark, ROWS))
    assert isinstance(outcome, Committed)
    found = outcome.counts
    assert (found.received, found.written, found.bad, found.late) == (6, 2, 4, 0)
    assert counts(tmp_path) == [[1, 0], [0, 0], [6, 0]]


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_too_many_bad_rows_fail_the_batch_and_are_named(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    with pytest.raises(BadRowsError, match="station' is not among those of the fixed") as caught:
        sink(tmp_path, mode, on_bad_rows="drop", max_bad_rows=2).write(rows(spark, ROWS))
    assert "max_bad_rows=2" in caught.value.message


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_late_rows_are_counted_apart(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    writer = sink(tmp_path, mode, on_bad_rows="drop")
    writer.write(rows(spark, ROWS))
    late = [(HOURS[0], "ams", 4, 9, 0.5), (HOURS[0], "ams", 9, 9, 0.5)]
    outcome = writer.write(rows(spark, late))
    assert isinstance(outcome, Committed)
    assert (outcome.counts.late, outcome.counts.bad, outcome.counts.written) == (1, 0, 1)


def test_jobs_count_their_batches(spark: SparkSession, tmp_path: Path) -> None:
    good = ROWS[:1]
    writer = sink(tmp_path, "auto")
    first = writer.write(rows(spark, good))
    second = writer.write(rows(spark, good))
    assert [first.batch_id, second.batch_id] == [0, 1]
    assert isinstance(second, Committed)
    assert writer.write(rows(spark, good), batch_id=1) == Repeated(1, second.snapshot_id)
    assert sink(tmp_path, "auto").write(rows(spark, good)).batch_id == 2
    with pytest.raises(StreamGapError):
        writer.write(rows(spark, good), batch_id=9)


def test_a_sink_without_a_query_says_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"checkpoint_location.*sink\.write"):
        sink(tmp_path, "auto")(rows(spark, ROWS), 0)


def test_an_unknown_way_with_bad_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="on_bad_rows is 'ignore'"):
        sink(tmp_path, "auto", on_bad_rows="ignore")


def test_jobs_of_a_batch_have_names(spark: SparkSession) -> None:
    def described(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - in a task

        context = TaskContext.get()
        assert context is not None
        yield pa.RecordBatch.from_pydict({"name": [context.getLocalProperty(KEY)]})

    df = spark.range(1).mapInArrow(described, "name string")
    with stage(df, "write chunks"):
        assert df.collect()[0].name == "write chunks"
    assert df.collect()[0].name is None


KEY = "spark.job.description"
