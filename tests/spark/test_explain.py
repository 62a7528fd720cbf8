"""What a batch of a DataFrame is said to do, against what the stream then does with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.spark import Rows, append, icechunk_sink, regular
from icechunk_stream.stream.outcomes import Committed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from icechunk_stream.spark import IcechunkSink
    from icechunk_stream.spark.sources import WriteMode

START, HOUR = datetime(2024, 1, 1, tzinfo=UTC), timedelta(hours=1)
STATIONS = [f"s{number}" for number in range(9)]
LAYOUT = Rows(
    dims={"time": regular("2024-01-01", "1h"), "station": append()},
    variables={"temp": "float32", "wind": "float64"},
    chunks={"time": 20, "station": 4},
)
COLUMNS = "time timestamp, station string, temp float, wind double"


def table(hours: range, stations: list[str], wind: float | None = 1.0) -> pa.Table:
    """Two rows for each hour and station, which say the same."""
    pairs = [(START + hour * HOUR, name) for hour in hours for name in stations] * 2
    times, names = zip(*pairs, strict=True)
    types = [pa.timestamp("us", tz="UTC"), pa.string(), pa.float32(), pa.float64()]
    values = [times, names, [0.5] * len(pairs), [wind] * len(pairs)]
    schema = pa.schema(zip(["time", "station", "temp", "wind"], types, strict=True))
    return pa.table(values, schema=schema)


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=["driver", "executors"])
def write_mode(request: pytest.FixtureRequest) -> WriteMode:
    mode: WriteMode = request.param
    return mode


@pytest.fixture
def make_sink(tmp_path: Path, write_mode: WriteMode) -> Callable[[], IcechunkSink]:
    def make() -> IcechunkSink:
        return icechunk_sink(
            str(tmp_path / "repository"),
            layout=LAYOUT,
            app_id="obs",
            checkpoint_location=str(tmp_path / "checkpoint"),
            write_mode=write_mode,
        )

    return make


def run(spark: SparkSession, folder: Path, sink: IcechunkSink) -> None:
    """Take all files that are there."""
    rows = spark.readStream.schema(COLUMNS).parquet(str(folder / "source"))
    query = rows.writeStream.foreachBatch(sink)
    query = query.option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def test_the_stream_does_what_was_said_of_its_batches(
    spark: SparkSession, tmp_path: Path, make_sink: Callable[[], IcechunkSink]
) -> None:
    repository, source = tmp_path / "repository", tmp_path / "source"
    source.mkdir()
    # Seven of nine stations, in two chunks of which the second is not full; then all of them.
    given = [table(range(15), STATIONS[:7]), table(range(10, 30), STATIONS, wind=None)]
    wanted = [(4, 0), (6, 2)]
    for number, rows in enumerate(given):
        path = source / f"{number}.parquet"
        pq.write_table(rows, path)
        said = make_sink().explain(spark.read.schema(COLUMNS).parquet(str(path)))
        assert repository.exists() == bool(number)
        before = files(repository)
        sink = make_sink()
        run(spark, tmp_path, sink)
        assert isinstance(sink.last_commit, Committed)
        assert said.commit.batch_id == sink.last_commit.batch_id == number
        assert said.rows == sink.last_commit.counts.received == len(rows)
        assert said.chunks == sink.last_commit.chunks
        assert said.objects is not None
        # Creating the repository is no part of a batch: one snapshot. The ref is replaced.
        new = len(files(repository) - before) - (1 if number == 0 else -1)
        assert said.objects.count == new
        assert (said.chunks, said.rewritten) == wanted[number]


def test_bad_rows_are_counted_in_tasks_and_in_the_driver_alike(
    spark: SparkSession, make_sink: Callable[[], IcechunkSink]
) -> None:
    rows = table(range(4), STATIONS[:5]).to_pandas()
    rows.loc[[0, 7, 9], "station"] = None
    rows.loc[3, "time"] = START - HOUR
    said = make_sink().explain(spark.createDataFrame(rows, COLUMNS))
    assert said.rows == 40
    assert {(group.column, group.count) for group in said.bad.groups} == {
        ("station", 3),
        ("time", 1),
    }
    assert said.objects is None
    assert "BadRowsError" in str(said)


def test_a_stream_is_refused_with_what_to_give_instead(
    spark: SparkSession, tmp_path: Path, make_sink: Callable[[], IcechunkSink]
) -> None:
    (tmp_path / "source").mkdir()
    stream: DataFrame = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "source"))
    with pytest.raises(InvalidInputError, match=r"spark\.read in place of"):
        make_sink().explain(stream)
