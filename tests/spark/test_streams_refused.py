"""Checkpoints that are gone, copied or set back: real queries that are refused, and how they go on.

Whatever happened, no row is lost or written twice.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from icechunk_stream.spark import Adopt
from icechunk_stream.stream.outcomes import Committed, Repeated
from tests.spark.numbered_stream import ROWS, NumberedStream, advised

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.compat


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> NumberedStream:
    """A stream with two batches."""
    stream = NumberedStream(spark, tmp_path)
    stream.send()
    stream.send()
    stream.run()
    return stream


def lose_checkpoint(stream: NumberedStream) -> None:
    """Without its checkpoint, and with a source that begins where the stream's ledger ends."""
    shutil.rmtree(stream.checkpoint)
    for file in stream.source.iterdir():
        file.unlink()


def test_a_deleted_checkpoint_is_refused_however_often_the_query_is_started(
    stream: NumberedStream,
) -> None:
    shutil.rmtree(stream.checkpoint)
    stream.send()
    for _ in range(2):
        message = stream.refusal()
        assert "StreamIdentityError" in message
        assert "its checkpoint is fresh" in message
        assert "give it an app_id of its own" in message
    assert stream.batches() == [0, 1]
    stream.assert_holds(range(2 * ROWS))


def test_the_hand_over_that_a_refusal_names_lets_a_new_query_go_on(
    stream: NumberedStream,
) -> None:
    lose_checkpoint(stream)
    stream.send()
    message = stream.refusal()
    assert "If its sources go on where the ledger's offsets end, pass adopt=" in message
    adopt = advised(message)
    assert adopt.first_batch == 0
    stream.run(adopt=adopt)
    stream.send()
    stream.run(adopt=adopt)
    stream.forget_commit(1)
    assert isinstance(stream.run(adopt=adopt).last_commit, Repeated)
    assert stream.batches() == [0, 1, 0, 1]
    stream.assert_all_there()


def test_a_hand_over_to_another_query_or_batch_is_none(stream: NumberedStream) -> None:
    lose_checkpoint(stream)
    stream.send()
    named = advised(stream.refusal())
    for other in (Adopt("another-query", 0), Adopt(named.query_id, 1)):
        message = stream.refusal(adopt=other)
        assert "StreamIdentityError" in message
        assert f"(the one given is {other})" in message
        assert advised(message) == named
    stream.assert_holds(range(2 * ROWS))


def test_a_used_hand_over_does_nothing_for_a_query_whose_checkpoint_went_back(
    stream: NumberedStream,
) -> None:
    lose_checkpoint(stream)
    stream.send()
    adopt = advised(stream.refusal())
    before = stream.keep_checkpoint()
    stream.run(adopt=adopt)
    stream.send()
    stream.run(adopt=adopt)
    # The ledger knows batch 1 of the query, whose checkpoint knows no end of batch 0.
    stream.restore_checkpoint(before)
    message = stream.refusal(adopt=adopt)
    assert "StreamRewoundError" in message
    assert "is given batch 0: the checkpoint was set back" in message
    assert stream.batches() == [0, 1, 0, 1]
    stream.assert_all_there()


def test_a_query_that_handed_the_stream_over_may_not_come_back(stream: NumberedStream) -> None:
    shutil.move(stream.checkpoint, stream.checkpoint.with_name("first"))
    for file in stream.source.iterdir():
        file.unlink()
    stream.send()
    adopt = advised(stream.refusal())
    stream.run(adopt=adopt)
    shutil.move(stream.checkpoint, stream.checkpoint.with_name("second"))
    stream.checkpoint = stream.checkpoint.with_name("third")
    for file in stream.source.iterdir():
        file.unlink()
    stream.send()
    stream.run(adopt=advised(stream.refusal()))
    stream.checkpoint = stream.checkpoint.with_name("second")
    stream.forget_commit(0)
    message = stream.refusal(adopt=adopt)
    assert "StreamIdentityError" in message
    assert f"was handed over from query {adopt.query_id}" in message
    assert f"(the one given is {adopt}). Stop it" in message
    assert stream.batches() == [0, 1, 0, 0]
    stream.assert_all_there()


def test_a_query_on_a_copied_checkpoint_is_refused_once_the_other_is_ahead(
    stream: NumberedStream,
) -> None:
    copy = stream.keep_checkpoint()
    stream.send()
    stream.run()
    original, stream.checkpoint = stream.checkpoint, copy
    message = stream.refusal()
    assert "StreamRewoundError" in message
    assert "two queries run on copies of it. Stop all but one of them" in message
    stream.checkpoint = original
    stream.send()
    stream.run()
    stream.checkpoint = copy
    assert "another driver runs on it and is ahead. Stop one" in stream.refusal()
    assert stream.batches() == [0, 1, 2, 3]
    stream.assert_all_there()


@pytest.fixture
def without_check(spark: SparkSession) -> Iterator[None]:
    """As a Spark that does not look for the checkpoint's metadata; older ones never do."""
    name = "spark.sql.streaming.checkpoint.verifyMetadataExists.enabled"
    spark.conf.set(name, "false")
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("without_check")
def test_a_checkpoint_that_lost_its_identity_goes_on_once_that_is_confirmed(
    stream: NumberedStream,
) -> None:
    (stream.checkpoint / "metadata").unlink()
    (stream.checkpoint / ".metadata.crc").unlink(missing_ok=True)
    stream.send()
    adopt = advised(stream.refusal())
    assert adopt.first_batch == 2
    stream.run(adopt=adopt)
    stream.send()
    stream.run(adopt=adopt)
    assert stream.batches() == [0, 1, 2, 3]
    stream.assert_all_there()


def test_another_streams_checkpoint_is_refused(stream: NumberedStream, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = NumberedStream(stream.spark, tmp_path / "other")
    for _ in range(3):
        other.send()
    other.run()
    other.send()
    stream.checkpoint = other.checkpoint
    message = stream.refusal(other.rows())
    assert "StreamIdentityError" in message
    assert "or belongs to another stream" in message
    assert advised(message).first_batch == 3
    stream.assert_all_there()


@pytest.mark.parametrize("further", [1, 2])
def test_a_checkpoint_of_an_older_state_is_refused_until_the_newer_one_is_back(
    stream: NumberedStream, further: int
) -> None:
    older = stream.keep_checkpoint()
    for _ in range(further):
        stream.send()
    stream.run()
    newer = stream.checkpoint.with_name("newer")
    shutil.copytree(stream.checkpoint, newer)
    stream.restore_checkpoint(older)
    stream.send()
    message = stream.refusal()
    assert "StreamRewoundError" in message
    assert "the checkpoint was set back" in message
    assert "start the query on a fresh checkpoint whose sources begin at the offsets" in message
    stream.restore_checkpoint(newer)
    stream.run()
    assert stream.batches() == list(range(3 + further))
    stream.assert_all_there()


def rates(stream: NumberedStream) -> DataFrame:
    """Rows of a source whose offsets name rows, and not files in a log of the checkpoint."""
    source = stream.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    found = source.option("startTimestamp", 1).load()
    return found.selectExpr("value as id", "value * value as value")


def test_a_checkpoint_set_back_by_one_batch_goes_on_where_the_source_gives_the_same_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = NumberedStream(spark, tmp_path)
    stream.run(rates(stream))
    older = stream.keep_checkpoint()
    stream.run(rates(stream))
    stream.restore_checkpoint(older)
    outcomes = [stream.run(rates(stream)).last_commit for _ in range(2)]
    assert [type(each) for each in outcomes] == [Repeated, Committed]
    assert stream.batches() == [0, 1, 2]
    stream.assert_holds(range(3 * ROWS))
