"""What readers see while others commit: one snapshot, and all of it."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from icechunk_stream import Repository
from tests.concurrency.contents import GROUP, Contents, array, numbers, read, write
from tests.concurrency.places import OURS, THEIRS, Place, local, opened, storage
from tests.oracle.libraries import SPEC_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ARRAYS = ("a", "b", "c/d")
WIDE = 256  # numbers in a chunk that is beyond the inline threshold

DOCUMENTS: Contents = {
    "zarr.json": GROUP,
    "c/zarr.json": GROUP,
    "a/zarr.json": array((2,), (1,)),
    "b/zarr.json": array((2 * WIDE,), (WIDE,)),
    "c/d/zarr.json": array((2, 2), (1, 2)),
}


def chunks(number: int) -> Contents:
    """The same number in every chunk of three arrays."""
    return {
        "a/c/0": numbers(number),
        "a/c/1": numbers(number),
        "b/c/0": numbers(*[number] * WIDE),
        "b/c/1": numbers(*[number] * WIDE),
        "c/d/c/0/0": numbers(number, number),
        "c/d/c/1/0": numbers(number, number),
    }


def number_of(found: Contents) -> int:
    """The number that all chunks hold; the test fails when they hold several."""
    values = {data[:8] for key, data in found.items() if not key.endswith("zarr.json")}
    assert len(values) == 1
    number = int.from_bytes(values.pop(), "little")
    assert found == dict(sorted({**DOCUMENTS, **chunks(number)}.items()))
    return number


def commit(repository: Repository, contents: Contents, message: str) -> str:
    session = repository.writable_session("main")
    write(session.store, contents)
    return str(session.commit(message))


class Writer(Thread):
    """Commits one number after another."""

    def __init__(self, place: Place, commits: int) -> None:
        super().__init__()
        self.repository = opened(OURS, place)
        self.last = commits + 1
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for number in range(2, self.last + 1):
                commit(self.repository, chunks(number), str(number))
        except Exception as error:  # noqa: BLE001 - raised where the thread is joined
            self.error = error

    def rounds(self) -> Iterator[None]:
        """Rounds of reading until everything is committed, and one more."""
        self.start()
        while self.is_alive():
            yield
        self.join()
        yield
        if self.error is not None:
            raise self.error


@pytest.fixture(params=SPEC_VERSIONS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A repository whose arrays hold ones."""
    there = local(tmp_path / "repository")
    repository = Repository.create(storage(OURS, there), spec_version=request.param)
    commit(repository, {**DOCUMENTS, **chunks(1)}, "1")
    return there


@pytest.mark.parametrize("library", [OURS, THEIRS])
def test_a_pinned_reader_reads_the_same_bytes_while_others_commit(
    library: str, place: Place
) -> None:
    repository = opened(library, place)
    pinned = repository.lookup_branch("main")
    sessions = [
        repository.readonly_session("main"),
        repository.readonly_session(snapshot_id=pinned),
    ]
    expected = read(sessions[0].store)
    assert number_of(expected) == 1
    rounds = 0
    writer = Writer(place, commits=200)
    for _ in writer.rounds():
        fresh = opened(library, place).readonly_session(snapshot_id=pinned)
        for session in (*sessions, fresh):
            assert read(session.store) == expected
        rounds += 1
    assert rounds > 1
    assert [session.snapshot_id for session in sessions] == [pinned] * 2
    assert number_of(read(repository.readonly_session("main").store)) == writer.last


@pytest.mark.parametrize("library", [OURS, THEIRS])
def test_a_reader_of_the_tip_never_sees_half_of_a_commit(library: str, place: Place) -> None:
    repository = opened(library, place)
    seen = [1]
    writer = Writer(place, commits=60)
    for _ in writer.rounds():
        readers = (repository, opened(library, place))
        seen += [number_of(read(reader.readonly_session("main").store)) for reader in readers]
    assert seen == sorted(seen)
    assert len(set(seen)) > 2
    assert seen[-1] == writer.last


@pytest.mark.parametrize("library", [OURS, THEIRS])
def test_nobody_sees_what_is_not_committed(library: str, place: Place) -> None:
    session: Any = opened(OURS, place).writable_session("main")
    write(session.store, chunks(2))
    assert number_of(read(session.store)) == 2
    assert number_of(read(opened(library, place).readonly_session("main").store)) == 1
    session.discard_changes()
    assert number_of(read(session.store)) == 1
    write(session.store, chunks(3))
    session.commit("3")
    assert number_of(read(session.store)) == 3
    assert number_of(read(opened(library, place).readonly_session("main").store)) == 3
