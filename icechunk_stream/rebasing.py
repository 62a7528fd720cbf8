"""Changes brought onto a newer snapshot, one commit of the others at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icechunk_stream.commit_logs import Between, commits_between, logs_of
from icechunk_stream.conflicts import Patched, Unsolvable, gone_nodes
from icechunk_stream.errors import ErrorKind, SessionStateError

if TYPE_CHECKING:
    from icechunk_stream.assets import Assets
    from icechunk_stream.changes import ChangeSet
    from icechunk_stream.commit_logs import CommitLogs
    from icechunk_stream.conflict_kinds import Conflict
    from icechunk_stream.conflicts import ConflictSolver, Resolution
    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.refs import History


@dataclass(frozen=True, slots=True, eq=False)
class Rebased:
    """Changes that fit on a snapshot."""

    base: SnapshotId
    changes: ChangeSet


@dataclass(frozen=True, slots=True, eq=False)
class Stuck:
    """How far changes could be rebased, and the commit that they do not go with."""

    reached: Rebased
    failed_on: SnapshotId
    conflicts: tuple[Conflict, ...]


def rebase(
    assets: Assets,
    history: History,
    base: SnapshotId,
    tip: SnapshotId,
    changes: ChangeSet,
    solver: ConflictSolver,
) -> Rebased | Stuck:
    """Bring changes of ``base`` onto ``tip``; the change set that is passed in stays as it is."""
    between = _with_pruned(commits_between(history, base, tip), base)
    start = reached = Rebased(base, changes)
    for commit in logs_of(assets, between.records):
        id = commit.record.id
        resolution = _over(commit, SnapshotNodes(assets, id), reached.changes, solver)
        if isinstance(resolution, Unsolvable):
            return Stuck(reached if between.connected else start, id, resolution.conflicts)
        reached = Rebased(id, resolution.changes)
    return reached if between.connected else _grounded(reached, start, SnapshotNodes(assets, tip))


@dataclass(frozen=True, slots=True)
class SnapshotNodes:
    """Nodes of a snapshot, which is fetched when the first of them is asked for."""

    assets: Assets
    id: SnapshotId

    def get(self, path: str) -> Node | None:
        return self.assets.snapshot(self.id).nodes.get(path)


def _over(
    commit: CommitLogs, theirs: SnapshotNodes, changes: ChangeSet, solver: ConflictSolver
) -> Resolution:
    """Changes after one commit: all of its logs let them pass, or none of them counts."""
    _check_logs(commit)
    for log in commit.logs:
        resolution = solver.solve(changes, log, theirs)
        if isinstance(resolution, Unsolvable):
            return resolution
        changes = resolution.changes
    return Patched(changes)


def _check_logs(commit: CommitLogs) -> None:
    if commit.lost:
        shown = ", ".join(str(id) for id in commit.lost)
        message = (
            f"snapshot {commit.record.id} stands for expired commits, and the logs of {shown} are"
            " gone, so nobody can tell whether they conflict. Make the change again from the tip"
        )
        raise SessionStateError(message, ErrorKind.REBASE_TX_LOG_PRUNED)


def _with_pruned(between: Between, base: SnapshotId) -> Between:
    """An expired base is still among the commits that a later one stands for."""
    for number, record in enumerate(between.records):
        if not between.connected and base in record.pruned_logs:
            after = record.pruned_logs.index(base) + 1
            first = replace(record, pruned_logs=record.pruned_logs[after:])
            return Between((first, *between.records[number + 1 :]), connected=True)
    return between


def _grounded(reached: Rebased, start: Rebased, theirs: SnapshotNodes) -> Rebased | Stuck:
    """Refuse changes of nodes that a branch lost when it was reset: no log tells of that."""
    conflicts = tuple(gone_nodes(reached.changes, theirs))
    return Stuck(start, theirs.id, conflicts) if conflicts else reached
