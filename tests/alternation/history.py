"""What a repository holds beside the contents of one snapshot: commits and refs, in dicts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.alternation.drafts import Touched, union
from tests.alternation.states import State, committed

INITIAL = "1CECHNKREP0F1RSTCMT0"


@dataclass(frozen=True)
class Commit:
    """``metadata`` is None where a library writes its own; ``moved`` tells of moves in its log."""

    id: str
    parent: str | None
    message: str
    metadata: dict[str, Any] | None
    state: State
    touched: Touched = field(default_factory=dict)
    moved: bool = False


@dataclass
class History:
    spec_version: int
    threshold: int
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    used_tags: set[str] = field(default_factory=set)
    metadata: dict[str, Any] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        first = Commit(INITIAL, None, "Repository initialized", None, {})
        self.commits[INITIAL] = first
        self.branches["main"] = INITIAL

    def tip(self, branch: str) -> Commit:
        return self.commits[self.branches[branch]]

    def ancestry(self, id: str) -> list[Commit]:
        found = [self.commits[id]]
        while found[-1].parent is not None:
            found.append(self.commits[found[-1].parent])
        return found

    def commit(self, branch: str, made: Commit) -> None:
        self.add(made)
        self.branches[branch] = made.id

    def add(self, made: Commit) -> None:
        assert made.id not in self.commits
        self.commits[made.id] = replace(made, state=committed(made.state))

    def between(self, base: str, tip: str) -> list[Commit] | None:
        """The commits after one, up to another one that descends from it."""
        line = self.ancestry(tip)
        ids = [commit.id for commit in line]
        return line[: ids.index(base)] if base in ids else None

    def adopt(self, parents: dict[str, str | None]) -> None:
        """Take over which snapshots there are, after a library dropped some of them."""
        self.commits = {
            id: replace(self.commits[id], parent=parent, touched=self._touched_since(id, parent))
            for id, parent in parents.items()
        }

    def _touched_since(self, id: str, ancestor: str | None) -> Touched:
        """Spec v2 keeps the logs of the commits for which a snapshot stands from now on."""
        commit = self.commits[id]
        if self.spec_version == 1 or ancestor in (None, commit.parent):
            return commit.touched
        skipped = self.between(ancestor, id)
        return commit.touched if skipped is None else union(one.touched for one in skipped)
