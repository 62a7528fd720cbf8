"""Transaction logs that are gone: what needs none works, what needs them says which is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icechunk_stream import (
    ConflictDetector,
    ConflictError,
    ObjectNotFoundError,
    Repository,
    in_memory_storage,
)
from tests.concurrency.contents import GROUP, Contents, array, copied, numbers, read, write
from tests.concurrency.three_commits import ROOT, messages
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS

if TYPE_CHECKING:
    from pathlib import Path

BASE: Contents = {"a/zarr.json": array((8,), (1,)), "zarr.json": GROUP}
FIVE = ["0", "1", "2", "3", "4"]


class Holed:
    """Five commits, of which the third has lost its log, and a session begun at the second.

    Each commit is made by a repository object of its own: none remembers what others wrote.
    """

    def __init__(self, spec_version: int) -> None:
        self.storage = in_memory_storage()
        self.spec_version = spec_version
        Repository.create(self.storage, spec_version=spec_version)
        self.ids = [self.commit(BASE, "0"), self.commit(chunk(1), "1")]
        self.session = self.repository.writable_session("main")
        write(self.session.store, chunk(7))
        self.ids += [self.commit(chunk(number), str(number)) for number in (2, 3, 4)]
        self.gone = self.lose(2)

    @property
    def repository(self) -> Repository:
        return Repository.open(self.storage)

    def lose(self, number: int) -> str:
        """Delete the log of a commit."""
        id = self.ids[number]
        assert self.storage.delete_many([f"transactions/{id}"]) == []
        return id

    def commit(self, contents: Contents, message: str) -> str:
        session = self.repository.writable_session("main")
        write(session.store, contents)
        return str(session.commit(message))

    def assert_history(self, expected: list[str], contents: Contents) -> None:
        assert messages(self.repository) == [ROOT, *expected]
        found = self.repository.readonly_session("main")
        assert read(found.store) == dict(sorted(contents.items()))


def chunk(number: int) -> Contents:
    return {f"a/c/{number}": numbers(number)}


def chunks(*numbers: int) -> Contents:
    found = dict(BASE)
    for number in numbers:
        found |= chunk(number)
    return found


@pytest.fixture(params=[1, 2])
def holed(request: pytest.FixtureRequest) -> Holed:
    return Holed(request.param)


def test_reads_and_plain_commits_need_no_log(holed: Holed, tmp_path: Path) -> None:
    holed.assert_history(FIVE, chunks(1, 2, 3, 4))
    holed.commit(chunk(5), "5")
    holed.assert_history([*FIVE, "5"], chunks(1, 2, 3, 4, 5))
    for id in holed.ids:
        assert read(holed.repository.readonly_session(snapshot_id=id).store)["zarr.json"] == GROUP
    if holed.spec_version in SPEC_VERSIONS:
        folder = REFERENCE.local_filesystem_storage(str(copied(holed.storage, tmp_path)))
        theirs = REFERENCE.Repository.open(folder)
        assert messages(theirs) == [ROOT, *FIVE, "5"]
        found = theirs.readonly_session("main")
        assert read(found.store) == dict(sorted(chunks(1, 2, 3, 4, 5).items()))


def test_a_rebase_over_the_hole_names_it_and_changes_nothing(holed: Holed) -> None:
    base = holed.session.snapshot_id
    with pytest.raises(ObjectNotFoundError, match=f"the snapshot {holed.gone}") as caught:
        holed.session.rebase(ConflictDetector())
    assert caught.value.key == f"transactions/{holed.gone}"
    with pytest.raises(ObjectNotFoundError, match=holed.gone):
        holed.session.commit("7", rebase_with=ConflictDetector())
    with pytest.raises(ConflictError):
        holed.session.commit("7")
    assert holed.session.snapshot_id == base
    assert holed.session.has_uncommitted_changes
    holed.assert_history(FIVE, chunks(1, 2, 3, 4))


def test_a_rebase_that_begins_after_the_hole_works(holed: Holed) -> None:
    session = holed.repository.writable_session("main")
    write(session.store, chunk(6))
    holed.commit(chunk(5), "5")
    session.commit("6", rebase_with=ConflictDetector())
    holed.assert_history([*FIVE, "5", "6"], chunks(1, 2, 3, 4, 5, 6))


def test_a_diff_over_the_hole_names_it(holed: Holed) -> None:
    with pytest.raises(ObjectNotFoundError, match=f"the snapshot {holed.gone}") as caught:
        holed.repository.diff(from_snapshot_id=holed.ids[0], to_branch="main")
    assert caught.value.key == f"transactions/{holed.gone}"
    found = holed.repository.diff(from_snapshot_id=holed.gone, to_branch="main")
    assert found.updated_chunks == {"/a": [[3], [4]]}


def test_amending_a_commit_without_a_log_names_it() -> None:
    """What the tip changed has to be in the log of the snapshot that takes its place."""
    holed = Holed(2)
    tip = holed.lose(4)
    session = holed.repository.writable_session("main")
    write(session.store, chunk(5))
    with pytest.raises(ObjectNotFoundError, match=f"the snapshot {tip}") as caught:
        session.amend("amended")
    assert caught.value.key == f"transactions/{tip}"
    holed.assert_history(FIVE, chunks(1, 2, 3, 4))
    session.commit("5")
    holed.assert_history([*FIVE, "5"], chunks(1, 2, 3, 4, 5))
