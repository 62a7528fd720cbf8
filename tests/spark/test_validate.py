"""Checks before a stream starts: each finds what is wrong, and none raises."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icechunk_stream.spark import Rows, append, icechunk_sink, regular
from icechunk_stream.storage import LocalStorage, Version, Written, in_memory_storage
from icechunk_stream.testing.wrapped_storage import WrappedStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from icechunk_stream.spark import IcechunkSink
    from icechunk_stream.spark.sources import WriteMode
    from icechunk_stream.storage import BytesLike, LostRace, Storage

LAYOUT = Rows(dims={"id": append()}, variables={"value": "float64"}, chunks={"id": 4})


@pytest.fixture
def make_sink(tmp_path: Path) -> Callable[..., IcechunkSink]:
    def make(
        storage: Storage | str | None = None,
        layout: Rows = LAYOUT,
        write_mode: WriteMode = "auto",
        checkpoint: str | None = "checkpoint",
    ) -> IcechunkSink:
        return icechunk_sink(
            storage or str(tmp_path / "repository"),
            layout=layout,
            app_id="obs",
            checkpoint_location=None if checkpoint is None else str(tmp_path / checkpoint),
            write_mode=write_mode,
        )

    return make


def run(spark: SparkSession, folder: Path, sink: IcechunkSink) -> None:
    (folder / "source").mkdir()
    rows = pa.table({"id": [1, 2, 3, 4, 5], "value": [0.5] * 5})
    pq.write_table(rows, folder / "source" / "rows.parquet")
    stream = spark.readStream.schema("id long, value double").parquet(str(folder / "source"))
    query = stream.writeStream.foreachBatch(sink)
    query = query.option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def started(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Lets tasks run in a Python that first executes some code."""
    context = spark.sparkContext
    before = context.pythonExec

    def start(code: str) -> None:
        (tmp_path / "first").mkdir()
        (tmp_path / "first" / "sitecustomize.py").write_text(code)
        script = tmp_path / "python"
        path = f"PYTHONPATH={tmp_path / 'first'}:$PYTHONPATH"
        script.write_text(f'#!/bin/sh\n{path} exec {sys.executable} "$@"\n')
        script.chmod(0o755)
        context.pythonExec = str(script)

    yield start
    context.pythonExec = before


def test_what_is_good_is_said_to_be_and_nothing_stays_behind(
    spark: SparkSession, tmp_path: Path, make_sink: Callable[..., IcechunkSink]
) -> None:
    fresh = make_sink().validate(spark)
    assert fresh.ok, str(fresh)
    assert "has no repository: the first batch makes it" in fresh["storage"].found
    assert fresh["layout"].found == "the first batch makes id, value in /"
    assert "no query has begun" in fresh["checkpoint"].found
    assert "its first batch is 0" in fresh["ledger"].found
    run(spark, tmp_path, make_sink())
    stored = {path for path in tmp_path.rglob("*") if path.is_file()}
    later = make_sink().validate(spark)
    assert later.ok, str(later)
    assert later["layout"].found == "/ has id, value"
    assert "up to batch 0" in later["ledger"].found
    assert "2 tasks have what the driver has: Python 3." in later["executors"].found
    assert later["storage of executors"].found == "the driver finds what 2 tasks wrote"
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == stored
    assert len(str(later).splitlines()) == len(later.checks) == 6


def test_executors_with_another_release_are_found(
    spark: SparkSession, make_sink: Callable[..., IcechunkSink], started: Callable[[str], None]
) -> None:
    started("import icechunk_stream.version as v\nv.VERSION = '0.0.9'")
    (check,) = make_sink().validate(spark).failed
    assert check.name == "executors"
    assert "icechunk_stream 0.0.9" in check.found
    assert "packages of the driver" in check.advice


def test_executors_without_the_package_are_found(
    spark: SparkSession, make_sink: Callable[..., IcechunkSink], started: Callable[[str], None]
) -> None:
    started("import sys\nsys.modules['icechunk_stream'] = None")
    (check,) = make_sink().validate(spark).failed
    assert check.name == "executors"
    assert "ModuleNotFoundError" in check.found
    assert "icechunk_stream" in check.found


class _Elsewhere(LocalStorage):
    """A path that is another disk on other machines."""

    def __reduce__(self) -> tuple[partial[LocalStorage], tuple[str]]:
        return partial(LocalStorage), (f"{self.path}-elsewhere",)


class _Overwriting(WrappedStorage):
    """A store that knows no conditions."""

    def _put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        self.inner.put(key, data)
        return Written(Version("any"))

    def with_pickled_credentials(self) -> Storage:
        return self


def test_a_disk_that_executors_do_not_share_is_found(
    spark: SparkSession, tmp_path: Path, make_sink: Callable[..., IcechunkSink]
) -> None:
    (check,) = make_sink(_Elsewhere(tmp_path / "repository")).validate(spark).failed
    assert check.name == "storage of executors"
    assert check.found == "the driver does not find what 2 of 2 tasks wrote"
    assert "share" in check.advice


def test_a_storage_of_this_process_alone_is_found(
    spark: SparkSession, make_sink: Callable[..., IcechunkSink]
) -> None:
    failed = make_sink(in_memory_storage()).validate(spark).failed
    assert [check.name for check in failed] == ["executors"]
    assert "cannot be pickled" in failed[0].found
    assert make_sink(in_memory_storage(), write_mode="driver").validate(spark).ok


def test_a_store_that_knows_no_conditions_is_found(
    spark: SparkSession, make_sink: Callable[..., IcechunkSink]
) -> None:
    storage = _Overwriting(in_memory_storage())
    (check,) = make_sink(storage, write_mode="driver").validate(spark).failed
    assert check.name == "storage"
    assert "does not honour the conditions" in check.found


def test_a_place_that_cannot_be_written_is_found(
    spark: SparkSession, tmp_path: Path, make_sink: Callable[..., IcechunkSink]
) -> None:
    (tmp_path / "file").touch()
    found = make_sink(str(tmp_path / "file" / "repository")).validate(spark)
    assert not found["storage"].ok
    assert "credentials" in found["storage"].advice


def test_arrays_that_the_layout_does_not_fit_are_found(
    spark: SparkSession, tmp_path: Path, make_sink: Callable[..., IcechunkSink]
) -> None:
    run(spark, tmp_path, make_sink())
    other = Rows(dims={"time": regular("2024-01-01", "1h")}, variables={"value": "float64"})
    (check,) = make_sink(layout=other, write_mode="driver").validate(spark).failed
    assert check.name == "layout"
    assert "/value has the dimensions ('id',)" in check.found


def test_a_checkpoint_that_is_damaged_or_of_another_query_is_found(
    spark: SparkSession, tmp_path: Path, make_sink: Callable[..., IcechunkSink]
) -> None:
    run(spark, tmp_path, make_sink())
    (fresh,) = make_sink(checkpoint="fresh", write_mode="driver").validate(spark).failed
    assert fresh.name == "ledger"
    assert "the checkpoint is fresh" in fresh.found
    assert "adopt=Adopt" in fresh.advice
    (tmp_path / "checkpoint" / "metadata").write_text("{")
    failed = make_sink(write_mode="driver").validate(spark).failed
    assert [check.name for check in failed] == ["checkpoint", "ledger"]
    none = make_sink(checkpoint=None, write_mode="driver").validate(spark)
    assert none.ok
    assert "by their ids alone" in none["checkpoint"].found
