"""Thousands of snapshots: a commit makes no object for those that it does not change."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream as ic
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.repo_info import SnapshotRecord, SnapshotTable, decode_repo_info
from icechunk_stream.format.repo_info_encode import RepoState, encode_repo_info
from icechunk_stream.format.times import from_micros
from icechunk_stream.format.updates import NewCommit, Update
from icechunk_stream.storage.memory import MemoryStorage
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.zarr.documents import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT, LONG = 300, 3000
START = 1_000_000
PROTOTYPE = default_buffer_prototype()


def id_of(number: int) -> SnapshotId:
    """Ids whose order is not that of their numbers."""
    return SnapshotId((number * 2_654_435_761 % 2**32).to_bytes(4, "big") + b"snapshot")


def long_storage(count: int) -> MemoryStorage:
    """A repository whose list has so many commits of a sink before its tip, and a tag on each."""
    storage = MemoryStorage()
    session = ic.Repository.create(storage, spec_version=2).writable_session("main")
    put(session, "zarr.json")
    session.commit("tip")
    info = decode_repo_info(storage.get("repo"), "repo")
    first, tip = (info.snapshots.record(row) for row in rows_by_time(info.snapshots))
    ids = [first.id, *map(id_of, range(count))]
    listed = [
        SnapshotRecord(id, parent, START + at, f"batch {at}", marker(at))
        for at, (parent, id) in enumerate(pairwise(ids))
    ]
    state = replace(
        RepoState.of(info),
        snapshots=[replace(first, flushed_at=0), *listed, replace(tip, parent_id=ids[-1])],
        stored=None,
        tags={f"t{at}": id for at, id in enumerate(ids)},
        updates=[Update(NewCommit("main", tip.id), START + count), *logged(ids[1:])],
        older=None,
    )
    storage.put("repo", encode_repo_info(state))
    return storage


def marker(number: int) -> dict[str, Any]:
    return {"icechunk_stream": {"app_id": "a", "batch_id": number, "query_id": "q"}}


def logged(ids: list[SnapshotId]) -> list[Update]:
    entries = [Update(NewCommit("main", id), START + at, f"b{at}") for at, id in enumerate(ids)]
    return entries[::-1]


def rows_by_time(table: SnapshotTable) -> list[int]:
    return sorted(range(len(table)), key=lambda row: table.record(row).flushed_at)


def put(session: ic.Session, key: str) -> None:
    session.store.set_sync(key, PROTOTYPE.buffer.from_bytes(GROUP))


def calls_of(work: Callable[[], object]) -> int:
    """Python and C calls of this thread, in which all of a commit's objects are built."""
    calls = [0]

    def count(_frame: object, event: str, _argument: object) -> None:
        calls[0] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls[0]


def commits_of(count: int) -> list[int]:
    """Calls of the first commit of an open repository, which lays the history out, and the next."""
    repository = ic.Repository.open(long_storage(count))
    config = repository.config
    config.num_updates_per_repo_info_file = 10 * LONG
    repository = repository.reopen(config)

    def commit(number: int) -> None:
        session = repository.writable_session("main")
        put(session, f"g{number}/zarr.json")
        session.commit(f"batch {number}", marker(number))

    # Modules and regular tables are made with the first.
    commit(0)
    repository = ic.Repository.open(repository.storage, config)
    return [calls_of(lambda number=number: commit(number)) for number in range(1, 4)]  # type: ignore[misc]


def test_a_commit_calls_nothing_for_each_snapshot_tag_or_logged_update() -> None:
    """The longer history has 2,700 more of each."""
    for few, many in zip(commits_of(SHORT), commits_of(LONG), strict=True):
        assert many < few + 200


def test_a_time_is_looked_up_without_a_record_for_each_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository = ic.Repository.open(long_storage(LONG))
    history = list(repository.ancestry(branch="main"))

    def refuse(*_: object) -> None:
        raise AssertionError("a record was made")

    monkeypatch.setattr(SnapshotTable, "record", refuse)
    for at in (0, 1, LONG // 2, LONG):
        moment = history[at].written_at
        assert repository.readonly_session("main", as_of=moment).snapshot_id == history[at].id
    before = from_micros(START - 1)
    assert repository.readonly_session("main", as_of=before).snapshot_id == history[-1].id


def test_a_session_begins_with_what_opening_has_read() -> None:
    storage = WrappedStorage(long_storage(SHORT))
    repository = ic.Repository.open(storage)
    read = repository._assets.last_repo
    before = len(storage.script.calls)

    repository.readonly_session("main")

    [call] = storage.script.calls[before:]
    assert (call.method, call.key) == ("read", "repo")
    assert repository._assets.last_repo is read


def test_what_opening_has_read_is_read_again_once_others_have_changed_it() -> None:
    storage = long_storage(SHORT)
    repository = ic.Repository.open(storage)
    session = ic.Repository.open(storage).writable_session("main")
    put(session, "g/zarr.json")
    made = session.commit("others")

    assert repository.readonly_session("main").snapshot_id == made


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_session_and_its_commit_read_no_snapshot_but_the_tip(spec_version: int) -> None:
    storage = MemoryStorage()
    repository = ic.Repository.create(storage, spec_version=spec_version)
    for number in range(30):
        session = repository.writable_session("main")
        put(session, f"g{number}/zarr.json")
        session.commit(f"batch {number}", marker(number))
    tip = repository.lookup_branch("main")
    watched = WrappedStorage(storage)

    session = ic.Repository.open(watched).writable_session("main")
    put(session, "last/zarr.json")
    session.commit("last", marker(30))

    calls = [call for call in watched.script.calls if call.method in ("get", "read")]
    history = [call.key for call in calls if call.key.startswith(("snapshots/", "transactions/"))]
    assert history == [f"snapshots/{tip}"]
