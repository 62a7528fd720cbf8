"""A writer dies at every call of three commits; one that starts anew goes on from the tip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icechunk_stream import ConflictError, Repository, in_memory_storage
from icechunk_stream.testing.storage_calls import Call, Fail, Fault, LandLate, LoseAnswer
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.contents import copied
from tests.concurrency.three_commits import (
    ALL,
    STEPS,
    assert_all_committed_once,
    changed,
    commit_all,
    messages,
)
from tests.concurrency.written_once import assert_written_once
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST_TRIES = 3


class Death(BaseException):
    """Whatever the writer was about to do, it does not do it any more."""


def dead(_: Call) -> Exception:
    raise Death


FAULTS: dict[str, Callable[[], Fault]] = {
    "before-the-call": lambda: Fail(dead),
    "before-the-answer": lambda: LoseAnswer(dead),
    "and-the-call-lands-amid-the-next-writer": lambda: LandLate(
        lambda call: call.method == "put_if", dead
    ),
    "and-the-call-lands-in-the-end": lambda: LandLate(lambda _: False, dead),
}


def calls_of_three_commits(spec_version: int) -> int:
    storage = WrappedStorage(in_memory_storage(), in_order=True)
    repository = Repository.create(storage, spec_version=spec_version)
    storage.script.forget()
    commit_all(repository, storage.inner)
    return len(storage.script.calls)


def write_all(storage: WrappedStorage) -> int:
    """Make the commits that are not in the history yet; how many writers died."""
    deaths = 0
    for number, step in enumerate(STEPS):
        tries = 0
        while len(messages(Repository.open(storage.inner))) < number + 2:
            tries += 1
            assert tries <= MOST_TRIES
            try:
                changed(Repository.open(storage), step).commit(step.message)
            except Death:
                deaths += 1
            except ConflictError as error:
                # The swap of the writer that is dead came first.
                assert error.actual_parent is not None  # noqa: PT017 - not every try fails
        assert messages(Repository.open(storage.inner)) == ALL[: number + 2]
    return deaths


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("spec_version", [1, 2])
def test_what_a_dead_writer_left_harms_nobody(
    spec_version: int, fault: str, tmp_path: Path
) -> None:
    for nth in range(1, calls_of_three_commits(spec_version) + 1):
        plain = in_memory_storage()
        storage = WrappedStorage(plain, in_order=True)
        Repository.create(plain, spec_version=spec_version)
        storage.script.disturb(FAULTS[fault](), nth=nth)
        assert write_all(storage) == 1
        storage.script.land()
        assert_all_committed_once(Repository.open(plain))
        assert_written_once(storage.script.calls)
        if spec_version in SPEC_VERSIONS:
            folder = REFERENCE.local_filesystem_storage(str(copied(plain, tmp_path / str(nth))))
            assert_all_committed_once(REFERENCE.Repository.open(folder))
