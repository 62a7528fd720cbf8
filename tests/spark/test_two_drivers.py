"""Two drivers on one checkpoint at once: one that was thought dead, and its successor."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.held_driver import Driver, another_driver
from tests.spark.numbered_stream import NumberedStream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.compat

FILES = 6


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with another_driver(tmp_path_factory.mktemp("driver")) as driver:
        yield driver


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> NumberedStream:
    """A stream with one batch done, and one to do."""
    stream = NumberedStream(spark, tmp_path)
    stream.send()
    stream.run()
    stream.send()
    return stream


def test_a_driver_finds_the_batch_that_its_successor_committed_meanwhile(
    stream: NumberedStream, driver: Driver, tmp_path: Path
) -> None:
    driver.start(tmp_path, hold=True)
    ours = stream.run().last_commit
    assert ours is not None
    assert stream.batches() == [0, 1]
    theirs = driver.end(held=True)
    assert theirs["outcome"] == f"Repeated(batch_id=1, snapshot_id={stream.history()[0].id!r})"
    stream.send()
    stream.run()
    assert stream.batches() == [0, 1, 2]
    stream.assert_all_there()


def test_a_driver_whose_successor_is_ahead_is_told_to_stop(
    stream: NumberedStream, driver: Driver, tmp_path: Path
) -> None:
    driver.start(tmp_path, hold=True)
    stream.send()
    stream.run()
    assert stream.batches() == [0, 1, 2]
    theirs = driver.end(held=True)
    assert "StreamRewoundError" in theirs["error"]
    assert "another driver runs on it and is ahead. Stop one of the drivers" in theirs["error"]
    assert theirs["outcome"] == "None"
    stream.send()
    stream.run()
    assert stream.batches() == [0, 1, 2, 3]
    stream.assert_all_there()


def test_of_two_drivers_that_race_through_a_source_none_loses_or_doubles_a_row(
    stream: NumberedStream, driver: Driver, tmp_path: Path
) -> None:
    for _ in range(FILES):
        stream.send()
    driver.start(tmp_path, hold=False)
    # Spark stops the one that comes second to its own logs.
    with suppress(StreamingQueryException):
        stream.run()
    driver.end(held=False)
    stream.run()
    stream.assert_all_there()
    # Two may have logged a file each for one batch, which then has both.
    batches = stream.batches()
    assert batches == list(range(len(batches)))
