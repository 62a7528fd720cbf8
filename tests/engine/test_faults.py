"""Each call of three commits fails once: every commit is in the history once all the same."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from icechunk_stream import (
    ConflictDetector,
    Repository,
    StorageError,
    in_memory_storage,
    local_filesystem_storage,
)
from icechunk_stream.testing.storage_calls import (
    Call,
    Fail,
    Fault,
    LandLate,
    LoseAnswer,
    doubt,
)
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.contents import GROUP, Contents, array, copied, numbers, read, write
from tests.concurrency.three_commits import (
    ROOT,
    STEPS,
    assert_all_committed_once,
    commit_all,
    messages,
)
from tests.concurrency.written_once import assert_written_once
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from icechunk_stream.session import Session
    from icechunk_stream.storage import Storage

both_specs = pytest.mark.parametrize("spec_version", [1, 2])


def a_swap(call: Call) -> bool:
    """The next try of a commit is about to be decided."""
    return call.method == "put_if"


def any_call(_: Call) -> bool:
    return True


def never(_: Call) -> bool:
    return False


def after_another_call() -> Callable[[Call], bool]:
    seen: list[Call] = []

    def until(call: Call) -> bool:
        seen.append(call)
        return len(seen) > 1

    return until


FAULTS: dict[str, Callable[[], Fault]] = {
    "fails": Fail,
    "times-out": lambda: Fail(doubt),
    "loses-its-answer": LoseAnswer,
    "lands-before-the-next-call": lambda: LandLate(any_call),
    "lands-after-the-next-call": lambda: LandLate(after_another_call()),
    "lands-amid-the-next-try": lambda: LandLate(a_swap),
    "lands-in-the-end": lambda: LandLate(never),
}


@cache
def calls_of_three_commits(spec_version: int) -> int:
    storage = WrappedStorage(in_memory_storage(), in_order=True)
    repository = Repository.create(storage, spec_version=spec_version)
    storage.script.forget()
    assert commit_all(repository, storage.inner) == []
    return len(storage.script.calls)


def run(plain: Storage, spec_version: int, fault: Fault, nth: int) -> int:
    """Make the commits with one fault; how often one failed."""
    storage = WrappedStorage(plain, in_order=True)
    repository = Repository.create(storage, spec_version=spec_version)
    storage.script.disturb(fault, nth=nth)
    errors = commit_all(repository, plain)
    storage.script.land()
    assert_all_committed_once(Repository.open(plain))
    assert_written_once(storage.script.calls)
    return len(errors)


def check_with_the_reference(folder: Path, spec_version: int) -> None:
    if spec_version not in SPEC_VERSIONS:
        return
    storage = REFERENCE.local_filesystem_storage(str(folder))
    assert_all_committed_once(REFERENCE.Repository.open(storage))


def assert_number_of_errors(fault: str, errors: list[int], calls: int) -> None:
    """A fault is seen at most once; swaps whose answers are lost are found, or sent again."""
    assert max(errors) == 1
    assert sum(errors) == (calls if fault == "fails" else calls - len(STEPS))


@both_specs
@pytest.mark.parametrize("fault", FAULTS)
def test_each_commit_in_memory_counts_once(fault: str, spec_version: int, tmp_path: Path) -> None:
    calls = calls_of_three_commits(spec_version)
    errors = []
    for nth in range(1, calls + 1):
        plain = in_memory_storage()
        errors.append(run(plain, spec_version, FAULTS[fault](), nth))
        check_with_the_reference(copied(plain, tmp_path / str(nth)), spec_version)
    assert_number_of_errors(fault, errors, calls)


@both_specs
@pytest.mark.parametrize("fault", ["fails", "loses-its-answer", "lands-amid-the-next-try"])
def test_each_commit_on_local_disk_counts_once(
    fault: str, spec_version: int, tmp_path: Path
) -> None:
    calls = calls_of_three_commits(spec_version)
    errors = []
    for nth in range(1, calls + 1):
        plain = local_filesystem_storage(tmp_path / str(nth), durability="os")
        errors.append(run(plain, spec_version, FAULTS[fault](), nth))
        check_with_the_reference(tmp_path / str(nth), spec_version)
    assert_number_of_errors(fault, errors, calls)


# -- rebase and amend ----------------------------------------------------------------------------


BASE: Contents = {"a/zarr.json": array((8,), (1,)), "zarr.json": GROUP}
OURS: Contents = {"a/c/1": numbers(1), "a/c/2": numbers(2)}
THEIRS: Contents = {"a/c/5": numbers(5)}


class Scene:
    """A session with changes on a branch that has moved on, in a storage with a script."""

    def __init__(self, spec_version: int, *, overtaken: bool) -> None:
        self.spec_version = spec_version
        self.plain = in_memory_storage()
        self.storage = WrappedStorage(self.plain, in_order=True)
        Repository.create(self.plain, spec_version=spec_version)
        commit(self.plain, BASE, "base")
        self.session = Repository.open(self.storage).writable_session("main")
        write(self.session.store, OURS)
        if overtaken:
            commit(self.plain, THEIRS, "theirs")
        self.first = len(self.storage.script.calls)

    @property
    def calls(self) -> int:
        return len(self.storage.script.calls) - self.first

    def try_twice(self, act: Callable[[Session], str]) -> int:
        """The errors on the way to success."""
        errors = 0
        while not self.session.read_only:
            try:
                act(self.session)
            except StorageError:
                errors += 1
            assert errors <= 1
        self.storage.script.land()
        return errors

    def assert_history(self, expected: list[str], contents: Contents, folder: Path) -> None:
        assert_written_once(self.storage.script.calls)
        repositories: list[Any] = [Repository.open(self.plain)]
        if self.spec_version in SPEC_VERSIONS:
            there = REFERENCE.local_filesystem_storage(str(copied(self.plain, folder)))
            repositories.append(REFERENCE.Repository.open(there))
        for repository in repositories:
            assert messages(repository) == [ROOT, *expected]
            assert read(repository.readonly_session("main").store) == contents


def commit(storage: Storage, contents: Contents, message: str) -> None:
    session = Repository.open(storage).writable_session("main")
    write(session.store, contents)
    session.commit(message)


def rebase_and_commit(session: Session) -> str:
    return session.commit("ours", rebase_with=ConflictDetector())


def amend(session: Session) -> str:
    return session.amend("amended")


@both_specs
@pytest.mark.parametrize("fault", FAULTS)
def test_each_commit_that_is_rebased_counts_once(
    fault: str, spec_version: int, tmp_path: Path
) -> None:
    unhurt = Scene(spec_version, overtaken=True)
    assert unhurt.try_twice(rebase_and_commit) == 0
    for nth in range(1, unhurt.calls + 1):
        scene = Scene(spec_version, overtaken=True)
        scene.storage.script.disturb(FAULTS[fault](), nth=nth)
        scene.try_twice(rebase_and_commit)
        contents = {**BASE, **OURS, **THEIRS}
        history = ["base", "theirs", "ours"]
        scene.assert_history(history, dict(sorted(contents.items())), tmp_path / str(nth))


@pytest.mark.parametrize("fault", FAULTS)
def test_each_amendment_counts_once(fault: str, tmp_path: Path) -> None:
    unhurt = Scene(2, overtaken=False)
    assert unhurt.try_twice(amend) == 0
    for nth in range(1, unhurt.calls + 1):
        scene = Scene(2, overtaken=False)
        scene.storage.script.disturb(FAULTS[fault](), nth=nth)
        scene.try_twice(amend)
        contents = dict(sorted({**BASE, **OURS}.items()))
        scene.assert_history(["amended"], contents, tmp_path / str(nth))
