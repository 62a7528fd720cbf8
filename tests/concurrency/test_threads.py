"""Threads that share one repository object, its caches and its connections."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from icechunk_stream import ConflictDetector, ConflictError, Repository, in_memory_storage
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.contents import GROUP, Contents, array, numbers, read, write
from tests.concurrency.three_commits import ROOT, messages
from tests.concurrency.written_once import assert_written_once

if TYPE_CHECKING:
    from icechunk_stream.session import Session

THREADS = 8
COMMITS = 8

both_specs = pytest.mark.parametrize("spec_version", [1, 2])


def chunk(number: int) -> Contents:
    return {f"a/c/{number}": numbers(number + 1)}


def prepared(spec_version: int) -> Repository:
    repository = Repository.create(WrappedStorage(in_memory_storage()), spec_version=spec_version)
    session = repository.writable_session("main")
    write(session.store, base())
    session.commit("base")
    return repository


def base() -> Contents:
    return {"a/zarr.json": array((THREADS * COMMITS,), (1,)), "zarr.json": GROUP}


def assert_kept(repository: Repository, expected: list[str], numbers: list[int]) -> None:
    assert isinstance(repository.storage, WrappedStorage)
    found = Repository.open(repository.storage.inner)
    first, second, *others = messages(found)
    assert (first, second) == (ROOT, "base")
    assert sorted(others) == sorted(expected)
    contents = base()
    for number in numbers:
        contents |= chunk(number)
    assert read(found.readonly_session("main").store) == dict(sorted(contents.items()))
    assert_written_once(repository.storage.script.calls)


@both_specs
def test_threads_with_sessions_of_one_repository_lose_no_commit(spec_version: int) -> None:
    repository = prepared(spec_version)

    def work(me: int) -> None:
        for number in range(me * COMMITS, (me + 1) * COMMITS):
            session = repository.writable_session("main")
            write(session.store, chunk(number))
            session.commit(str(number), rebase_with=ConflictDetector())

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    everything = list(range(THREADS * COMMITS))
    assert_kept(repository, [str(number) for number in everything], everything)


@both_specs
def test_threads_write_into_one_session(spec_version: int) -> None:
    repository = prepared(spec_version)
    session = repository.writable_session("main")

    def work(me: int) -> None:
        for number in range(me * COMMITS, (me + 1) * COMMITS):
            write(session.store, chunk(number))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    session.commit("all")
    assert_kept(repository, ["all"], list(range(THREADS * COMMITS)))


@both_specs
def test_of_threads_that_commit_on_one_tip_one_wins(spec_version: int) -> None:
    repository = prepared(spec_version)
    barrier = Barrier(THREADS)
    sessions = [repository.writable_session("main") for _ in range(THREADS)]
    for number, session in enumerate(sessions):
        write(session.store, chunk(number))

    def work(session: Session) -> str | None:
        barrier.wait(60)
        try:
            return session.commit("won")
        except ConflictError:
            return None

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(work, sessions))
    [winner] = [number for number, id in enumerate(found) if id is not None]
    assert found[winner] == repository.lookup_branch("main")
    assert_kept(repository, ["won"], [winner])
