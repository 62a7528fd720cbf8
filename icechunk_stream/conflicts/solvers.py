"""Who decides about conflicts: a solver gives the changes that go on, or what stands in the way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from icechunk_stream.conflict_kinds import ConflictType
from icechunk_stream.conflicts.detect import chunks_of_both, find_conflicts

if TYPE_CHECKING:
    from icechunk_stream.changes import ChangeSet
    from icechunk_stream.conflict_kinds import Conflict
    from icechunk_stream.conflicts.detect import NodesByPath
    from icechunk_stream.format.transaction_log import TransactionLog


class VersionSelection(Enum):
    """Whose chunk stays where both sides wrote it."""

    Fail = 0
    UseOurs = 1
    UseTheirs = 2


@dataclass(frozen=True, slots=True, eq=False)
class Patched:
    """The changes that go with the commit."""

    changes: ChangeSet


@dataclass(frozen=True, slots=True)
class Unsolvable:
    """Conflicts that the solver leaves to its user."""

    conflicts: tuple[Conflict, ...]


Resolution = Patched | Unsolvable


class ConflictSolver(ABC):
    """Brings changes over one commit of somebody else, or refuses."""

    @abstractmethod
    def solve(self, ours: ChangeSet, log: TransactionLog, theirs: NodesByPath) -> Resolution:
        """Decide about every conflict with one log; ``ours`` stays as it is."""


@dataclass(frozen=True, slots=True)
class ConflictDetector(ConflictSolver):
    """Refuses every conflict."""

    def solve(self, ours: ChangeSet, log: TransactionLog, theirs: NodesByPath) -> Resolution:
        conflicts = find_conflicts(ours, log, theirs)
        return Unsolvable(tuple(conflicts)) if conflicts else Patched(ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicConflictSolver(ConflictSolver):
    """Lets chunks of one side win, and nodes be deleted that others updated; refuses the rest."""

    on_chunk_conflict: VersionSelection = VersionSelection.UseOurs
    fail_on_delete_of_updated_array: bool = False
    fail_on_delete_of_updated_group: bool = False

    def __post_init__(self) -> None:
        if type(self.on_chunk_conflict) is not VersionSelection:
            message = f"on_chunk_conflict={self.on_chunk_conflict!r} is no VersionSelection"
            raise TypeError(message)

    def solve(self, ours: ChangeSet, log: TransactionLog, theirs: NodesByPath) -> Resolution:
        conflicts = find_conflicts(ours, log, theirs)
        if not all(self._solves(conflict.conflict_type) for conflict in conflicts):
            return Unsolvable(tuple(conflicts))
        if self.on_chunk_conflict is VersionSelection.UseTheirs:
            return Patched(_with_their_chunks(ours, log))
        return Patched(ours)

    def _solves(self, kind: ConflictType) -> bool:
        match kind:
            case ConflictType.ChunkDoubleUpdate:
                return self.on_chunk_conflict is not VersionSelection.Fail
            case ConflictType.DeleteOfUpdatedArray:
                return not self.fail_on_delete_of_updated_array
            case ConflictType.DeleteOfUpdatedGroup:
                return not self.fail_on_delete_of_updated_group
            case _:
                return False


def _with_their_chunks(ours: ChangeSet, log: TransactionLog) -> ChangeSet:
    dropped = dict(chunks_of_both(ours, log))
    if not dropped:
        return ours
    changes = ours.copy()
    for id, indices in dropped.items():
        changes.chunks[id].forget(indices)
    return changes
