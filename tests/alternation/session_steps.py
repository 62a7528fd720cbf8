"""Sessions that stay open while others commit: the same one in each library."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hypothesis import strategies as st

from tests.alternation.drafts import Draft, union
from tests.alternation.driver import SOLVERS, Failed
from tests.alternation.history import Commit
from tests.alternation.machine import Acting
from tests.alternation.seen import expected
from tests.oracle.compare import assert_same

_OPEN_AT_MOST = 2


@dataclass
class Pending:
    """Sessions of each library with equal changes on one snapshot of a branch."""

    branch: str
    base: str
    sessions: dict[str, int]
    draft: Draft


class SessionSteps(Acting):
    not_in_open_sessions: ClassVar[frozenset[str]] = frozenset()
    alike_over: ClassVar[int] = 2**32  # commits of others over which libraries rebase alike

    def __init__(self) -> None:
        super().__init__()
        self.pending: list[Pending] = []

    def can_begin(self) -> bool:
        return len(self.pending) < _OPEN_AT_MOST

    def begin(self, data: Any) -> None:
        branch = self.draw_branch(data)
        sessions = {name: d.begin(branch, self.fresh) for name, d in self.drivers.items()}
        pending = Pending(branch, self.history.branches[branch], sessions, self.draft(branch))
        self.pending.append(pending)
        self.go_on(pending, data)

    def has_pending(self) -> bool:
        return bool(self.pending)

    can_edit_more = can_commit_pending = has_pending

    def can_rebase(self) -> bool:
        return bool(self.overtaken())

    can_commit_with_rebase = can_rebase

    def awaited(self) -> list[str]:
        return [pending.branch for pending in self.pending]

    def edit_more(self, data: Any) -> None:
        self.go_on(self.draw_pending(data), data)

    def commit_pending(self, data: Any) -> None:
        """Without rebase: one commits, or none can."""
        pending = self.draw_pending(data)
        if self.history.branches.get(pending.branch) == pending.base:
            self.finish(pending)
            return
        self.tell("conflict")
        self.fill_up(pending.draft, pending.sessions)
        self.failed_alike(pending, "commit", "never", {})
        if pending.branch not in self.history.branches:
            self.forget_pending(pending)

    def rebase(self, data: Any) -> None:
        pending, solver = self.draw_overtaken(data), data.draw(st.sampled_from(SOLVERS))
        between = self.between(pending)
        if between is None:
            self.rebase_elsewhere(pending, solver)
        elif self.failed_alike(pending, "rebase", solver):
            self.tell("rebase refused")
            self.forget_pending(pending)
        else:
            self.tell(f"rebase with {solver} over {min(len(between), 2)}")
            self.follow(pending, between, solver)
            if data.draw(st.booleans(), "edit before the commit"):
                self.go_on(pending, data)
            self.finish(pending)

    def commit_with_rebase(self, data: Any) -> None:
        """The other library's rebase tells what has to happen."""
        pending, solver = self.draw_overtaken(data), data.draw(st.sampled_from(SOLVERS))
        between = self.between(pending)
        if between is None:
            self.rebase_elsewhere(pending, solver)
            return
        self.fill_up(pending.draft, pending.sessions)
        other = next(name for name in self.drivers if name != self.library)
        foreseen = self.drivers[other].rebase(pending.sessions[other], solver)
        if foreseen is not None:
            found = self.driver.commit(pending.sessions[self.library], "never", {}, solver)
            assert found == foreseen, (found, foreseen)
            self.tell("commit refused")
            self.forget_pending(pending)
            return
        self.follow(pending, between, solver)
        self.finish(pending, solver, int(bool(between)))

    # -- helpers ---------------------------------------------------------------------------------

    def draw_pending(self, data: Any) -> Pending:
        number: int = data.draw(st.integers(0, len(self.pending) - 1), "session")
        return self.pending[number]

    def overtaken(self) -> list[Pending]:
        """Sessions whose branch moved on, or is gone."""
        branches = self.history.branches
        return [one for one in self.pending if branches.get(one.branch) != one.base]

    def draw_overtaken(self, data: Any) -> Pending:
        """Now and then one that nobody overtook."""
        pending = self.draw_pending(data)
        overtaken = self.overtaken()
        if pending in overtaken or not data.draw(st.integers(0, 4), "stay"):
            return pending
        return overtaken[0]

    def forget_pending(self, pending: Pending) -> None:
        self.pending.remove(pending)
        for library, session in pending.sessions.items():
            self.drivers[library].forget(session)

    def go_on(self, pending: Pending, data: Any) -> None:
        made = self.draw_edits(pending.draft, data, self.not_in_open_sessions)
        for library, session in pending.sessions.items():
            self.drivers[library].edit(session, made)
        self.check_pending(pending)

    def check_pending(self, pending: Pending) -> None:
        """The sessions have changed the same, and show it."""
        for library, session in pending.sessions.items():
            found = self.drivers[library].seen(session)
            assert_same(expected(pending.draft.state), found, ("model", library))
        self.changed_alike(pending)

    def changed_alike(self, pending: Pending) -> None:
        told = {name: self.drivers[name].changed(id) for name, id in pending.sessions.items()}
        assert len(set(map(str, told.values()))) == 1, told

    def failed_alike(self, pending: Pending, call: str, *arguments: Any) -> bool:
        """Whether a call failed, which it does in all libraries or in none."""
        found = {
            library: getattr(self.drivers[library], call)(session, *arguments)
            for library, session in pending.sessions.items()
        }
        assert len(set(map(str, found.values()))) == 1, found
        self.changed_alike(pending)
        return isinstance(found[self.library], Failed)

    def between(self, pending: Pending) -> list[Commit] | None:
        """What others committed since the sessions began, if the branch still descends from it."""
        if pending.branch not in self.history.branches:
            return None
        found = self.history.between(pending.base, self.history.branches[pending.branch])
        if found is None or len(found) > self.alike_over:
            return None
        # At the tip it is not seen where what took the place of a node was moved away since.
        replaced = any(pending.draft.both_replaced(commit.state) for commit in found)
        return None if replaced else found

    def rebase_elsewhere(self, pending: Pending, solver: str) -> None:
        """Where libraries may differ, as on a branch that was reset: it works, or is refused."""
        self.tell("rebase elsewhere")
        for library, session in pending.sessions.items():
            self.drivers[library].rebase(session, solver)
        self.forget_pending(pending)

    def counts_rebases(self) -> bool:
        """Whether the library says in its commit how often it was rebased."""
        return True

    def follow(self, pending: Pending, between: list[Commit], solver: str) -> None:
        """The model's rebase."""
        theirs = union(commit.touched for commit in between)
        draft, tip = pending.draft, self.history.branches[pending.branch]
        base = self.history.commits[tip].state
        state = draft.rebased(base, theirs, use_theirs=solver == "theirs")
        draft.base, draft.state, pending.base = base, state, tip

    def finish(self, pending: Pending, solver: str | None = None, attempts: int = 0) -> None:
        """One library commits; the others forget their session."""
        if solver is None:
            self.fill_up(pending.draft, pending.sessions)
            self.check_pending(pending)
        id = self.driver.commit(pending.sessions[self.library], *self.words(), solver)
        made = self.made(id, self.history.branches[pending.branch], pending.draft)
        if solver is not None and self.counts_rebases():
            counted = {**(made.metadata or {}), "__icechunk": {"rebase_attempts": attempts}}
            made = replace(made, metadata=counted)
        self.history.commit(pending.branch, made)
        self.forget_pending(pending)
        self.check(pending.branch)
