"""The one write that decides a commit: its answer is lost, it is late, others come between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from icechunk_stream import (
    BasicConflictSolver,
    CommitStateUnknownError,
    ConflictDetector,
    ConflictError,
    RefNotFoundError,
    Repository,
    SessionStateError,
    SpecVersion,
    StorageError,
    in_memory_storage,
)
from icechunk_stream.testing.storage_calls import Call, Fail, LandLate, LoseAnswer, doubt
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.contents import GROUP, Contents, array, delete, numbers, read, write
from tests.concurrency.three_commits import ROOT, messages

if TYPE_CHECKING:
    from collections.abc import Callable


BASE: Contents = {"a/zarr.json": array((8,), (1,)), "zarr.json": GROUP}
OURS: Contents = {"a/c/1": numbers(1)}
THEIRS: Contents = {"a/c/2": numbers(2)}
MORE: Contents = {"a/c/3": numbers(3)}

both_specs = pytest.mark.parametrize("spec_version", [1, 2])


class Scene:
    """A repository with one commit, in a storage with a script, and another writer of it."""

    def __init__(self, spec_version: int) -> None:
        self.plain = in_memory_storage()
        self.storage = WrappedStorage(self.plain)
        self.script = self.storage.script
        self.spec_version = spec_version
        self.swapped = "repo" if spec_version == 2 else "refs/branch.main/ref.json"
        self.repository = Repository.create(self.storage, spec_version=spec_version)
        commit(self.repository, BASE, "base")
        self.session = self.repository.writable_session("main")
        write(self.session.store, OURS)
        self.script.forget()

    @property
    def others(self) -> Repository:
        """The repository for who comes without a script."""
        return Repository.open(self.plain)

    def at_next(self, method: str, act: Callable[[], object]) -> None:
        """Others do something just before our next call of a kind."""

        def before(call: Call) -> None:
            if call.method == method:
                self.script.before = None
                act()

        self.script.before = before

    def commit_of_unknown_outcome(self, *, landed: bool) -> CommitStateUnknownError:
        """Our swap gets no answer, and neither does the request that would find out."""
        fault = LoseAnswer() if landed else Fail(doubt)
        self.script.disturb(fault, method="put_if")
        self.script.disturb(Fail(), method="read", times=1000)
        with pytest.raises(CommitStateUnknownError) as caught:
            self.session.commit("ours")
        self.script.calm()
        assert self.script.calls_of("delete") == []
        return caught.value

    def expect(self, history: list[str], *contents: Contents) -> None:
        assert messages(self.others) == [ROOT, *history]
        found = read(self.others.readonly_session("main").store)
        expected: Contents = {}
        for part in contents:
            expected |= part
        assert found == dict(sorted(expected.items()))


@pytest.fixture(params=[1, 2])
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


def commit(repository: Repository, contents: Contents, message: str) -> str:
    session = repository.writable_session("main")
    write(session.store, contents)
    return str(session.commit(message))


def tip(scene: Scene) -> str:
    return scene.others.lookup_branch("main")


def test_a_swap_whose_answer_is_lost_is_found(scene: Scene) -> None:
    scene.script.disturb(LoseAnswer(), method="put_if")
    assert scene.session.commit("ours") == tip(scene)
    scene.expect(["base", "ours"], BASE, OURS)


def test_a_swap_that_never_arrived_is_sent_again_with_the_same_snapshot(scene: Scene) -> None:
    scene.script.disturb(Fail(doubt), method="put_if")
    assert scene.session.commit("ours") == tip(scene)
    scene.expect(["base", "ours"], BASE, OURS)
    assert len(scene.script.calls_of("put", "snapshots/*")) == 1
    assert len(scene.script.calls_of("put_if", scene.swapped)) == 2


def test_a_swap_that_lands_before_it_is_sent_again_counts(scene: Scene) -> None:
    scene.script.disturb(LandLate(lambda call: call.method == "put_if"), method="put_if")
    assert scene.session.commit("ours") == tip(scene)
    scene.expect(["base", "ours"], BASE, OURS)


def test_a_swap_that_lands_after_another_commit_changes_nothing(scene: Scene) -> None:
    scene.script.disturb(LandLate(lambda _: False), method="put_if")
    scene.at_next("read", lambda: commit(scene.others, THEIRS, "theirs"))
    with pytest.raises(ConflictError):
        scene.session.commit("ours")
    scene.script.land()
    scene.expect(["base", "theirs"], BASE, THEIRS)
    scene.session.rebase(ConflictDetector())
    write(scene.session.store, MORE)
    scene.session.commit("ours")
    scene.expect(["base", "theirs", "ours"], BASE, THEIRS, OURS, MORE)


def test_a_swap_is_found_beneath_the_commits_of_others(scene: Scene) -> None:
    scene.script.disturb(LoseAnswer(), method="put_if")

    def others() -> None:
        commit(scene.others, THEIRS, "theirs")
        commit(scene.others, MORE, "more")

    scene.at_next("read", others)
    id = scene.session.commit("ours", rebase_with=ConflictDetector())
    assert [info.id for info in scene.others.ancestry(branch="main")][2] == id
    scene.expect(["base", "ours", "theirs", "more"], BASE, OURS, THEIRS, MORE)


def test_when_its_branch_is_deleted_too_only_a_list_of_snapshots_tells(scene: Scene) -> None:
    scene.repository.create_branch("side", tip(scene))
    session = scene.repository.writable_session("side")
    write(session.store, OURS)
    scene.script.disturb(LoseAnswer(), method="put_if")
    scene.at_next("read", lambda: scene.others.delete_branch("side"))
    if scene.repository.spec_version == SpecVersion.v1:
        with pytest.raises(ConflictError, match="the branch 'side' is gone"):
            session.commit("ours")
    else:
        assert scene.others.lookup_snapshot(session.commit("ours")).message == "ours"
    assert scene.others.list_branches() == {"main"}


def test_a_swap_that_never_gets_an_answer_is_given_up(scene: Scene) -> None:
    scene.script.disturb(Fail(doubt), method="put_if", times=1000)
    with pytest.raises(CommitStateUnknownError, match="read it"):
        scene.session.commit("ours")
    assert len(scene.script.calls_of("put_if")) == 3
    scene.expect(["base"], BASE)
    scene.script.calm()
    assert scene.session.commit("ours") == tip(scene)
    scene.expect(["base", "ours"], BASE, OURS)


@pytest.mark.parametrize("landed", [True, False])
def test_an_unknown_outcome_is_told_and_the_next_try_finds_out(scene: Scene, landed: bool) -> None:
    error = scene.commit_of_unknown_outcome(landed=landed)
    assert "never commits twice" in str(error)
    at_the_error = tip(scene)
    assert scene.session.has_uncommitted_changes
    id = scene.session.commit("ours")
    assert id == tip(scene)
    assert (id == at_the_error) == landed
    scene.expect(["base", "ours"], BASE, OURS)


def test_an_unknown_swap_that_lands_amid_the_next_try_counts_once(scene: Scene) -> None:
    scene.script.disturb(LandLate(lambda call: call.method == "put_if"), method="put_if")
    scene.script.disturb(Fail(), method="read", times=1000)
    with pytest.raises(CommitStateUnknownError):
        scene.session.commit("ours")
    scene.expect(["base"], BASE)
    scene.script.calm()
    assert scene.session.commit("ours") == tip(scene)
    scene.expect(["base", "ours"], BASE, OURS)


@pytest.mark.parametrize("solver", [ConflictDetector(), BasicConflictSolver()])
def test_rebasing_over_ones_own_commit_commits_nothing_twice(scene: Scene, solver: Any) -> None:
    scene.commit_of_unknown_outcome(landed=True)
    commit(scene.others, THEIRS, "theirs")
    scene.session.rebase(solver)
    scene.session.commit("ours", allow_empty=True)
    scene.expect(["base", "ours", "theirs"], BASE, OURS, THEIRS)


def test_rebasing_after_an_unknown_outcome_that_is_none(scene: Scene) -> None:
    scene.commit_of_unknown_outcome(landed=False)
    commit(scene.others, THEIRS, "theirs")
    scene.session.rebase(ConflictDetector())
    write(scene.session.store, MORE)
    scene.session.commit("ours")
    scene.expect(["base", "theirs", "ours"], BASE, THEIRS, OURS, MORE)


@pytest.mark.parametrize("landed", [True, False])
def test_nothing_is_changed_while_an_outcome_is_unknown(scene: Scene, landed: bool) -> None:
    """It would be lost with a commit that was made, and nobody would say so."""
    scene.commit_of_unknown_outcome(landed=landed)
    with pytest.raises(SessionStateError, match="commit again"):
        write(scene.session.store, MORE)
    with pytest.raises(SessionStateError, match="commit again"):
        delete(scene.session.store, "a")
    scene.session.commit("ours")
    scene.expect(["base", "ours"], BASE, OURS)


@pytest.mark.parametrize("landed", [True, False])
def test_discarding_after_an_unknown_outcome_begins_anew(scene: Scene, landed: bool) -> None:
    scene.commit_of_unknown_outcome(landed=landed)
    scene.session.discard_changes()
    write(scene.session.store, MORE)
    if not landed:
        scene.session.commit("more")
        scene.expect(["base", "more"], BASE, MORE)
        return
    with pytest.raises(ConflictError):
        scene.session.commit("more")
    scene.session.commit("more", rebase_with=ConflictDetector())
    scene.expect(["base", "ours", "more"], BASE, OURS, MORE)


def test_a_flush_of_unknown_outcome_is_no_commit() -> None:
    scene = Scene(2)
    scene.script.disturb(LoseAnswer(), method="put_if")
    scene.script.disturb(Fail(), method="read", times=1000)
    with pytest.raises(CommitStateUnknownError):
        scene.session.flush("flushed")
    scene.expect(["base"], BASE)
    scene.script.calm()
    assert scene.session.commit("ours") == tip(scene)
    scene.expect(["base", "ours"], BASE, OURS)


@pytest.mark.parametrize("fault", [LoseAnswer(), Fail(doubt)])
def test_an_amendment_counts_once(fault: Any) -> None:
    scene = Scene(2)
    scene.script.disturb(fault, method="put_if")
    assert scene.session.amend("amended") == tip(scene)
    scene.expect(["amended"], BASE, OURS)


def test_an_amendment_of_unknown_outcome_counts_once() -> None:
    scene = Scene(2)
    scene.script.disturb(LoseAnswer(), method="put_if")
    scene.script.disturb(Fail(), method="read", times=1000)
    with pytest.raises(CommitStateUnknownError):
        scene.session.amend("amended")
    scene.script.calm()
    assert scene.session.amend("amended") == tip(scene)
    scene.expect(["amended"], BASE, OURS)


def test_reading_the_tip_fails_after_a_lost_race(scene: Scene) -> None:
    scene.at_next("put_if", lambda: commit(scene.others, THEIRS, "theirs"))
    scene.script.disturb(Fail(), method="read")
    with pytest.raises(StorageError) as caught:
        scene.session.commit("ours")
    assert not isinstance(caught.value, CommitStateUnknownError)
    scene.expect(["base", "theirs"], BASE, THEIRS)
    scene.session.commit("ours", rebase_with=ConflictDetector())
    scene.expect(["base", "theirs", "ours"], BASE, THEIRS, OURS)


def test_a_branch_deleted_amid_a_commit_is_a_typed_error(scene: Scene) -> None:
    scene.repository.create_branch("side", tip(scene))
    session = scene.repository.writable_session("side")
    write(session.store, OURS)
    scene.at_next("put_if", lambda: scene.others.delete_branch("side"))
    with pytest.raises((ConflictError, RefNotFoundError)):
        session.commit("ours", rebase_with=ConflictDetector())
    assert scene.others.list_branches() == {"main"}


def test_a_flush_after_an_unknown_outcome_needs_no_branch_that_stood_still() -> None:
    scene = Scene(2)
    scene.commit_of_unknown_outcome(landed=False)
    commit(scene.others, THEIRS, "theirs")
    id = scene.session.flush("flushed")
    scene.expect(["base", "theirs"], BASE, THEIRS)
    flushed = scene.others.readonly_session(snapshot_id=id)
    assert read(flushed.store) == dict(sorted({**BASE, **OURS}.items()))
