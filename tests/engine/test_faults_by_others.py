"""Others change the repository amid a commit: only what concerns its branch stops it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from icechunk_stream import ConflictError, Repository, in_memory_storage
from icechunk_stream.testing.storage_calls import Call, Fail
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.contents import GROUP, Contents, array, numbers, read, write
from tests.concurrency.three_commits import ROOT, messages
from tests.concurrency.written_once import assert_written_once

if TYPE_CHECKING:
    from collections.abc import Callable

BASE: Contents = {"a/zarr.json": array((8,), (1,)), "zarr.json": GROUP}
OURS: Contents = {"a/c/1": numbers(1), "a/c/2": bytes(8)}


def commit(repository: Repository, branch: str, contents: Contents, message: str) -> str:
    session = repository.writable_session(branch)
    write(session.store, contents)
    return str(session.commit(message))


def on_another_branch(others: Repository) -> None:
    commit(others, "side", {"a/c/3": numbers(3)}, "theirs")


def new_branch(others: Repository) -> None:
    others.create_branch("new", others.lookup_branch("main"))


def new_tag(others: Repository) -> None:
    others.create_tag("t", others.lookup_branch("main"))


def gone_branch(others: Repository) -> None:
    others.delete_branch("side")


def reset(id: str, others: Repository) -> None:
    others.reset_branch("main", id)


UNRELATED: list[Callable[[Repository], None]] = [
    on_another_branch,
    new_branch,
    new_tag,
    gone_branch,
]


class Scene:
    """A session with changes, and others who come between two of its storage calls."""

    def __init__(self, spec_version: int) -> None:
        self.plain = in_memory_storage()
        self.storage = WrappedStorage(self.plain, in_order=True)
        Repository.create(self.plain, spec_version=spec_version)
        id = commit(self.others, "main", BASE, "base")
        self.others.create_branch("side", id)
        self.session = Repository.open(self.storage).writable_session("main")
        write(self.session.store, OURS)
        self.storage.script.forget()

    @property
    def others(self) -> Repository:
        return Repository.open(self.plain)

    def interrupt(self, nth: int, act: Callable[[Repository], None]) -> None:
        """Let others act before our n-th call."""
        script = self.storage.script
        first = script.count

        def before(call: Call) -> None:
            if call.number - first == nth:
                act(self.others)

        script.before = before

    def assert_done(self, history: list[str]) -> None:
        assert messages(self.others) == [ROOT, *history]
        assert_written_once(self.storage.script.calls)
        found = read(self.others.readonly_session("main").store)
        assert found == dict(sorted({**BASE, **OURS}.items()))


def calls_of_a_commit(spec_version: int) -> int:
    scene = Scene(spec_version)
    scene.session.commit("ours")
    return len(scene.storage.script.calls)


@pytest.mark.parametrize("act", UNRELATED)
@pytest.mark.parametrize("spec_version", [1, 2])
def test_what_does_not_concern_the_branch_stops_no_commit(
    spec_version: int, act: Callable[[Repository], None]
) -> None:
    """Spec v2 has all branches in one object, which somebody else has just replaced."""
    for nth in range(1, calls_of_a_commit(spec_version) + 1):
        scene = Scene(spec_version)
        scene.interrupt(nth, act)
        assert scene.session.commit("ours") == scene.others.lookup_branch("main")
        scene.assert_done(["base", "ours"])
        assert len(scene.storage.script.calls_of("put", "snapshots/*")) == 1


def test_the_log_stays_in_order_when_others_are_quicker() -> None:
    for nth in range(1, calls_of_a_commit(2) + 1):
        scene = Scene(2)
        scene.interrupt(nth, on_another_branch)
        scene.session.commit("ours")
        updates = list(scene.others.ops_log())
        times = [update.updated_at for update in updates]
        assert times == sorted(set(times), reverse=True)
        assert len(updates) == 5
        assert updates[0].backup_path is None
        for update in updates[1:]:
            assert scene.plain.stat(f"overwritten/{update.backup_path}") is not None


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_branch_that_was_reset_stops_a_commit(spec_version: int) -> None:
    for nth in range(1, calls_of_a_commit(spec_version) + 1):
        scene = Scene(spec_version)
        first = list(scene.others.ancestry(branch="main"))[-1].id
        scene.interrupt(nth, partial(reset, first))
        with pytest.raises(ConflictError) as caught:
            scene.session.commit("ours")
        assert caught.value.actual_parent == first
        assert messages(scene.others) == [ROOT]


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_chunk_that_could_not_be_stored_is_written_again_in_the_same_session(
    spec_version: int,
) -> None:
    scene = Scene(spec_version)
    big = {"b/zarr.json": array((512,), (256,)), "b/c/0": bytes(range(256)) * 8}
    scene.storage.script.disturb(Fail(), method="put", key="chunks/*")
    with pytest.raises(Exception, match="try again"):
        write(scene.session.store, big)
    found = read(scene.session.store)
    assert found == dict(sorted({**BASE, **OURS, "b/zarr.json": big["b/zarr.json"]}.items()))
    write(scene.session.store, big)
    scene.session.commit("ours")
    found = read(scene.others.readonly_session("main").store)
    assert found == dict(sorted({**BASE, **OURS, **big}.items()))
