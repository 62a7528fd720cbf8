"""Sessions that stay open while others commit: the same one in each library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

import icechunk_stream
from tests.alternation.comparing import check_session, plain_diff
from tests.alternation.drafts import Draft, union
from tests.alternation.machine import LIBRARY, RAN, Acting
from tests.alternation.places import LIBRARIES

_OPEN_AT_MOST = 2
_KINDS = tuple(kind.name for kind in icechunk_stream.ConflictType)
_SOLVERS = ("detector", "ours", "theirs", "fail", "keep deleted")


@dataclass
class Pending:
    """Sessions of each library with equal changes on one snapshot of a branch."""

    branch: str
    base: str
    sessions: dict[str, Any]
    draft: Draft


class SessionSteps(Acting):
    def __init__(self) -> None:
        super().__init__()
        self.pending: list[Pending] = []

    @precondition(lambda self: len(self.pending) < _OPEN_AT_MOST)
    @rule(fresh=st.booleans(), data=st.data())
    def begin(self, fresh: bool, data: Any) -> None:
        branch = self.draw_branch(data)
        sessions = {
            library: self.place.repository(library, fresh=fresh).writable_session(branch)
            for library in LIBRARIES
        }
        pending = Pending(branch, self.history.branches[branch], sessions, self.draft(branch))
        self.pending.append(pending)
        RAN["begin"] += 1
        self.go_on(pending, data)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def edit_more(self, data: Any) -> None:
        RAN["edit_more"] += 1
        self.go_on(data.draw(st.sampled_from(self.pending)), data)

    @precondition(lambda self: self.pending)
    @rule(library=LIBRARY, data=st.data())
    def commit_pending(self, library: str, data: Any) -> None:
        """Without rebase: one commits, or none can."""
        pending = data.draw(st.sampled_from(self.pending))
        if self.history.branches.get(pending.branch) == pending.base:
            self.ran("commit_pending", library)
            self.finish(pending, library)
            return
        RAN["conflict"] += 1
        errors = {name: _conflict(session) for name, session in pending.sessions.items()}
        assert len(set(map(str, errors.values()))) == 1, errors
        if pending.branch not in self.history.branches:
            self.pending.remove(pending)

    @precondition(lambda self: self.pending)
    @rule(library=LIBRARY, solver=st.sampled_from(_SOLVERS), more=st.booleans(), data=st.data())
    def rebase(self, library: str, solver: str, more: bool, data: Any) -> None:
        pending = data.draw(st.sampled_from(self.pending))
        outcomes = {
            name: _rebased(session, _solver(name, solver))
            for name, session in pending.sessions.items()
        }
        assert len(set(map(str, outcomes.values()))) == 1, outcomes
        _check_alike(pending)
        if outcomes[library] is None and self.follow(pending, use_theirs=solver == "theirs"):
            RAN[f"rebase with {solver}"] += 1
            if more:
                self.go_on(pending, data)
            self.finish(pending, library)
        else:
            RAN["rebase refused" if outcomes[library] else "rebase elsewhere"] += 1
            self.pending.remove(pending)

    # -- helpers ---------------------------------------------------------------------------------

    def go_on(self, pending: Pending, data: Any) -> None:
        stores = {library: session.store for library, session in pending.sessions.items()}
        self.edit(pending.draft, stores, data)
        for session in pending.sessions.values():
            check_session(session, pending.draft.state)
        _check_alike(pending)

    def follow(self, pending: Pending, *, use_theirs: bool) -> bool:
        """The model's rebase; False where the branch was reset or deleted."""
        tip = self.history.branches.get(pending.branch)
        between = None if tip is None else self.history.between(pending.base, tip)
        if tip is None or between is None:
            return False
        theirs = union(commit.touched for commit in between)
        draft, base = pending.draft, self.history.commits[tip].state
        state = draft.rebased(base, theirs, use_theirs=use_theirs)
        draft.base, draft.state, pending.base = base, state, tip
        for session in pending.sessions.values():
            check_session(session, state)
        return True

    def finish(self, pending: Pending, library: str) -> None:
        """One library commits; the other forgets its session."""
        message, metadata = self.said()
        note(f"{library} commits")
        id = pending.sessions[library].commit(message, metadata, allow_empty=True)
        self.record(pending.branch, id, pending.draft)
        self.pending.remove(pending)
        self.check(pending.branch)


def _check_alike(pending: Pending) -> None:
    """The two sessions have changed the same."""
    told = {
        library: str((plain_diff(session.status()), session.has_uncommitted_changes))
        for library, session in pending.sessions.items()
    }
    assert len(set(told.values())) == 1, told
    bases = {session.snapshot_id for session in pending.sessions.values()}
    assert len(bases) == 1


def _conflict(session: Any) -> tuple[Any, ...]:
    try:
        session.commit("conflicts", allow_empty=True)
    except tuple(ic.ConflictError for ic in LIBRARIES.values()) as error:
        return (str(error.kind), error.expected_parent, error.actual_parent)
    raise AssertionError("committed though the branch moved")


def _rebased(session: Any, solver: Any) -> tuple[Any, ...] | None:
    try:
        session.rebase(solver)
    except tuple(ic.RebaseFailedError for ic in LIBRARIES.values()) as error:
        return (str(error.kind), error.snapshot, sorted(map(_plain_conflict, error.conflicts)))
    return None


def _plain_conflict(conflict: Any) -> tuple[str, str, str]:
    chunks = conflict.conflicted_chunks
    listed = None if chunks is None else sorted(map(list, chunks))
    kind = next(kind for kind in _KINDS if _same_kind(kind, conflict.conflict_type))
    return (kind, conflict.path, str(listed))


def _same_kind(name: str, found: Any) -> bool:
    """The reference's conflict types have no names."""
    return any(found == getattr(ic.ConflictType, name) for ic in LIBRARIES.values())


def _solver(library: str, name: str) -> Any:
    ic = LIBRARIES[library]
    selection = ic.VersionSelection
    match name:
        case "detector":
            return ic.ConflictDetector()
        case "theirs":
            return ic.BasicConflictSolver(on_chunk_conflict=selection.UseTheirs)
        case "fail":
            return ic.BasicConflictSolver(on_chunk_conflict=selection.Fail)
        case "keep deleted":
            return ic.BasicConflictSolver(
                fail_on_delete_of_updated_array=True, fail_on_delete_of_updated_group=True
            )
        case _:
            return ic.BasicConflictSolver()
