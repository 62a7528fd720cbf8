"""What a session takes and refuses, before, during and after its commit."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
import zarr

from icechunk_stream import (
    ConflictDetector,
    ErrorKind,
    FormatError,
    ReadOnlyError,
    Repository,
    SessionMode,
    SessionStateError,
    in_memory_storage,
)

SPECS = pytest.mark.parametrize("spec", [1, 2])


def make(spec: int = 2) -> Repository:
    repository = Repository.create(in_memory_storage(), spec_version=spec)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4,), chunks=(1,), dtype="i4")
    session.commit("array")
    return repository


def array(session: Any) -> Any:
    mode: Any = "r" if session.read_only else "r+"
    return zarr.open_array(session.store, path="a", mode=mode)


@SPECS
def test_a_committed_session_reads_what_it_made_and_writes_no_more(spec: int) -> None:
    repository = make(spec)
    session = repository.writable_session("main")
    opened = array(session)
    opened[0] = 7

    id = session.commit("seven")

    assert (session.snapshot_id, session.branch, session.mode) == (id, None, SessionMode.readonly)
    assert session.read_only
    assert not session.has_uncommitted_changes
    assert opened[0] == 7
    with pytest.raises(ReadOnlyError):
        opened[0] = 8
    with pytest.raises(SessionStateError) as refused:
        session.commit("again")
    assert refused.value.kind == ErrorKind.COMMIT_NOT_ALLOWED
    assert len(list(repository.ancestry(branch="main"))) == 3


@SPECS
def test_an_empty_session_commits_only_when_asked(spec: int) -> None:
    session = make(spec).writable_session("main")

    with pytest.raises(SessionStateError) as refused:
        session.commit("nothing")
    assert refused.value.kind == ErrorKind.NO_CHANGES_TO_COMMIT
    assert session.commit("nothing", allow_empty=True) == session.snapshot_id


@SPECS
def test_discarded_changes_are_gone_and_the_session_goes_on(spec: int) -> None:
    repository = make(spec)
    session = repository.writable_session("main")
    array(session)[0] = 7
    zarr.create_group(session.store, path="g")

    session.discard_changes()

    assert not session.has_uncommitted_changes
    assert session.status().is_empty()
    assert array(session)[0] == 0
    array(session)[1] = 8
    session.commit("eight")
    assert array(repository.readonly_session("main"))[:].tolist() == [0, 8, 0, 0]


@SPECS
def test_a_transaction_commits_unless_its_block_raises(spec: int) -> None:
    repository = make(spec)
    with repository.transaction("main", message="in a block") as store:
        zarr.open_array(store, path="a", mode="r+")[2] = 5

    def fail() -> None:
        with repository.transaction("main", message="never") as store:
            zarr.open_array(store, path="a", mode="r+")[2] = 6
            raise RuntimeError("in the block")

    with pytest.raises(RuntimeError, match="in the block"):
        fail()

    assert next(commit.message for commit in repository.ancestry(branch="main")) == "in a block"
    assert array(repository.readonly_session("main"))[2] == 5


def test_amending_needs_spec_v2_and_a_commit_of_ones_own() -> None:
    with pytest.raises(FormatError) as too_old:
        make(1).writable_session("main").amend("no", allow_empty=True)
    assert too_old.value.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION

    first = Repository.create(in_memory_storage()).writable_session("main")
    with pytest.raises(SessionStateError) as refused:
        first.amend("no", allow_empty=True)
    assert refused.value.kind == ErrorKind.NO_AMEND_FOR_INITIAL_COMMIT


@SPECS
def test_a_flushed_snapshot_is_on_no_branch_and_can_be_read(spec: int) -> None:
    repository = make(spec)
    before = repository.lookup_branch("main")
    session = repository.writable_session("main")
    array(session)[3] = 9

    id = session.flush("aside")

    assert repository.lookup_branch("main") == before
    assert array(repository.readonly_session(snapshot_id=id))[3] == 9
    assert repository.lookup_snapshot(id).message == "aside"


@SPECS
def test_writable_sessions_are_not_pickled_and_the_error_says_what_to_do(spec: int) -> None:
    session = make(spec).writable_session("main")

    for each in (session, session.store):
        with pytest.raises(SessionStateError, match="fork"):
            pickle.dumps(each)


@SPECS
def test_default_metadata_is_below_that_of_a_commit(spec: int) -> None:
    repository = make(spec)
    repository.set_default_commit_metadata({"who": "us", "why": "default"})
    session = repository.writable_session("main")

    session.commit("m", {"why": "given"}, allow_empty=True, rebase_with=ConflictDetector())

    metadata = next(iter(repository.ancestry(branch="main"))).metadata
    assert metadata == {"who": "us", "why": "given", "__icechunk": {"rebase_attempts": 0}}


def test_a_write_that_comes_too_late_for_a_commit_is_refused_not_lost() -> None:
    """A thread keeps writing while another one commits: every write that succeeded is there."""
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    made = zarr.create_array(session.store, name="a", shape=(100_000,), chunks=(1,), dtype="i4")
    written: list[int] = []
    began = threading.Event()

    def write() -> None:
        for index in range(100_000):
            try:
                made[index] = 1
            except ReadOnlyError:
                return
            written.append(index)
            if index == 50:
                began.set()

    thread = threading.Thread(target=write)
    thread.start()
    began.wait()
    session.commit("in the middle")
    thread.join()

    read = array(repository.readonly_session("main"))
    last = max(written)
    assert last < 99_999
    assert int(read[: last + 1].sum()) == len(written)
