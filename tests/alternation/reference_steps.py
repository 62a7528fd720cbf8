"""Steps that only the reference can do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.alternation.drawing import NAMES
from tests.alternation.history import Commit
from tests.alternation.places import THEIRS
from tests.alternation.session_steps import SessionSteps
from tests.alternation.states import Array, State, array_at, is_below
from tests.oracle.libraries import REFERENCE
from tests.oracle.outcomes import is_failure, outcome


class ReferenceSteps(SessionSteps):
    def __init__(self) -> None:
        super().__init__()
        self.collected = 0

    @precondition(lambda self: self.history.spec_version > 1)
    @rule(data=st.data())
    def move(self, data: Any) -> None:
        branch = self.draw_branch(data)
        state = self.history.tip(branch).state
        sources = sorted(state)[1:]
        if not sources or "move_node" in self.history.disabled:
            return
        source = data.draw(st.sampled_from(sources))
        target = data.draw(st.sampled_from(_targets(state, source)))
        note(f"{source} -> {target}")
        self.ran("move", THEIRS)
        session = self.place.repository(THEIRS, fresh=False).rearrange_session(branch)
        session.move(source, target)
        self.commit_own(branch, session.commit("moved"), "moved", _moved(state, source, target))

    @rule(data=st.data())
    def shift(self, data: Any) -> None:
        branch = self.draw_branch(data)
        state = self.history.tip(branch).state
        arrays = sorted(path for path, node in state.items() if isinstance(node, Array))
        if not arrays:
            return
        path = data.draw(st.sampled_from(arrays))
        array = array_at(state, path)
        offset = tuple(data.draw(st.integers(-1, 2)) for _ in array.shape)
        note(f"{path} by {offset}")
        session = self.place.repository(THEIRS, fresh=False).writable_session(branch)
        session.shift_array(path, offset)
        shifted = {
            tuple(at + step for at, step in zip(index, offset, strict=True)): chunk
            for index, chunk in array.chunks.items()
        }
        inside = {index: chunk for index, chunk in shifted.items() if min(index, default=0) >= 0}
        new = replace(array, chunks=inside).cut()
        touched = {array.token: set(array.chunks) | set(new.chunks)}
        self.ran("shift", THEIRS)
        id = session.commit("shifted", allow_empty=True)
        self.commit_own(branch, id, "shifted", state | {path: new}, touched)

    @rule(data=st.data())
    def rewrite_manifests(self, data: Any) -> None:
        branch = self.draw_branch(data)
        self.ran("rewrite_manifests", THEIRS)
        repository = self.place.repository(THEIRS, fresh=False)
        id = repository.rewrite_manifests("rewritten", branch=branch)
        self.commit_own(branch, id, "rewritten", self.history.tip(branch).state)

    @precondition(lambda self: len(self.history.commits) > 2)
    @rule(refs=st.booleans(), data=st.data())
    def expire(self, refs: bool, data: Any) -> None:
        repository = self.place.fresh(THEIRS)
        infos = list(repository.ancestry(branch=self.draw_branch(data)))
        info = data.draw(st.sampled_from([*infos[:2], *infos]).map(lambda info: info.written_at))
        self.ran("expire", THEIRS)
        repository.expire_snapshots(
            info, delete_expired_branches=refs, delete_expired_tags=refs
        )
        self.forget()

    @precondition(lambda self: not self.pending and self.steps > self.collected)
    @rule()
    def collect(self) -> None:
        self.collected = self.steps
        self.ran("collect", THEIRS)
        self.place.fresh(THEIRS).garbage_collect(datetime.now(UTC) + timedelta(seconds=2))
        self.forget()

    @precondition(lambda self: self.history.spec_version == 1 and not self.pending)
    @precondition(lambda self: len(self.history.commits) > 4)
    @rule()
    def upgrade(self) -> None:
        self.ran("upgrade", THEIRS)
        REFERENCE.upgrade_icechunk_repository(self.place.fresh(THEIRS), dry_run=False)
        self.history.spec_version = 2
        self.place.reopen()
        self.forget()

    # -- helpers ---------------------------------------------------------------------------------

    def commit_own(
        self, branch: str, id: str, message: str, state: State, touched: Any = None
    ) -> None:
        """Record a commit of the reference with metadata of its own."""
        parent = self.history.branches[branch]
        moved = message == "moved"
        self.history.commit(branch, Commit(id, parent, message, None, state, touched or {}, moved))
        self.check(branch)

    def forget(self) -> None:
        """Learn what the reference dropped, then compare all branches."""
        repository = self.place.fresh(THEIRS)
        found = {id: outcome(repository.lookup_snapshot, id) for id in self.history.commits}
        self.history.adopt(
            {id: info.parent_id for id, info in found.items() if not is_failure(info)}
        )
        names = repository.list_branches(), repository.list_tags()
        self.history.branches = {name: self.history.branches[name] for name in names[0]}
        self.history.tags = {name: self.history.tags[name] for name in names[1]}
        for branch in self.history.branches:
            self.check(branch)


def _targets(state: State, source: str) -> list[str]:
    """Free places below groups that stay."""
    groups = [path for path, node in state.items() if not isinstance(node, Array)]
    parents = [path.rstrip("/") for path in groups if not is_below(path, source)]
    places = [f"{parent}/{name}" for parent in sorted(parents) for name in NAMES]
    return [place for place in places if place not in state and not is_below(place, source)]


def _moved(state: State, source: str, target: str) -> State:
    return {
        target + path.removeprefix(source) if is_below(path, source) else path: node
        for path, node in state.items()
    }
