"""From the second batch on tasks find the places of rows themselves: nothing else changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pytest
import xarray as xr

from icechunk_stream.errors import BadRowsError
from icechunk_stream.spark import (
    Rows,
    Variable,
    append,
    fixed,
    icechunk_sink,
    locating,
    regular,
    tasks,
)
from icechunk_stream.spark.batch_sizes import BatchSizes
from icechunk_stream.stream.outcomes import Committed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from icechunk_stream.spark import IcechunkSink
    from icechunk_stream.stream.ledger import Counts

pytestmark = pytest.mark.compat

LAYOUT = Rows(
    dims={
        "time": regular("2024-01-01", "1h", tolerance="5min"),
        "station": fixed(["ams", "ber", "cph", "dub", "edi"]),
    },
    variables={
        "temp": Variable("float32"),
        "count": Variable("int16"),
        "gust": Variable("float64", dims=("time",)),
    },
    chunks={"time": 7, "station": 2},
    deletes="erase",
    max_growth=1_000,
)
START = "timestamp'2024-01-01'"
# Late rows, times off the grid by a little or too much, unknown stations, values out of range.
COLUMNS = (
    f"{START} + make_dt_interval(0, time) + make_dt_interval(0, 0, off) as time",
    "element_at(array('ams', 'ber', 'cph', 'dub', 'edi', 'oslo'), station) as station",
    "if(id % 4 = 0, null, cast(id as float)) as temp",
    "if(id % 41 = 0, 100000, cast(id as int)) as count",
    "cast(time as double) as gust",
    "time % 6 = 3 as erase",
)


def batch(spark: SparkSession, number: int) -> DataFrame:
    """The 40 hours from the 25th of each number on: they come late in part."""
    places = (
        "id",
        f"cast(25 * {number} + id div 5 as int) as time",
        "cast(if(id % 31 = 0, 6, id % 5 + 1) as int) as station",
        "cast(if(id % 37 = 0, 6, id % 5 - 2) as int) as off",
    )
    placed = spark.range(1_000 * number, 1_000 * number + 200, 1, 3)
    placed = placed.selectExpr(f"id - {1_000 * number} as id").selectExpr(*places)
    return placed.selectExpr(*COLUMNS).orderBy("temp", "station")


@dataclass(frozen=True)
class Written:
    counts: tuple[Counts, ...]
    content: xr.Dataset


def sink_into(folder: Path, mode: str, **options: Any) -> IcechunkSink:
    given: dict[str, Any] = {
        "layout": LAYOUT,
        "app_id": "obs",
        "write_mode": mode,
        "on_bad_rows": "drop",
    }
    return icechunk_sink(str(folder), **given | options)


def written(spark: SparkSession, folder: Path, mode: str) -> Written:
    sink = sink_into(folder, mode)
    outcomes = [sink.write(batch(spark, number)) for number in range(4)]
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)))
    store = repository.readonly_session("main").store
    content = xr.open_zarr(store, consolidated=False, chunks=None).load()
    assert all(isinstance(each, Committed) for each in outcomes)
    return Written(tuple(each.counts for each in outcomes if isinstance(each, Committed)), content)


@pytest.fixture
def located(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The axes whose labels were read before the rows were written, of each batch."""
    found: list[tuple[str, ...]] = []
    locate = locating.locate

    def seen(df: DataFrame, axes: Any, schema: Any) -> Any:
        found.append(tuple(axis.name for axis in axes))
        return locate(df, axes, schema)

    monkeypatch.setattr(tasks, "locate", seen)
    return found


def test_rows_lie_where_the_driver_would_put_them(
    spark: SparkSession, tmp_path: Path, located: list[tuple[str, ...]]
) -> None:
    by_driver = written(spark, tmp_path / "driver", "driver")
    by_tasks = written(spark, tmp_path / "tasks", "executors")
    assert located == [("time", "station")]
    assert by_tasks.counts == by_driver.counts
    assert by_tasks.counts[1].received == 200
    assert by_tasks.counts[1].bad > 10
    xr.testing.assert_identical(by_tasks.content, by_driver.content)
    assert by_tasks.content.sizes == {"time": 3 * 25 + 40, "station": 5}


def test_a_batch_is_refused_with_the_same_words(
    spark: SparkSession, tmp_path: Path, located: list[tuple[str, ...]]
) -> None:
    said = []
    for mode in ("driver", "executors"):
        sink = sink_into(tmp_path / mode, mode, on_bad_rows="fail")
        good = batch(spark, 0).where("station = 'ams' and time < '2024-01-01 06:00' and count < 9")
        assert isinstance(sink.write(good), Committed)
        with pytest.raises(BadRowsError) as caught:
            sink.write(batch(spark, 1).where("station = 'oslo'"))
        said.append(caught.value.message)
    assert "7 rows" in said[0]
    assert said[0] == said[1]
    assert len(located) == 1


def test_rows_that_differ_each_time_are_stored_as_they_were_read(
    spark: SparkSession, tmp_path: Path, located: list[tuple[str, ...]]
) -> None:
    sink = sink_into(tmp_path, "executors", layout=Rows({"n": regular(0, 1)}, {"v": "float64"}))
    columns = "cast(rand() * 1e5 as long) as n", "cast(1 as double) as v"
    for _ in range(2):
        outcome = sink.write(spark.range(1).selectExpr("0L as n", "cast(1 as double) as v"))
    outcome = sink.write(spark.range(1_000).selectExpr(*columns))
    assert isinstance(outcome, Committed)
    assert outcome.counts.written == 1_000
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    found = xr.open_zarr(repository.readonly_session("main").store, consolidated=False)
    assert int(np.isfinite(found["v"]).sum()) + outcome.counts.duplicate in {1_000, 1_001}
    assert len(located) == 1


def test_labels_that_are_new_are_read_first(
    spark: SparkSession, tmp_path: Path, located: list[tuple[str, ...]]
) -> None:
    sink = sink_into(tmp_path, "executors", layout=Rows({"n": append()}, {"v": "float64"}))
    for number in range(3):
        outcome = sink.write(spark.range(1).selectExpr(f"{number}L as n", "1D as v"))
        assert isinstance(outcome, Committed)
    assert located == [("n",)] * 3


@pytest.mark.parametrize(
    ("max_growth", "reads"), [(1_000, 1), pytest.param(2**62, 2, id="more cells than an array has")]
)
def test_labels_are_read_first_where_units_have_no_numbers(
    spark: SparkSession,
    tmp_path: Path,
    located: list[tuple[str, ...]],
    max_growth: int,
    reads: int,
) -> None:
    dims = {"n": regular(0, 1), "m": regular(0, 1)}
    layout = Rows(dims, {"v": "float64"}, max_growth=max_growth)
    sink = sink_into(tmp_path, "executors", layout=layout)
    for number in range(2):
        rows = spark.range(5).selectExpr(f"{number}L as n", "id as m", "1D as v")
        assert isinstance(sink.write(rows), Committed)
    assert len(located) == reads


def test_expected_units_follow_the_batches_and_not_one_small_one() -> None:
    sizes, found = BatchSizes(), []
    for count in (0, 40, 8, 8, 8, 100):
        sizes.learn_units(count)
        found.append(sizes.units)
    assert found == [1, 40, 20, 10, 8, 100]
