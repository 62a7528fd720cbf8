"""Streams whose bad rows go to a Delta table, and whose batches come again."""

from __future__ import annotations

import os
import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
from pyspark.errors import StreamingQueryException

from icechunk_stream.spark import Quarantine, Rows, fixed, icechunk_sink, regular
from icechunk_stream.storage import local_filesystem_storage
from icechunk_stream.testing.storage_calls import Fail
from tests.spark.driver_storage import DriverStorage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from icechunk_stream.spark.sources import WriteMode
    from icechunk_stream.storage import Storage

pytestmark = pytest.mark.compat

START = datetime(2024, 1, 1, tzinfo=UTC)
STATIONS = ["ams", "ber"]
HOURS = 6
LAYOUT = Rows(
    dims={"time": regular("2024-01-01", "1h"), "station": fixed(STATIONS)},
    variables={"count": "int8"},
    chunks={"time": 4, "station": 2},
)
SCHEMA = pa.schema(
    [("time", pa.timestamp("us", "UTC")), ("station", pa.string()), ("count", pa.int64())]
)


def hour(number: float) -> datetime:
    return START + timedelta(hours=number)


def good_rows(batch: int) -> list[tuple[datetime, str, int]]:
    first = batch * HOURS
    hours = range(first, first + HOURS)
    return [(hour(at), name, at + 50 * row) for at in hours for row, name in enumerate(STATIONS)]


def bad_rows(batch: int) -> list[tuple[str, datetime, str | None, int]]:
    """Rows after the column that is to blame."""
    first = batch * HOURS
    return [
        ("station", hour(first), None, 1),
        ("station", hour(first), "cph", 2),
        ("time", hour(first + 0.5), "ams", 3),
        ("time", hour(-first - 1), "ams", 4),
        ("count", hour(first + 1), "ber", 1_000 + batch),
    ]


class Stream:
    """A folder of files, one micro-batch each, with rows that no array can hold."""

    def __init__(self, spark: SparkSession, folder: Path, mode: WriteMode = "driver") -> None:
        self.spark, self.mode, self.folder = spark, mode, folder
        self.checkpoint = folder / "checkpoint"
        self.bad = folder / "bad"
        self.sent = 0
        (folder / "source").mkdir()

    @property
    def storage(self) -> Storage:
        return local_filesystem_storage(str(self.folder / "repository"))

    def send(self) -> None:
        rows = good_rows(self.sent) + [row[1:] for row in bad_rows(self.sent)]
        order = np.random.default_rng(self.sent).permutation(len(rows))
        columns = zip(*(rows[at] for at in order), strict=True)
        path = self.folder / "source" / f"{self.sent:04}.parquet"
        pq.write_table(pa.table(list(columns), SCHEMA), path)
        # Spark takes files in the order of their times.
        os.utime(path, (1_700_000_000 + self.sent,) * 2)
        self.sent += 1

    def run(self, storage: Storage | None = None, **options: Any) -> None:
        """Take everything that was sent, and stop."""
        checkpoint = str(self.checkpoint)
        sink = icechunk_sink(
            storage or self.storage,
            layout=LAYOUT,
            app_id="obs",
            checkpoint_location=checkpoint,
            on_bad_rows=Quarantine(str(self.bad)),
            write_mode=self.mode,
            **options,
        )
        schema = "time timestamp, station string, count long"
        source = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        rows = source.parquet(str(self.folder / "source"))
        query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()

    def forget_commit(self, batch: int) -> None:
        """Let Spark not know how a batch ended."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink()

    def assert_arrays_hold(self, batches: int) -> None:
        """The reference reads the good rows of so many batches, without a warning."""
        place = icechunk.local_filesystem_storage(str(self.folder / "repository"))
        store = icechunk.Repository.open(place).readonly_session("main").store
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = xr.open_zarr(store, consolidated=False).load()
        good = [row for batch in range(batches) for row in good_rows(batch)]
        times = [np.datetime64(time.replace(tzinfo=None), "ns") for time, _, _ in good]
        assert found["time"].values.tolist() == np.unique(times).tolist()
        assert found["station"].values.tolist() == STATIONS
        assert found["count"].values.ravel().tolist() == [count for *_, count in good]

    def quarantined(self) -> list[tuple[Any, ...]]:
        """Which rows are kept, of which batch, and which column is to blame."""
        rows = self.spark.read.format("delta").load(str(self.bad))
        columns = ["batch_id", "bad_column", "time", "station", "count"]
        found = rows.select(*columns).toArrow().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)


def kept(batches: int) -> list[tuple[Any, ...]]:
    return sorted(((at, *row) for at in range(batches) for row in bad_rows(at)), key=repr)


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_bad_rows_are_kept_once_and_good_ones_written_once(
    spark: SparkSession, tmp_path: Path, mode: WriteMode
) -> None:
    stream = Stream(spark, tmp_path, mode)
    stream.send()
    stream.run()
    assert stream.quarantined() == kept(1)

    stream.send()
    failing = DriverStorage(stream.storage)
    failing.script.disturb(Fail(), method="put_if", times=100)
    with pytest.raises(StreamingQueryException):
        stream.run(failing)
    stream.assert_arrays_hold(1)
    assert stream.quarantined() == kept(2)

    stream.run()
    stream.assert_arrays_hold(2)
    stream.forget_commit(1)
    stream.send()
    stream.run()
    stream.assert_arrays_hold(3)
    assert stream.quarantined() == kept(3)


def test_a_row_in_quarantine_says_what_is_wrong_with_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path)
    stream.send()
    stream.run()
    rows = spark.read.format("delta").load(str(stream.bad)).toArrow()
    query_id = rows["query_id"][0].as_py()
    assert query_id in (stream.checkpoint / "metadata").read_text()
    assert set(rows["query_id"].to_pylist()) == {query_id}
    assert set(rows["app_id"].to_pylist()) == {"obs"}
    reasons = dict(zip(rows["count"].to_pylist(), rows["bad_reason"].to_pylist(), strict=True))
    assert reasons[1] == "is null"
    assert reasons[2] == "is not among those of the fixed dimension"
    assert reasons[3] == "lies between two grid points"
    assert reasons[4] == "lies before the start of the dimension"


def test_a_batch_with_too_many_bad_rows_fails_and_none_is_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path)
    stream.send()
    with pytest.raises(StreamingQueryException, match="max_bad_rows=4"):
        stream.run(max_bad_rows=4)
    assert not stream.bad.exists()
    stream.run(max_bad_rows=5)
    stream.assert_arrays_hold(1)
    assert stream.quarantined() == kept(1)
