"""Faults at any calls of several commits, one after another, while others commit too."""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icechunk_stream import ConflictDetector, Repository, StorageError, in_memory_storage
from icechunk_stream.testing.storage_calls import Call, Fail, LandLate, LoseAnswer, doubt
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.contents import GROUP, Contents, array, numbers, read, write
from tests.concurrency.three_commits import ROOT, messages
from tests.concurrency.written_once import assert_written_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.session import Session
    from icechunk_stream.testing.storage_calls import Fault

OURS = 4
CHUNKS = 64
BASE: Contents = {"a/zarr.json": array((CHUNKS,), (1,)), "zarr.json": GROUP}
OTHERS = "others"

FAULTS: dict[str, Callable[[int], Fault]] = {
    "fails": lambda _: Fail(),
    "times-out": lambda _: Fail(doubt),
    "loses-its-answer": lambda _: LoseAnswer(),
    "lands-before-a-later-swap": lambda _: LandLate(lambda call: call.method == "put_if"),
    "lands-some-calls-later": lambda number: LandLate(lambda call: call.number >= number + 4),
}

# Calls that go well, and then what happens to the next one.
events = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from([*FAULTS, OTHERS])), min_size=1, max_size=12
)


class Run:
    """Our commits, disturbed as the events say."""

    def __init__(self, spec_version: int, plan: list[tuple[int, str]], *, in_order: bool) -> None:
        self.plain = in_memory_storage()
        self.storage = WrappedStorage(self.plain, in_order=in_order)
        Repository.create(self.plain, spec_version=spec_version)
        self.theirs = 0
        self.commit(BASE, "base")
        self.moments: list[int] = []
        number = 0
        for gap, event in plan:
            number += gap + 1
            if event == OTHERS:
                self.moments.append(number)
            else:
                self.storage.script.disturb(FAULTS[event](number), nth=number)
        self.storage.script.before = self.let_others

    def let_others(self, call: Call) -> None:
        if call.number in self.moments:
            self.theirs += 1
            self.commit(chunk(CHUNKS - self.theirs), f"theirs {self.theirs}")

    def commit(self, contents: Contents, message: str) -> None:
        session = Repository.open(self.plain).writable_session("main")
        write(session.store, contents)
        session.commit(message, rebase_with=ConflictDetector())

    def commit_ours(self) -> None:
        for number in range(OURS):
            self.insist(number)
        # A rebase that failed leaves the logs that it did not wait for to their threads.
        while self.storage.script.running:
            sleep(0.001)

    def insist(self, number: int) -> None:
        """One commit, tried until it succeeds."""
        session: Session | None = None
        for _ in range(20):
            try:
                session = session or self.changed(number)
                session.commit(f"ours {number}", rebase_with=ConflictDetector())
            except StorageError:
                continue
            return
        raise AssertionError("more failures than faults")

    def changed(self, number: int) -> Session:
        session = Repository.open(self.storage).writable_session("main")
        write(session.store, chunk(number))
        return session

    def check(self) -> None:
        self.storage.script.land()
        found = messages(Repository.open(self.plain))
        assert found[:2] == [ROOT, "base"]
        ours = [f"ours {number}" for number in range(OURS)]
        theirs = [f"theirs {number + 1}" for number in range(self.theirs)]
        assert [message for message in found if message.startswith("ours")] == ours
        assert sorted(found[2:]) == sorted(ours + theirs)
        contents = dict(BASE)
        for number in [*range(OURS), *(CHUNKS - 1 - n for n in range(self.theirs))]:
            contents |= chunk(number)
        store = Repository.open(self.plain).readonly_session("main").store
        assert read(store) == dict(sorted(contents.items()))
        assert_written_once(self.storage.script.calls)


def chunk(number: int) -> Contents:
    return {f"a/c/{number}": numbers(number + 1)}


def run(spec_version: int, plan: list[tuple[int, str]], *, in_order: bool = True) -> None:
    made = Run(spec_version, plan, in_order=in_order)
    made.commit_ours()
    made.check()


@pytest.mark.parametrize("spec_version", [1, 2])
@settings(max_examples=40)
@given(plan=events)
def test_any_faults_leave_each_commit_in_the_history_once(
    spec_version: int, plan: list[tuple[int, str]]
) -> None:
    run(spec_version, plan)


@pytest.mark.soak
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("spec_version", [1, 2])
@settings(max_examples=2_000)
@given(plan=events)
def test_any_faults_of_parallel_calls_too(
    spec_version: int, in_order: bool, plan: list[tuple[int, str]]
) -> None:
    run(spec_version, plan, in_order=in_order)
