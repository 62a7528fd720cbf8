"""Streams on a real Spark, into repositories that the reference library opens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
from pyspark.errors import StreamingQueryException

from icechunk_stream.stream.layout import Rows, regular
from icechunk_stream.stream.outcomes import Committed, Repeated
from tests.spark.observed_stream import SCHEMA, Stream, observations

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.compat

STATIONS = ["ams", "ber", "cph"]


@pytest.fixture(params=[(1, "driver"), (2, "executors"), (2, "auto")], ids=str)
def stream(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Stream:
    return Stream(spark, tmp_path, *request.param)


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
