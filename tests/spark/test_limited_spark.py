"""Streams where Spark keeps no rows, has no context to ask, and storage is the driver's alone."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from icechunk_stream.spark import batch_sizes
from icechunk_stream.spark.stages import stage
from tests.spark.limited_spark import DriverStorage, limit_spark
from tests.spark.stream_folders import StreamFolder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from icechunk_stream.spark.sources import WriteMode

pytestmark = pytest.mark.compat


@pytest.fixture
def stream(tmp_path: Path) -> StreamFolder:
    folder = StreamFolder(tmp_path)
    folder.send(0)
    return folder


@pytest.fixture
def limited(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    limit_spark(monkeypatch)
    return spark


def run(spark: SparkSession, stream: StreamFolder, **options: Any) -> None:
    stream.start(spark, DriverStorage(stream.storage), **options).awaitTermination()


def refusal(spark: SparkSession, stream: StreamFolder, **options: Any) -> str:
    with pytest.raises(StreamingQueryException) as refused:
        run(spark, stream, **options)
    return str(refused.value)


def test_the_package_does_not_find_what_is_taken_away(limited: SparkSession) -> None:
    with stage(limited.range(1), "work"):
        assert limited.sparkContext.getLocalProperty("spark.job.description") is None
    with pytest.raises(ConnectionRefusedError, match="is not reached from here"):
        socket.create_connection(("169.254.169.254", 80), timeout=1)


@pytest.mark.parametrize("write_mode", ["driver", "auto"])
def test_batches_that_the_driver_takes_need_nothing_of_what_is_missing(
    limited: SparkSession, stream: StreamFolder, write_mode: WriteMode
) -> None:
    run(limited, stream, write_mode=write_mode)
    stream.forget_commit(0)
    stream.send(1)
    run(limited, stream, write_mode=write_mode)
    stream.assert_every_row_once(2)


def test_a_batch_that_is_too_large_for_the_driver_is_refused_until_it_is_smaller(
    limited: SparkSession, stream: StreamFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sizes, "DRIVER_BYTES", 16 * 1_000)
    said = refusal(limited, stream, write_mode="auto")
    assert "maxOffsetsPerTrigger" in said
    assert stream.batches() == []
    monkeypatch.setattr(batch_sizes, "DRIVER_BYTES", 16 * 2_000)
    run(limited, stream, write_mode="auto")
    stream.assert_every_row_once(1)


def test_executors_that_cannot_be_used_are_not_to_be_asked_for(
    limited: SparkSession, stream: StreamFolder
) -> None:
    said = refusal(limited, stream, write_mode="executors")
    assert "write_mode='driver'" in said
    assert stream.batches() == []


def test_a_query_without_its_checkpoint_is_refused(
    limited: SparkSession, stream: StreamFolder
) -> None:
    assert "pass checkpoint_location" in refusal(limited, stream, checkpoint_location=None)


def test_tasks_do_not_reach_a_storage_of_the_driver(
    spark: SparkSession, stream: StreamFolder
) -> None:
    said = refusal(spark, stream, write_mode="executors")
    assert "executors have no access to '" in said
    assert stream.batches() == []
