"""What a batch does after others were quicker: rebased as it is, or placed and written again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import zarr

from icechunk_stream.effects import now_micros
from icechunk_stream.errors import StreamRewoundError
from icechunk_stream.repository import Repository
from icechunk_stream.storage import in_memory_storage
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Rows, append
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.ledger_store import read_record, write_waiting
from icechunk_stream.stream.outcomes import Committed, Repeated
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.testing.storage_calls import Call as StorageCall
from icechunk_stream.testing.wrapped_storage import WrappedStorage

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000_000
LAYOUT = Rows(dims={"id": append()}, variables={"value": "int64"}, chunks={"id": 100})


def rows(batch: int) -> RowsInMemory:
    ids = np.arange(batch * 200, batch * 200 + 200)
    return RowsInMemory(pa.table({"id": ids, "value": ids * 7}))


class Rivals:
    """A stream, before whose first swaps others commit."""

    def __init__(self, act: Callable[[Repository], object], *, times: int = 1) -> None:
        self.storage = WrappedStorage(in_memory_storage())
        self.batches = Batches.open(self.storage, StreamSettings(LAYOUT, "obs"))
        self.batches.write(Call("obs", "query", 0), rows(0))
        self._act, self._left = act, times
        self.storage.script.before = self._before

    def write(self, batch: int = 1) -> Committed:
        outcome = self.batches.write(Call("obs", "query", batch), rows(batch))
        assert isinstance(outcome, Committed)
        return outcome

    def chunks(self) -> int:
        """Objects of chunks that were put so far."""
        return len(self.storage.script.calls_of(method="put", key="chunks/*"))

    def group(self) -> zarr.Group:
        session = Repository.open(self.storage.inner).readonly_session("main")
        return zarr.open_group(session.store, mode="r")

    def _before(self, call: StorageCall) -> None:
        if self._left and call.method == "put_if" and call.key.startswith("refs/"):
            self._left -= 1
            self._act(Repository.open(self.storage.inner))


def commit_elsewhere(repository: Repository) -> None:
    with repository.transaction("main", message="elsewhere") as store:
        zarr.open_group(store, path="other", mode="a").attrs["at"] = now_micros()


def commit_to_the_group(repository: Repository) -> None:
    with repository.transaction("main", message="the group") as store:
        zarr.open_group(store, mode="a").attrs["changed"] = now_micros()


def make_a_bystander(repository: Repository) -> None:
    with repository.transaction("main", message="an array") as store:
        group = zarr.open_group(store, mode="a")
        length = group["id"].shape[0]  # type: ignore[union-attr]
        group.create_array("flag", shape=(length,), dtype="i1", dimension_names=["id"])


def assert_all_there(rivals: Rivals, batches: int) -> None:
    wanted = list(range(batches * 200))
    group = rivals.group()
    assert np.asarray(group["id"]).tolist() == wanted
    assert np.asarray(group["value"]).tolist() == [id * 7 for id in wanted]


@pytest.fixture
def chunks_of_a_batch() -> int:
    """Objects of chunks that the second batch puts where nobody disturbs it."""
    alone = Rivals(commit_elsewhere, times=0)
    before = alone.chunks()
    alone.write()
    return alone.chunks() - before


def test_chunks_are_not_written_again_after_commits_elsewhere(chunks_of_a_batch: int) -> None:
    rivals = Rivals(commit_elsewhere, times=2)
    before = rivals.chunks()
    outcome = rivals.write()
    assert outcome.lost_races == 2
    assert rivals.chunks() - before == chunks_of_a_batch > 0
    assert_all_there(rivals, 2)
    assert rivals.group()["other"].attrs["at"]


@pytest.mark.parametrize("act", [commit_to_the_group, make_a_bystander])
def test_a_batch_is_written_again_after_commits_to_its_group(
    act: Callable[[Repository], object], chunks_of_a_batch: int
) -> None:
    rivals = Rivals(act)
    before = rivals.chunks()
    outcome = rivals.write()
    assert outcome.lost_races == 1
    assert rivals.chunks() - before == 2 * chunks_of_a_batch
    assert_all_there(rivals, 2)


def test_a_bystander_made_meanwhile_grows_with_its_dimension() -> None:
    rivals = Rivals(make_a_bystander)
    rivals.write()
    assert rivals.group()["flag"].shape == (400,)  # type: ignore[union-attr]


def test_a_twin_that_was_quicker_is_found_and_nothing_is_doubled() -> None:
    def twin(repository: Repository) -> None:
        Batches(repository, StreamSettings(LAYOUT, "obs")).write(Call("obs", "query", 1), rows(1))

    rivals = Rivals(twin)
    outcome = rivals.batches.write(Call("obs", "query", 1), rows(1))
    tip = Repository.open(rivals.storage.inner).lookup_branch("main")
    assert outcome == Repeated(1, tip)
    assert_all_there(rivals, 2)


def test_a_stream_that_went_on_meanwhile_refuses_the_batch() -> None:
    def overtake(repository: Repository) -> None:
        others = Batches(repository, StreamSettings(LAYOUT, "obs"))
        for batch in (1, 2):
            others.write(Call("obs", "query", batch), rows(batch))

    rivals = Rivals(overtake)
    with pytest.raises(StreamRewoundError):
        rivals.write(1)
    assert_all_there(rivals, 3)


def test_after_three_losses_a_stream_asks_to_be_let_through_and_takes_that_back() -> None:
    asked: list[bool] = []

    def disturb(repository: Repository) -> None:
        """Let the fourth swap pass, which is the one that asks."""
        record = read_record(repository.readonly_session("main").reader, "obs")
        asked.append(record is not None and record.waiting_until is not None)
        if len(asked) != 4:
            commit_to_the_group(repository)

    rivals = Rivals(disturb, times=6)
    outcome = rivals.write()
    record = read_record(
        Repository.open(rivals.storage.inner).readonly_session("main").reader, "obs"
    )
    assert asked == [False] * 4 + [True] * 2
    assert record is not None
    assert record.waiting_until is None
    assert outcome.lost_races == 5
    assert_all_there(rivals, 2)


def test_a_stream_holds_back_until_the_time_that_another_asked_for_is_past() -> None:
    rivals = Rivals(commit_elsewhere, times=0)
    repository = Repository.open(rivals.storage.inner)
    until = now_micros() + SECOND
    session = repository.writable_session("main")
    write_waiting(session, "slow", until)
    session.commit("slow: asks")
    rivals.write()
    assert now_micros() >= until
    assert_all_there(rivals, 2)


def test_a_stream_holds_back_until_the_other_is_through() -> None:
    rivals = Rivals(commit_elsewhere, times=0)
    repository = Repository.open(rivals.storage.inner)
    session = repository.writable_session("main")
    write_waiting(session, "slow", now_micros() + 100 * SECOND)
    session.commit("slow: asks")
    looks = 0

    def through(call: StorageCall) -> None:
        nonlocal looks
        looks += call.key.startswith("refs/")
        if looks == 3:
            slow = Batches(repository, StreamSettings(LAYOUT, "slow", group="/slow"))
            slow.write(Call("slow", "query", 0), rows(0))

    rivals.storage.script.before = through
    rivals.write()
    messages = [each.message for each in repository.ancestry(branch="main")]
    assert messages[:2] == ["obs: batch 1", "slow: batch 0"]
