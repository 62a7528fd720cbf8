"""Rebasing over many commits: how far it comes, and what it does where history has gaps."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.compat.edits import (
    LIBRARIES,
    NAMES,
    OURS,
    array,
    begin,
    chunk,
    commit,
    contents,
    create,
    drop,
    group,
    move,
    opened,
    plain_conflicts,
    plain_diff,
)
from tests.oracle.libraries import KNOWS_V2, REFERENCE, SPEC_VERSIONS
from tests.oracle.outcomes import kind_of

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.compat

BASE = (group("/"), array("/a", 8), chunk("/a", 7), group("/g"))
SPEC_V2 = pytest.mark.parametrize("place", [2] if KNOWS_V2 else [], indirect=True)


@pytest.fixture(params=LIBRARIES, ids=list(NAMES.values()))
def library(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


@pytest.fixture(params=SPEC_VERSIONS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    commit(create(REFERENCE, tmp_path / "repository", request.param), *BASE)
    return tmp_path / "repository"


def rebase_failure(library: ModuleType, session: Any) -> Any:
    with pytest.raises(library.IcechunkError) as raised:
        session.rebase(library.ConflictDetector())
    return raised.value


def expire(place: Path) -> None:
    """Expire every commit that was made before, but the first and the newest."""
    time.sleep(0.01)
    now = datetime.now(UTC)
    time.sleep(0.01)
    repository = opened(REFERENCE, place)
    commit(repository, group("/expired", at=now.isoformat()))
    assert repository.expire_snapshots(now)


def test_goes_as_far_as_the_commit_that_conflicts(place: Path, library: ModuleType) -> None:
    repository = opened(library, place)
    session = begin(repository, [chunk("/a", 0), chunk("/a", 1)])
    before = plain_diff(session.status())
    ids = [commit(opened(REFERENCE, place), chunk("/a", at, 9)) for at in (5, 6, 1, 0)]
    failure = rebase_failure(library, session)
    assert plain_conflicts(library, failure.conflicts) == [["ChunkDoubleUpdate", "/a", [[1]]]]
    assert (session.snapshot_id, failure.snapshot) == (ids[1], ids[2])
    assert plain_diff(session.status()) == before
    with pytest.raises(library.ConflictError):
        session.commit("too early")
    session.rebase(library.BasicConflictSolver())
    assert session.snapshot_id == ids[3]
    session.commit("rebased")
    found = contents(repository)
    assert [found[f"a/c/{at}"] for at in (0, 1, 5, 6)] == [b"\1", b"\1", b"\x09", b"\x09"]


def contents_after(session: Any, repository: Any) -> dict[str, bytes]:
    session.commit("rebased")
    return contents(repository)


def test_comes_over_more_commits_than_are_fetched_at_once(place: Path, library: ModuleType) -> None:
    repository = opened(library, place)
    session = begin(repository, [chunk("/a", 0)])
    other = opened(REFERENCE, place)
    ids = [commit(other, chunk("/a", 1 + number % 6, number)) for number in range(40)]
    session.rebase(library.ConflictDetector())
    assert session.snapshot_id == ids[-1]
    assert contents_after(session, repository)["a/c/4"] == bytes([39])


def test_nothing_happens_at_the_tip_and_on_a_branch_that_is_gone(
    place: Path, library: ModuleType
) -> None:
    repository = opened(library, place)
    repository.create_branch("other", repository.lookup_branch("main"))
    session = begin(repository, [chunk("/a", 0)], branch="other")
    base = session.snapshot_id
    session.rebase(library.ConflictDetector())
    assert session.snapshot_id == base
    repository.delete_branch("other")
    session.rebase(library.ConflictDetector())
    assert session.snapshot_id == base
    assert plain_diff(session.status()) == {"updated_chunks": {"/a": [[0]]}}


def test_a_missing_log_stops_it_and_is_named(place: Path, library: ModuleType) -> None:
    repository = opened(library, place)
    session = begin(repository, [chunk("/a", 0)])
    base = session.snapshot_id
    lost = commit(opened(REFERENCE, place), chunk("/a", 5))
    (place / "transactions" / lost).unlink()
    failure = rebase_failure(library, session)
    assert kind_of(failure) in ("object-not-found", None)
    assert session.snapshot_id == base
    if library is OURS:
        assert lost in str(failure)


@SPEC_V2
def test_an_amended_tip_counts_with_all_of_its_changes(place: Path, library: ModuleType) -> None:
    repository = opened(library, place)
    commit(repository, chunk("/a", 1))
    fits = begin(repository, [chunk("/a", 0)])
    clashes = begin(repository, [chunk("/a", 1, 5)])
    amended = begin(opened(REFERENCE, place), [chunk("/a", 2)]).amend("amended")
    fits.rebase(library.ConflictDetector())
    assert fits.snapshot_id == amended
    failure = rebase_failure(library, clashes)
    assert plain_conflicts(library, failure.conflicts) == [["ChunkDoubleUpdate", "/a", [[1]]]]


@SPEC_V2
@pytest.mark.parametrize("edits", [[chunk("/a", 0)], [group("/n")], []])
def test_moves_of_theirs_are_never_rebased_over(
    place: Path, library: ModuleType, edits: list[Any]
) -> None:
    session = begin(opened(library, place), edits)
    move(opened(REFERENCE, place), ("/g", "/h"))
    failure = rebase_failure(library, session)
    expected = [["MoveOperationCannotBeRebased", "", []]]
    assert plain_conflicts(library, failure.conflicts) == expected


@SPEC_V2
def test_moves_there_and_back_are_no_moves(place: Path, library: ModuleType) -> None:
    repository = opened(library, place)
    session = begin(repository, [chunk("/a", 0)])
    id = move(opened(REFERENCE, place), ("/g", "/h"), ("/h", "/g"))
    session.rebase(library.ConflictDetector())
    assert session.snapshot_id == id


@SPEC_V2
def test_logs_of_expired_commits_still_count(place: Path) -> None:
    """The reference notices the conflict, and fails with an internal error."""
    sessions = {
        library: begin(opened(library, place), [chunk("/a", 1, 5)]) for library in LIBRARIES
    }
    other = opened(REFERENCE, place)
    for at in (0, 1, 2):
        commit(other, chunk("/a", at, 9))
    expire(place)
    failure = rebase_failure(OURS, sessions[OURS])
    assert plain_conflicts(OURS, failure.conflicts) == [["ChunkDoubleUpdate", "/a", [[1]]]]
    assert kind_of(rebase_failure(REFERENCE, sessions[REFERENCE])) == "conflicting-path-not-found"
    sessions[OURS].rebase(OURS.BasicConflictSolver())
    assert contents_after(sessions[OURS], other)["a/c/1"] == b"\5"


@SPEC_V2
def test_an_expired_base_does_not_conflict_with_what_was_before_it(place: Path) -> None:
    """The reference begins with the first commit, and lets the base conflict with itself."""
    sessions = {
        library: begin(opened(library, place), [chunk("/a", 7, 5)]) for library in LIBRARIES
    }
    other = opened(REFERENCE, place)
    commit(other, chunk("/a", 0))
    expire(place)
    assert kind_of(rebase_failure(REFERENCE, sessions[REFERENCE])) == "conflicting-path-not-found"
    sessions[OURS].rebase(OURS.ConflictDetector())
    found = contents_after(sessions[OURS], other)
    assert (found["a/c/7"], found["a/c/0"]) == (b"\5", b"\1")


@SPEC_V2
def test_a_lost_log_of_an_expired_commit_stops_it(place: Path, library: ModuleType) -> None:
    session = begin(opened(library, place), [chunk("/a", 1)])
    base, before = session.snapshot_id, plain_diff(session.status())
    lost = commit(opened(REFERENCE, place), chunk("/a", 0))
    expire(place)
    (place / "transactions" / lost).unlink()
    failure = rebase_failure(library, session)
    assert isinstance(failure, library.SessionStateError)
    assert kind_of(failure) == "rebase-tx-log-pruned"
    assert lost in str(failure)
    if library is OURS:
        assert (session.snapshot_id, plain_diff(session.status())) == (base, before)


def reset_to_parent(repository: Any) -> str:
    parent = list(repository.ancestry(branch="main"))[1].id
    repository.reset_branch("main", parent)
    return str(parent)


@SPEC_V2
@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        (chunk("/n", 0), "ChunksUpdatedInDeletedArray"),
        (array("/n", x=1), "ZarrMetadataUpdateOfDeletedArray"),
        (group("/m", x=1), "ZarrMetadataUpdateOfDeletedGroup"),
    ],
)
def test_changes_of_nodes_that_a_reset_took_away_are_conflicts(
    place: Path, edit: Any, kind: str
) -> None:
    """The reference drops such changes and says nothing."""
    repository = opened(OURS, place)
    commit(repository, array("/n"), group("/m"))
    session = begin(repository, [edit])
    base = session.snapshot_id
    tip = reset_to_parent(opened(REFERENCE, place))
    failure = rebase_failure(OURS, session)
    path = "/m" if kind.endswith("Group") else "/n"
    assert plain_conflicts(OURS, failure.conflicts) == [[kind, path, []]]
    assert (session.snapshot_id, failure.snapshot) == (base, tip)


@SPEC_V2
def test_other_changes_go_onto_a_branch_that_was_reset(place: Path, library: ModuleType) -> None:
    repository = opened(library, place)
    commit(repository, array("/n"))
    session = begin(repository, [chunk("/a", 1)])
    tip = reset_to_parent(opened(REFERENCE, place))
    session.rebase(library.ConflictDetector())
    assert session.snapshot_id == tip
    assert "n/zarr.json" not in contents_after(session, repository)


@pytest.mark.parametrize("place", [1], indirect=True)
def test_a_branch_of_spec_v1_that_was_reset_cannot_be_rebased_onto(
    place: Path, library: ModuleType
) -> None:
    repository = opened(library, place)
    commit(repository, array("/n"))
    session = begin(repository, [chunk("/a", 1)])
    reset_to_parent(opened(REFERENCE, place))
    base = session.snapshot_id
    assert kind_of(rebase_failure(library, session)) in ("object-not-found", None)
    assert session.snapshot_id == base


def test_a_node_that_both_replaced_is_a_conflict(place: Path) -> None:
    """The reference commits two nodes at one path."""
    session = begin(opened(OURS, place), [drop("/a"), array("/a", 2)])
    commit(opened(REFERENCE, place), drop("/a"), array("/a", 3))
    with pytest.raises(OURS.RebaseFailedError) as raised:
        session.rebase(OURS.BasicConflictSolver())
    assert plain_conflicts(OURS, raised.value.conflicts) == [
        ["NewNodeConflictsWithExistingNode", "/a", []]
    ]
