"""Bad rows in a real Delta table."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.spark.quarantine import (
    Quarantine,
    QuarantineKey,
    check_delta,
    store_bad_rows,
)
from tests.spark.driver_processes import ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


class Table:
    """A Delta table that does not exist yet."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.path = folder / "bad rows"
        self.quarantine = Quarantine(str(self.path))

    def store(self, rows: dict[str, Any], key: QuarantineKey) -> None:
        """Rows that are bad for one reason."""
        table = pa.table(rows)
        blame = {"bad_column": "id", "bad_reason": "is null"}
        for name, text in blame.items():
            table = table.append_column(name, pa.repeat(text, len(table)))
        store_bad_rows(self.spark, self.quarantine, table, key)

    def read(self) -> pa.Table:
        return self.spark.read.format("delta").load(str(self.path)).toArrow()

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """What some columns hold, in its order."""
        found = self.read().select(columns).to_pylist()
        return sorted(tuple(row.values()) for row in found)

    def commits(self) -> int:
        return len(list((self.path / "_delta_log").glob("*.json")))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return Table(spark, tmp_path)


def at_once(work: Callable[[QuarantineKey], None], *keys: QuarantineKey) -> None:
    """Do some work for each key, in threads that begin together."""
    start = threading.Barrier(len(keys))

    def run(key: QuarantineKey) -> None:
        start.wait()
        work(key)

    threads = [threading.Thread(target=run, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def key(batch_id: int, app_id: str = "obs", query_id: str = "q", attempt: int = 0) -> QuarantineKey:
    return QuarantineKey(app_id, query_id, batch_id, attempt)


def test_rows_keep_their_columns_and_say_why_and_whence(table: Table) -> None:
    rows = {
        "id": pa.array([None, 7], pa.int64()),
        "temp": [1.5, float("nan")],
        "bad_column": ["id", "temp"],
        "bad_reason": ["the label is null", "the value does not fit"],
    }
    store_bad_rows(table.spark, table.quarantine, pa.table(rows), key(3, "obs", "query-1"))
    found = table.read().sort_by("bad_column").to_pydict()
    assert np.isnan(found["temp"].pop())
    assert found == {
        "id": [None, 7],
        "temp": [1.5],
        "bad_column": ["id", "temp"],
        "bad_reason": ["the label is null", "the value does not fit"],
        "app_id": ["obs", "obs"],
        "query_id": ["query-1", "query-1"],
        "batch_id": [3, 3],
    }


def test_a_batch_that_comes_again_is_kept_once(table: Table) -> None:
    for batch in (0, 0, 4, 4):
        table.store({"id": [batch, batch + 1]}, key(batch))
    assert table.rows("batch_id", "id") == [(0, 0), (0, 1), (4, 4), (4, 5)]
    assert table.commits() == 2


def test_a_batch_that_comes_again_with_other_bad_rows_adds_what_is_missing(table: Table) -> None:
    table.store({"id": [1, 2]}, key(0))
    table.store({"id": [3, 2, 3]}, key(0))
    table.store({"id": [2, 3, 3]}, key(0, attempt=1))
    assert table.rows("id") == [(1,), (2,), (3,), (3,)]
    table.store({"id": [None], "depth": ["deep"]}, key(0))
    table.store({"id": [None], "depth": ["deep"]}, key(0))
    assert table.read().column("depth").drop_null().to_pylist() == ["deep"]
    assert table.commits() == 3


def test_twins_that_store_one_batch_at_once_keep_it_once(table: Table) -> None:
    for batch in range(3):
        at_once(partial(table.store, {"id": [batch]}), key(batch), key(batch))
    assert table.rows("id") == [(0,), (1,), (2,)]


def test_streams_queries_and_attempts_are_told_apart(table: Table) -> None:
    table.store({"id": [1]}, key(5))
    table.store({"id": [2]}, key(5, app_id="other"))
    table.store({"id": [3]}, key(0, query_id="after"))
    table.store({"id": [4]}, key(5, attempt=1))
    table.store({"id": [4]}, key(5, attempt=1))
    assert table.rows("id", "app_id", "query_id", "batch_id") == [
        (1, "obs", "q", 5),
        (2, "other", "q", 5),
        (3, "obs", "after", 0),
        (4, "obs", "q", 5),
    ]


def test_a_batch_without_bad_rows_makes_no_table(table: Table) -> None:
    table.store({"id": pa.array([], pa.int64())}, key(0))
    assert not table.path.exists()


def test_new_columns_are_added_to_the_table(table: Table) -> None:
    table.store({"id": [1]}, key(0))
    table.store({"id": [2], "depth": ["deep"]}, key(1))
    table.store({"wind": [2.5]}, key(2))
    found = table.read().sort_by("batch_id").select(["id", "depth", "wind"]).to_pydict()
    assert found == {
        "id": [1, 2, None],
        "depth": [None, "deep", None],
        "wind": [None, None, 2.5],
    }


def test_columns_of_other_types_are_refused_with_advice(table: Table) -> None:
    table.store({"id": [1]}, key(0))
    with pytest.raises(InvalidInputError, match=r"other types.*'?id'?.*another table"):
        table.store({"id": ["one"]}, key(1))
    assert table.rows("id") == [(1,)]


NOON = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
TYPES = [
    (pa.array([255], pa.uint8()), 255),
    (pa.array([2**16 - 1], pa.uint16()), 2**16 - 1),
    (pa.array([2**32 - 1], pa.uint32()), 2**32 - 1),
    (pa.array([2**64 - 1], pa.uint64()), Decimal(2**64 - 1)),
    (pa.array([-(2**63)]), -(2**63)),
    (pa.array(np.array([1.5], "f2")), 1.5),
    (pa.array([NOON], pa.timestamp("us", "Europe/Berlin")), NOON),
    (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ns")), NOON),
    (pa.array([time(1, 2, 3)], pa.time64("us")), "01:02:03.000000"),
    (pa.array([timedelta(seconds=1)], pa.duration("us")), 1_000_000),
    (pa.array([date(2024, 5, 1)]), date(2024, 5, 1)),
    (pa.array([Decimal("1.25")]), Decimal("1.25")),
    (pa.array([Decimal(10) ** 50], pa.decimal256(60)), "1" + "0" * 50),
    (pa.array(["ams"]).dictionary_encode(), "ams"),
    (pa.array(["ams"], pa.string_view()), "ams"),
    (pa.array([b"\0\xff"], pa.binary(2)), b"\0\xff"),
    (pa.array([True]), True),
    (pa.array([[1, None]], pa.large_list(pa.uint8())), [1, None]),
    (pa.array([{"a": [1]}], pa.struct([("a", pa.list_(pa.uint32()))])), {"a": [1]}),
    (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.uint8())), [("a", 1)]),
]


def test_values_of_every_type_are_kept(table: Table) -> None:
    rows = {f"c{at}": values for at, (values, _) in enumerate(TYPES)}
    table.store(rows, key(0))
    table.store(rows, key(0))
    (found,) = table.read().to_pylist()
    assert [found[f"c{at}"] for at in range(len(TYPES))] == [wanted for _, wanted in TYPES]
    assert table.commits() == 1


def test_a_column_without_a_type_is_left_out(table: Table) -> None:
    table.store({"id": [1], "nothing": pa.nulls(1)}, key(0))
    assert table.read().column_names == [
        "id",
        "bad_column",
        "bad_reason",
        "app_id",
        "query_id",
        "batch_id",
    ]


def test_columns_whose_names_delta_cannot_have_are_renamed(table: Table) -> None:
    rows = {
        "wind speed (m/s)": [1],
        "a.b": [2],
        "Batch_Id": [3],
        "bad_column": ["own"],
        "`": [4],
    }
    table.store(rows, key(9))
    (found,) = table.read().to_pylist()
    assert found == {
        "wind_speed__m/s_": 1,
        "a.b": 2,
        "row_Batch_Id": 3,
        "row_bad_column": "own",
        "`": 4,
        "bad_column": "id",
        "bad_reason": "is null",
        "app_id": "obs",
        "query_id": "q",
        "batch_id": 9,
    }


def test_streams_that_change_one_table_at_once_both_get_their_rows_in(table: Table) -> None:
    def store(key: QuarantineKey) -> None:
        table.store({f"{key.app_id}{key.batch_id}": [1]}, key)

    for batch in range(3):
        at_once(store, key(batch, "left"), key(batch, "right"))
    wanted = [(app, batch) for app in ("left", "right") for batch in range(3)]
    assert table.rows("app_id", "batch_id") == wanted


def test_delta_is_found_with_and_without_a_table(table: Table) -> None:
    check_delta(table.spark, table.quarantine)
    table.path.mkdir()
    check_delta(table.spark, table.quarantine)
    table.store({"id": [1]}, key(0))
    check_delta(table.spark, table.quarantine)


def test_a_spark_without_delta_is_told_what_to_add(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.without_delta", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.strip().splitlines()
    assert said == 4 * said[:1]
    assert "io.delta:delta-spark_4.2_2.13" in said[0]
    assert "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension" in said[0]


@pytest.mark.parametrize("path", ["", "  ", None, Path("/data/bad")])
def test_a_path_that_is_none_is_refused(path: Any) -> None:
    with pytest.raises(InvalidInputError, match="give the path or URL of a Delta table"):
        Quarantine(path)


def test_the_secrets_of_a_url_are_not_shown() -> None:
    quarantine = Quarantine("s3a://me:secret@bucket/bad")
    assert repr(quarantine) == "Quarantine('s3a://***@bucket/bad')"
