"""A repository that others change behind a stream's back: its branch reset, its history cut."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from time import sleep
from typing import TYPE_CHECKING

import pytest
import zarr
from pyspark.errors import StreamingQueryException

from icechunk_stream.storage import local_filesystem_storage
from icechunk_stream.stream.outcomes import Repeated
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.spark.numbered_stream import ROWS, NumberedStream, advised

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from icechunk_stream.testing.storage_calls import Call

pytestmark = pytest.mark.compat


@pytest.fixture(params=[1, 2])
def stream(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> NumberedStream:
    """A stream on a branch of its own."""
    stream = NumberedStream(spark, tmp_path, request.param)
    stream.branch = "live"
    stream.send()
    return stream


def end_of(query: StreamingQuery) -> str:
    """What a running query says that fails with what was sent last."""
    with pytest.raises(StreamingQueryException) as failed:
        query.processAllAvailable()
    return str(failed.value)


def cut_history(stream: NumberedStream) -> None:
    """Leave no snapshot but the first and the tip, which is another one where the format can."""
    reference = stream.reference()
    if stream.spec > 1:
        session = reference.writable_session(stream.branch)
        zarr.open_group(session.store, mode="a").attrs["files"] = stream.files
        session.amend("how many files there are")
    soon = datetime.now(UTC) + timedelta(seconds=2)
    reference.expire_snapshots(soon)
    reference.garbage_collect(soon)
    assert len(stream.history()) == 2


def test_a_branch_that_is_reset_under_a_running_sink_stops_it(stream: NumberedStream) -> None:
    query = stream.start(stream.sink())
    query.processAllAvailable()
    first = stream.history()[0].id
    stream.send()
    query.processAllAvailable()
    last = stream.history()[0].id
    stream.reference().reset_branch(stream.branch, first)
    stream.send()
    message = end_of(query)
    assert "StreamGapError" in message
    assert "those between are missing, as after the branch was reset" in message
    assert "To do without them, pass allow_gaps=True; to have their rows, start" in message
    stream.assert_holds(range(ROWS))
    assert "StreamGapError" in stream.refusal()

    stream.reference().reset_branch(stream.branch, last)
    stream.run()
    assert stream.batches() == [0, 1, 2]
    stream.assert_all_there()


def test_a_branch_that_is_reset_while_a_batch_is_committed_keeps_the_batch_out(
    stream: NumberedStream,
) -> None:
    stream.run()
    first = stream.history()[0].id
    stream.send()
    stream.run()
    last = stream.history()[0].id
    stream.send()
    resets: list[str] = []

    def reset(call: Call) -> None:
        if call.method == "put_if" and not resets:
            resets.append(call.key)
            stream.reference().reset_branch(stream.branch, first)

    storage = WrappedStorage(local_filesystem_storage(str(stream.repository)))
    storage.script.before = reset
    assert "StreamGapError" in stream.refusal(to=storage)
    assert resets == [{1: "refs/branch.live/ref.json", 2: "repo"}[stream.spec]]
    assert stream.history()[0].id == first

    stream.reference().reset_branch(stream.branch, last)
    stream.run()
    assert stream.batches() == [0, 1, 2]
    stream.assert_all_there()


def test_a_stream_that_may_have_gaps_goes_on_after_a_reset_without_what_was_taken_away(
    stream: NumberedStream,
) -> None:
    stream.run()
    first = stream.history()[0].id
    stream.send()
    stream.run()
    stream.reference().reset_branch(stream.branch, first)
    stream.send()
    stream.run(allow_gaps=True)
    assert stream.batches() == [0, 2]
    stream.assert_holds([*range(ROWS), *range(2 * ROWS, 3 * ROWS)])
    stream.send()
    stream.run()
    assert stream.batches() == [0, 2, 3]


def test_a_deleted_branch_is_refused_until_it_is_back(stream: NumberedStream) -> None:
    query = stream.start(stream.sink())
    query.processAllAvailable()
    last = stream.history()[0].id
    stream.reference().delete_branch(stream.branch)
    stream.send()
    assert "RefNotFoundError" in end_of(query)
    # Now the branch begins at main, where no stream has ever been.
    message = stream.refusal()
    assert "LedgerMissingError" in message
    assert "is given batch 1 of query" in message
    assert "the app_id, the branch or the repository is not the one that took" in message
    stream.reference().reset_branch(stream.branch, last)
    stream.run()
    assert stream.batches() == [0, 1]
    stream.assert_all_there()


def test_lost_data_are_reported_and_a_hand_over_begins_without_them(
    stream: NumberedStream,
) -> None:
    stream.run()
    shutil.rmtree(stream.repository)
    stream.send()
    message = stream.refusal()
    assert "LedgerMissingError" in message
    assert "if the stream is to begin here, without their rows, pass adopt=" in message
    adopt = advised(message)
    assert adopt.first_batch == 1
    stream.run(adopt=adopt)
    stream.send()
    stream.run(adopt=adopt)
    assert stream.batches() == [1, 2]
    stream.assert_holds(range(ROWS, 3 * ROWS))

    # Once used, it is none for the next loss.
    shutil.rmtree(stream.repository)
    stream.send()
    message = stream.refusal(adopt=adopt)
    assert "LedgerMissingError" in message
    assert f"(the one given is {adopt})" in message
    assert advised(message).first_batch == 3


def test_a_query_goes_on_after_its_history_was_cut(stream: NumberedStream) -> None:
    for _ in range(2):
        stream.send()
        stream.run()
        cut_history(stream)
    tip = stream.history()[0].id
    stream.forget_commit(2)
    again = stream.run().last_commit
    # An amended snapshot does not say any more whose it was; the ledger in it does.
    assert again == Repeated(2, tip if stream.spec == 1 else None)
    stream.send()
    stream.run()
    stream.assert_all_there()


def test_a_running_sink_goes_on_after_its_history_was_cut(stream: NumberedStream) -> None:
    query = stream.start(stream.sink())
    for _ in range(3):
        query.processAllAvailable()
        cut_history(stream)
        stream.send()
    # Spark may not have seen the last file yet when it says that it is through.
    for _ in range(300):
        query.processAllAvailable()
        if stream.batches():
            break
        sleep(0.1)
    query.stop()
    assert stream.batches()[-1] == 3
    stream.assert_all_there()
