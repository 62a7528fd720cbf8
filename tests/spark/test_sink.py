"""Streams on a real Spark, into repositories that the reference library opens."""

from __future__ import annotations

import os
import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
from pyspark.errors import StreamingQueryException

from icechunk_stream.spark import IcechunkSink, icechunk_sink
from icechunk_stream.stream.layout import Rows, append, regular
from icechunk_stream.stream.outcomes import Committed, Repeated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from icechunk_stream.spark.sources import WriteMode

pytestmark = pytest.mark.compat

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
STATIONS = ["ams", "ber", "cph"]
LAYOUT = Rows(
    dims={"time": regular("2024-01-01", "1h"), "station": append()},
    variables={"temp": "float32", "wind": "float64"},
    chunks={"time": 4, "station": 2},
)
SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("station", pa.string()),
        ("temp", pa.float32()),
        ("wind", pa.float64()),
    ]
)


class Stream:
    """A folder of files, one micro-batch each, and the query that reads them."""

    def __init__(
        self, spark: SparkSession, folder: Path, spec_version: int, write_mode: WriteMode
    ) -> None:
        self.spark = spark
        self.source, self.repository = folder / "source", folder / "repository"
        self.checkpoint = folder / "checkpoint"
        self.options: dict[str, Any] = {
            "checkpoint_location": str(self.checkpoint),
            "spec_version": spec_version,
            "write_mode": write_mode,
        }
        self.source.mkdir()
        self.sent: list[pa.Table] = []

    def send(self, rows: pa.Table) -> None:
        path = self.source / f"{len(self.sent):04}.parquet"
        pq.write_table(rows, path)
        # Spark takes files in the order of their times.
        os.utime(path, (1_700_000_000 + len(self.sent),) * 2)
        self.sent.append(rows)

    def sink(self, **options: Any) -> IcechunkSink:
        given = {"layout": LAYOUT, **self.options, **options}
        return icechunk_sink(str(self.repository), app_id="obs", **given)

    def rows(self) -> DataFrame:
        schema = "time timestamp, station string, temp float, wind double"
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.source))

    def run(self, sink: IcechunkSink, rows: DataFrame | None = None, mode: str = "append") -> None:
        """Take everything that was sent, and stop."""
        writer = (rows or self.rows()).writeStream.foreachBatch(sink).outputMode(mode)
        query = writer.option("checkpointLocation", str(self.checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    def forget_commit(self, batch: int) -> None:
        """Let Spark not know how a batch ended."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)

    def reference(self) -> icechunk.Repository:
        storage = icechunk.local_filesystem_storage(str(self.repository))
        return icechunk.Repository.open(storage)

    def read(self) -> xr.Dataset:
        """What the reference reads, without a warning."""
        store = self.reference().readonly_session("main").store
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found: xr.Dataset = xr.open_zarr(store, consolidated=False).load()
            return found

    def batches(self) -> list[int]:
        """The batch ids in the history, from the first to the last."""
        found = [each.metadata.get("icechunk_stream") for each in self.history()]
        return [each["batch_id"] for each in found if each][::-1]

    def history(self) -> Iterator[Any]:
        return iter(list(self.reference().ancestry(branch="main")))


@pytest.fixture(params=[(1, "driver"), (2, "executors"), (2, "auto")], ids=str)
def stream(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Stream:
    return Stream(spark, tmp_path, *request.param)


def observations(hours: range, stations: list[str], seed: int) -> pa.Table:
    """A value for every hour and station, in any order."""
    random = np.random.default_rng(seed)
    pairs = [(START + hour * HOUR, station) for hour in hours for station in stations]
    order = random.permutation(len(pairs))
    times, names = zip(*(pairs[at] for at in order), strict=True)
    temp = random.normal(10, 3, len(pairs)).astype("f4")
    return pa.table([times, names, temp, random.random(len(pairs))], SCHEMA)


def expected(tables: list[pa.Table]) -> xr.Dataset:
    """What xarray makes of all rows, the last one of each cell."""
    frame = pd.concat([table.to_pandas() for table in tables])
    frame["time"] = frame["time"].dt.tz_localize(None).dt.as_unit("ns")
    found: xr.Dataset = frame.groupby(["time", "station"]).last().to_xarray()
    return found


def assert_same(found: xr.Dataset, wanted: xr.Dataset) -> None:
    xr.testing.assert_equal(found.sortby("station"), wanted.sortby("station"))


def test_each_batch_is_one_snapshot_and_the_reference_reads_all_rows(stream: Stream) -> None:
    stream.send(observations(range(5), STATIONS[:2], seed=1))
    stream.send(observations(range(3, 9), STATIONS, seed=2))
    stream.send(observations(range(12, 13), STATIONS, seed=3))
    sink = stream.sink()
    stream.run(sink)
    wanted = expected(stream.sent)
    hours = pd.date_range("2024-01-01", periods=13, freq="h")
    assert_same(stream.read(), wanted.reindex(time=hours))
    assert stream.batches() == [0, 1, 2]
    assert isinstance(sink.last_commit, Committed)
    assert sink.last_commit.counts.written == 3


def test_a_restarted_query_goes_on(stream: Stream) -> None:
    for number in range(3):
        stream.send(observations(range(4 * number, 4 * number + 4), STATIONS, seed=number))
        stream.run(stream.sink())
    assert_same(stream.read(), expected(stream.sent))
    assert stream.batches() == [0, 1, 2]


def test_a_batch_whose_commit_spark_forgot_is_not_written_again(stream: Stream) -> None:
    for number in range(2):
        stream.send(observations(range(4 * number, 4 * number + 4), STATIONS, seed=number))
    stream.run(stream.sink())
    tip = next(stream.history()).id
    stream.forget_commit(1)
    sink = stream.sink()
    stream.run(sink)
    assert sink.last_commit == Repeated(1, tip)
    assert stream.batches() == [0, 1]
    assert_same(stream.read(), expected(stream.sent))


def test_replays_of_a_windowed_aggregation_do_not_fail_the_query(stream: Stream) -> None:
    layout = Rows(dims={"time": regular("2024-01-01", "2h")}, variables={"temp": "float64"})

    def windows() -> DataFrame:
        rows = stream.rows().selectExpr("window(time, '2 hours').start as time", "temp")
        return rows.groupBy("time").agg({"temp": "max"}).toDF("time", "temp")

    for number in range(3):
        stream.send(observations(range(2 * number, 2 * number + 4), STATIONS, seed=number))
        stream.run(stream.sink(layout=layout), windows(), "update")
        stream.forget_commit(number)
        stream.run(stream.sink(layout=layout), windows(), "update")
    frame = pd.concat([table.to_pandas() for table in stream.sent])
    frame["time"] = frame["time"].dt.tz_localize(None).dt.as_unit("ns").dt.floor("2h")
    wanted = frame.groupby("time")[["temp"]].max().astype("f8").to_xarray()
    xr.testing.assert_equal(stream.read(), wanted)
    assert stream.batches() == [0, 1, 2]


def test_a_fresh_checkpoint_is_refused(stream: Stream) -> None:
    stream.send(observations(range(4), STATIONS, seed=1))
    stream.run(stream.sink())
    stream.checkpoint.rename(stream.checkpoint.with_name("lost"))
    with pytest.raises(StreamingQueryException, match="StreamIdentityError"):
        stream.run(stream.sink())
    assert stream.batches() == [0]


def test_a_bad_row_fails_the_batch_and_nothing_is_committed(stream: Stream) -> None:
    bad = observations(range(4), STATIONS, seed=1).to_pandas()
    bad.loc[3, "station"] = None
    stream.send(pa.Table.from_pandas(bad, SCHEMA))
    with pytest.raises(StreamingQueryException, match="BadRowsError"):
        stream.run(stream.sink())
    assert stream.batches() == []
