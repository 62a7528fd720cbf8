"""Micro-batches without rows, which still have their place in the order of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icechunk_stream.stream.outcomes import Committed, Repeated, Skipped
from tests.spark.numbered_stream import NumberedStream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from icechunk_stream.spark.sources import WriteMode

pytestmark = pytest.mark.compat


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> NumberedStream:
    return NumberedStream(spark, tmp_path)


@pytest.mark.parametrize("write_mode", ["driver", "executors"])
def test_empty_batches_are_recorded(stream: NumberedStream, write_mode: WriteMode) -> None:
    for rows in (0, 5, 0):
        stream.send(rows)
    sink = stream.run(write_mode=write_mode)
    assert isinstance(sink.last_commit, Committed)
    assert sink.last_commit.counts.received == 0
    stream.forget_commit(2)
    assert isinstance(stream.run(write_mode=write_mode).last_commit, Repeated)
    stream.send()
    stream.run(write_mode=write_mode)
    assert stream.batches() == [0, 1, 2, 3]
    stream.assert_all_there()


def test_empty_batches_after_the_first_are_left_out_on_request(stream: NumberedStream) -> None:
    for rows in (0, 0, 5, 0, 0):
        stream.send(rows)
    sink = stream.run(record_empty_batches=False)
    assert sink.last_commit == Skipped(4)
    assert stream.batches() == [0, 2]
    stream.forget_commit(4)
    sink = stream.run(record_empty_batches=False, write_mode="executors")
    assert sink.last_commit == Skipped(4)
    stream.send()
    stream.run(record_empty_batches=False)
    assert stream.batches() == [0, 2, 5]
    stream.assert_all_there()


def test_batches_that_were_left_out_are_a_gap_where_empty_ones_are_recorded_again(
    stream: NumberedStream,
) -> None:
    for rows in (5, 0):
        stream.send(rows)
    stream.run(record_empty_batches=False)
    stream.send()
    message = stream.refusal()
    assert "StreamGapError" in message
    assert "To do without them, pass allow_gaps=True" in message
    stream.run(allow_gaps=True)
    stream.send()
    stream.run()
    assert stream.batches() == [0, 2, 3]
    stream.assert_all_there()
