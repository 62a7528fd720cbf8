"""Drivers of a real Spark whose executors write to a bucket, killed at any call of theirs."""

from __future__ import annotations

import signal
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.places import Bucket
from tests.object_stores.buckets import create_bucket
from tests.spark.kill_driver import Job, run, take
from tests.spark.numbered_stream import NumberedStream
from tests.stream.killed_stream import Point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.object_stores.servers import S3Server
    from tests.stream.killed_stream import Kind

pytestmark = pytest.mark.compat

FILES = 4
# The object that tells the tip: of spec v1 that of the branch, of spec v2 "repo".
TIP = "re[fp]*"
# Making the repository swaps the tip for the first time.
BEFORE_SWAP = Point("before", 3, "put_if", TIP)
# Spec v2 keeps the splitting of new arrays in the same object as its tips.
AFTER_SWAP = Point("after", 5, "put_if", TIP)
# The batch of which the driver did not see the end, and those in the branch by then.
ENDS = {BEFORE_SWAP: (1, [0]), AFTER_SWAP: (2, [0, 1, 2])}
# In a soak, each of so many calls is one.
EVERY = 3
_numbers = count(1)


@pytest.fixture
def bucket(versitygw: S3Server) -> Bucket:
    return Bucket(versitygw, create_bucket(versitygw, f"kills-{next(_numbers)}"))


def assert_right(stream: NumberedStream, kind: Kind) -> None:
    if kind == "appends":
        stream.assert_all_there()
    else:
        stream.assert_windows()
    assert stream.batches() == list(range(FILES))


def killed_stream(spark: SparkSession, job: Job) -> NumberedStream:
    """A stream as its killed driver left it."""
    stream = stream_of(spark, job)
    assert run(job) == -signal.SIGKILL
    return stream


def stream_of(spark: SparkSession, job: Job) -> NumberedStream:
    folder = Path(job.folder)
    folder.mkdir(exist_ok=True)
    stream = NumberedStream(spark, folder, job.spec, job.place)
    for _ in range(FILES):
        stream.send()
    return stream


@pytest.mark.parametrize(
    ("kind", "spec", "killed"),
    [("appends", 1, BEFORE_SWAP), ("appends", 2, AFTER_SWAP), ("updates", 2, AFTER_SWAP)],
)
def test_a_query_goes_on_where_its_killed_driver_ended(
    spark: SparkSession, tmp_path: Path, bucket: Bucket, kind: Kind, spec: int, killed: Point
) -> None:
    stream = killed_stream(spark, Job(str(tmp_path), bucket.place(), spec, kind, killed))
    last, committed = ENDS[killed]
    assert stream.batches() == committed
    # Spark does not know the end of the batch, and gives it again.
    assert (stream.checkpoint / "offsets" / str(last)).exists()
    assert not (stream.checkpoint / "commits" / str(last)).exists()
    take(stream, kind)
    assert_right(stream, kind)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["appends", "updates"])
@pytest.mark.parametrize("spec", [1, 2])
def test_a_driver_may_be_killed_at_any_call(
    spark: SparkSession, tmp_path: Path, bucket: Bucket, spec: int, kind: Kind
) -> None:
    whole = Job(str(tmp_path / "whole"), bucket.place("whole"), spec, kind)
    stream = stream_of(spark, whole)
    assert run(whole) == 0
    assert_right(stream, kind)
    calls = int((tmp_path / "whole" / "calls").read_text())
    for nth in range(1, calls + 1, EVERY):
        killed = Point(("before", "after")[nth % 2], nth)
        job = Job(str(tmp_path / str(nth)), bucket.place(str(nth)), spec, kind, killed)
        stream = killed_stream(spark, job)
        take(stream, kind)
        assert_right(stream, kind)
