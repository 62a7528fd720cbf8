"""A chunk whose object is being stored while its session commits, rebases or discards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icechunk_stream import (
    BasicConflictSolver,
    CommitStateUnknownError,
    ConflictDetector,
    ConflictError,
    IcechunkError,
    ReadOnlyError,
    RebaseFailedError,
    SessionStateError,
)
from icechunk_stream.testing.storage_calls import Fail, doubt
from tests.concurrency.contents import Contents, array, read, write
from tests.engine.test_faults_of_swaps import BASE, MORE, OURS, THEIRS, Scene, commit, tip

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE: Contents = {"a/c/5": b"x" * 1000}


@pytest.fixture(params=[1, 2])
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


def write_while(scene: Scene, act: Callable[[], object]) -> None:
    """Store a chunk, and do something before its object is there."""
    scene.at_next("put", act)
    write(scene.session.store, LARGE)


def test_a_chunk_that_a_rebase_overtakes_is_refused(scene: Scene) -> None:
    commit(scene.others, THEIRS, "theirs")

    with pytest.raises(ReadOnlyError, match="write it again"):
        write_while(scene, lambda: scene.session.rebase(BasicConflictSolver()))

    write(scene.session.store, LARGE)
    scene.session.commit("ours")
    assert read(scene.others.readonly_session("main").store)["a/c/5"] == LARGE["a/c/5"]


def test_a_chunk_that_a_commit_of_unknown_outcome_overtakes_is_refused(scene: Scene) -> None:
    def unknown() -> None:
        scene.commit_of_unknown_outcome(landed=True)

    with pytest.raises(ReadOnlyError):
        write_while(scene, unknown)

    assert scene.session.commit("ours") == tip(scene)
    scene.expect(["base", "ours"], BASE, OURS)


def test_a_chunk_that_a_discard_overtakes_is_refused(scene: Scene) -> None:
    with pytest.raises(ReadOnlyError):
        write_while(scene, scene.session.discard_changes)

    assert not scene.session.has_uncommitted_changes


def test_a_chunk_that_is_stored_while_a_commit_fails_counts(scene: Scene) -> None:
    def fail() -> None:
        scene.script.disturb(Fail(), method="put_if")
        with pytest.raises(IcechunkError):
            scene.session.commit("fails")

    write_while(scene, fail)

    scene.session.commit("ours")
    scene.expect(["base", "ours"], BASE, OURS, LARGE)


def test_what_was_reset_away_stays_away_after_a_rebase_that_got_stuck(scene: Scene) -> None:
    before = tip(scene)
    commit(scene.others, THEIRS, "b")
    commit(scene.others, OURS, "c")
    with pytest.raises(RebaseFailedError):
        scene.session.rebase(ConflictDetector())
    scene.session.discard_changes()
    scene.others.reset_branch("main", before)

    write(scene.session.store, MORE)
    with pytest.raises(ConflictError):
        scene.session.commit("ours")

    assert tip(scene) == before


def test_an_amend_after_a_rebase_that_got_stuck_is_a_conflict() -> None:
    scene = Scene(2)
    commit(scene.others, THEIRS, "b")
    commit(scene.others, OURS, "c")
    with pytest.raises(RebaseFailedError):
        scene.session.rebase(ConflictDetector())

    with pytest.raises(ConflictError):
        scene.session.amend("ours")


def test_a_flush_after_a_rebase_that_got_stuck_needs_no_tip(scene: Scene) -> None:
    commit(scene.others, THEIRS, "b")
    commit(scene.others, OURS, "c")
    with pytest.raises(RebaseFailedError):
        scene.session.rebase(ConflictDetector())

    id = scene.session.flush("aside")

    store = scene.others.readonly_session(snapshot_id=id).store
    assert read(store) == dict(sorted({**BASE, **THEIRS, **OURS}.items()))


def test_a_flush_needs_no_branch() -> None:
    scene = Scene(2)
    scene.repository.create_branch("side", tip(scene))
    session = scene.repository.writable_session("side")
    write(session.store, OURS)
    scene.others.delete_branch("side")

    id = session.flush("aside")

    assert scene.others.lookup_snapshot(id).message == "aside"


def test_an_outcome_stays_unknown_when_a_later_try_fails_for_certain(scene: Scene) -> None:
    scene.script.disturb(Fail(doubt), method="put_if", nth=1)
    scene.script.disturb(Fail(), method="put_if", nth=2, times=1000)

    with pytest.raises(CommitStateUnknownError, match="never commits twice"):
        scene.session.commit("ours")
    scene.script.calm()

    assert scene.session.commit("ours") == tip(scene)
    scene.expect(["base", "ours"], BASE, OURS)


def test_a_second_commit_of_one_session_is_refused_not_made_twice(scene: Scene) -> None:
    def again() -> None:
        scene.script.before = None

    scene.at_next("put_if", again)
    scene.session.commit("ours")

    with pytest.raises(SessionStateError):
        scene.session.commit("ours")
    scene.expect(["base", "ours"], BASE, OURS)


def test_chunks_of_an_array_that_a_reset_took_away_are_not_dropped_in_silence() -> None:
    scene = Scene(2)
    before = tip(scene)
    commit(scene.others, {"a/zarr.json": array((12,), (1,))}, "grown")
    session = scene.repository.writable_session("main")
    write(session.store, {"a/c/10": b"x"})
    scene.others.reset_branch("main", before)

    with pytest.raises(ConflictError):
        session.commit("ours", rebase_with=ConflictDetector())

    assert tip(scene) == before
