"""Our process and one of the reference at once on one branch of a real S3 server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icechunk_stream import Repository
from tests.concurrency.contents import GROUP, array, numbers, read, write
from tests.concurrency.places import OURS, THEIRS, Bucket, opened, storage
from tests.concurrency.rivals import Rival, at_once
from tests.concurrency.three_commits import ROOT, messages
from tests.oracle.libraries import SPEC_VERSIONS
from tests.oracle.outcomes import is_failure, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.compat

# Seconds by which a rival comes later; with the last ones the other has finished before.
PAUSES = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.5)
GONE = {1: refused("commit-conflict"), 2: refused("branch-not-found")}


class Arena:
    """A repository with an array of eight chunks, and a process of each library."""

    def __init__(self, bucket: Bucket, spec_version: int) -> None:
        self.place = bucket.place()
        self.spec_version = spec_version
        Repository.create(storage(OURS, self.place), spec_version=spec_version)
        self.repository = opened(OURS, self.place)
        session = self.repository.writable_session("main")
        write(session.store, {"zarr.json": GROUP, "a/zarr.json": array((8,), (1,))})
        self.first = session.commit("prepare")


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Rival, Rival]]:
    with Rival(OURS) as ours, Rival(THEIRS) as theirs:
        yield ours, theirs


@pytest.fixture(params=SPEC_VERSIONS)
def arena(request: pytest.FixtureRequest, bucket: Bucket, pair: tuple[Rival, Rival]) -> Arena:
    made = Arena(bucket, request.param)
    assert at_once({rival: {"job": "open", "place": made.place} for rival in pair}) == [None, None]
    return made


def tips(arena: Arena) -> dict[str, str]:
    """The branches as they are now."""
    repository = opened(THEIRS, arena.place)
    return {name: repository.lookup_branch(name) for name in repository.list_branches()}


@pytest.mark.parametrize("committer", [OURS, THEIRS])
def test_a_commit_to_a_branch_that_is_being_deleted(
    arena: Arena, pair: tuple[Rival, Rival], committer: str
) -> None:
    """The branch is gone in the end; the commit came before, or is refused.

    The server lets a conditional PUT through beside a DELETE once in some hundred times. Then the
    branch of spec v1 is there again, at the commit. As seldom it fails beside one, which the other
    library passes on.
    """
    commits, deletes = pair if committer == OURS else pair[::-1]
    outcomes = []
    for number, pauses in enumerate([(p, 0.0) for p in PAUSES] + [(0.0, p) for p in PAUSES]):
        branch = f"b{number}"
        arena.repository.create_branch(branch, arena.first)
        assert commits.do({"job": "change", "branch": branch, "number": 1, "index": 0}) is None
        committed, deleted = at_once(
            {
                commits: {"job": "commit", "message": branch, "pause": pauses[0]},
                deletes: {"job": "delete", "branch": branch, "pause": pauses[1]},
            }
        )
        assert deleted is None
        tip = tips(arena).get(branch)
        outcomes.append(committed)
        if is_failure(committed):
            passed_on = [refused("object-store")] if committer == THEIRS else []
            assert committed in [GONE[arena.spec_version], *passed_on]
            assert tip is None
        else:
            assert tip is None or (arena.spec_version, tip) == (1, committed)
            found = opened(THEIRS, arena.place).readonly_session(snapshot_id=committed)
            assert read(found.store)["a/c/0"] == numbers(1)
    assert outcomes[len(PAUSES) - 1] == GONE[arena.spec_version]
    assert not is_failure(outcomes[-1])
    # Far apart, they are no race.
    assert tips(arena).keys().isdisjoint({f"b{len(PAUSES) - 1}", f"b{2 * len(PAUSES) - 1}"})
    for library in (OURS, THEIRS):
        assert messages(opened(library, arena.place)) == [ROOT, "prepare"]


def test_of_two_commits_on_one_tip_one_is_made(arena: Arena, pair: tuple[Rival, Rival]) -> None:
    expected = [ROOT, "prepare"]
    for number, pauses in enumerate([(p, 0.0) for p in PAUSES] + [(0.0, p) for p in PAUSES]):
        for index, rival in enumerate(pair):
            job = {"job": "change", "branch": "main", "number": number + 1, "index": index}
            assert rival.do(job) is None
        found = at_once(
            {
                rival: {"job": "commit", "message": f"{rival.library} {number}", "pause": pause}
                for rival, pause in zip(pair, pauses, strict=True)
            }
        )
        lost = [is_failure(each) for each in found]
        assert sorted(lost) == [False, True]
        assert found[lost.index(True)] == refused("commit-conflict")
        expected.append(f"{pair[lost.index(False)].library} {number}")
        chunk = read(arena.repository.readonly_session("main").store)[f"a/c/{lost.index(False)}"]
        assert chunk == numbers(number + 1)
    for library in (OURS, THEIRS):
        assert messages(opened(library, arena.place)) == expected
