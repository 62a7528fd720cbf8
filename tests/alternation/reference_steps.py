"""Steps that only the reference can do."""

from __future__ import annotations

from typing import Any

from hypothesis import note
from hypothesis import strategies as st

from tests.alternation.drafts import Touched
from tests.alternation.drawing import NAMES
from tests.alternation.history import Commit
from tests.alternation.machine import THEIRS
from tests.alternation.session_steps import SessionSteps
from tests.alternation.states import Array, State, array_at, is_below

_COMMITS_BEFORE_UPGRADE = 6


class ReferenceSteps(SessionSteps):
    @property
    def reference(self) -> Any:
        self.library = THEIRS
        return self.drivers[THEIRS]

    def can_move(self) -> bool:
        return self.history.spec_version > 1 and "move_node" not in self.history.disabled

    def move(self, data: Any) -> None:
        branch = self.draw_branch(data)
        state = self.history.tip(branch).state
        sources = sorted(state.keys() - {"/"})
        if not sources:
            return
        source = data.draw(st.sampled_from(sources))
        target = data.draw(st.sampled_from(_targets(state, source)))
        note(f"{source} -> {target}")
        id = self.reference.move(branch, source, target)
        self.commit_own(branch, id, "moved", _moved(state, source, target))

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
        new = array.shifted(offset)
        touched = {array.token: set(array.chunks) | set(new.chunks)}
        id = self.reference.shift(branch, path, offset)
        self.commit_own(branch, id, "shifted", state | {path: new}, touched)

    def rewrite_manifests(self, data: Any) -> None:
        branch = self.draw_branch(data)
        id = self.reference.rewrite_manifests(branch)
        self.commit_own(branch, id, "rewritten", self.history.tip(branch).state)

    def expire(self, data: Any) -> None:
        times = self.reference.times(self.draw_branch(data))
        before = data.draw(st.sampled_from([*times[:2], *times]))
        if self.history.spec_version == 1:  # a snapshot that is rewritten may be in a cache
            self.forget_all_pending()
        self.reference.expire(before, refs=data.draw(st.integers(0, 2)) == 2)
        self.take_over()

    def can_collect(self) -> bool:
        return not self.pending

    def collect(self, data: Any) -> None:
        self.reference.collect()
        self.take_over()

    def can_upgrade(self) -> bool:
        return self.history.spec_version == 1 and self.count > _COMMITS_BEFORE_UPGRADE

    def upgrade(self, data: Any) -> None:
        """And then a commit by whoever it was drawn for."""
        library = self.library
        self.forget_all_pending()
        self.reference.upgrade()
        self.history.spec_version = 2
        for driver in self.drivers.values():
            driver.reopen()
        self.take_over()
        self.library = library
        self.commit(data)

    # -- helpers ---------------------------------------------------------------------------------

    def commit_own(
        self, branch: str, id: str, message: str, state: State, touched: Touched | None = None
    ) -> None:
        """Record a commit of the reference with metadata of its own."""
        parent = self.history.branches[branch]
        moved = message == "moved"
        self.history.commit(branch, Commit(id, parent, message, None, state, touched or {}, moved))
        self.check(branch)

    def take_over(self) -> None:
        """Learn what the reference dropped, then compare all branches."""
        self.history.adopt(self.reference.parents(list(self.history.commits)))
        branches, tags = self.reference.call("list_branches"), self.reference.call("list_tags")
        self.history.branches = {name: self.history.branches[name] for name in branches}
        self.history.tags = {name: self.history.tags[name] for name in tags}
        for branch in sorted(branches):
            self.check(branch)

    def forget_all_pending(self) -> None:
        for pending in list(self.pending):
            self.forget_pending(pending)


def _targets(state: State, source: str) -> list[str]:
    """Free places below groups that stay."""
    groups = [path for path, node in state.items() if not isinstance(node, Array)]
    parents = [path.rstrip("/") for path in groups if not is_below(path, source)]
    places = [f"{parent}/{name}" for parent in sorted(parents) for name in NAMES]
    return [place for place in places if place not in state]


def _moved(state: State, source: str, target: str) -> State:
    return {
        target + path.removeprefix(source) if is_below(path, source) else path: node
        for path, node in state.items()
    }
