"""What lies between two snapshots, or between a snapshot and a session, by path."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from icechunk_stream.changes.logs import log_of, union_of_logs, united
from icechunk_stream.commit_logs import commits_between, logs_of
from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.format.ids import INITIAL_SNAPSHOT, NodeId
from icechunk_stream.format.transaction_log_encode import LogContents

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from icechunk_stream.assets import Assets
    from icechunk_stream.changes import ChangeSet
    from icechunk_stream.commit_logs import CommitLogs
    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.format.node_rows import Nodes
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.transaction_log import Coordinates, Ids, Move
    from icechunk_stream.refs import History

    Paths = Mapping[NodeId, str]

_log = logging.getLogger(__name__)


class NodesByPath(Protocol):
    """The nodes that a session began with."""

    def get(self, path: str) -> Node | None: ...


@dataclass(frozen=True, slots=True, repr=False)
class Diff:
    """Paths of nodes that were created, deleted and updated, and the chunks that were written.

    A node that was updated and then deleted is in both sets; one that was created and then deleted
    is in none. ``moved_nodes`` begins with the moves of the newest commit.
    """

    new_groups: set[str]
    new_arrays: set[str]
    deleted_groups: set[str]
    deleted_arrays: set[str]
    updated_groups: set[str]
    updated_arrays: set[str]
    updated_chunks: dict[str, list[list[int]]]
    moved_nodes: list[tuple[str, str]]

    def is_empty(self) -> bool:
        return not self._shown()

    def __repr__(self) -> str:
        shown = (f"{name}={value}" for name, value in self._shown().items())
        return f"Diff({', '.join(shown)})"

    def _shown(self) -> dict[str, object]:
        """What is not empty; chunks are counted."""
        counted = {path: f"{len(chunks)} chunks" for path, chunks in self.updated_chunks.items()}
        parts = {
            "new_groups": sorted(self.new_groups),
            "new_arrays": sorted(self.new_arrays),
            "deleted_groups": sorted(self.deleted_groups),
            "deleted_arrays": sorted(self.deleted_arrays),
            "updated_groups": sorted(self.updated_groups),
            "updated_arrays": sorted(self.updated_arrays),
            "updated_chunks": counted,
            "moved_nodes": self.moved_nodes,
        }
        return {name: value for name, value in parts.items() if value}


def diff(assets: Assets, history: History, from_id: SnapshotId, to_id: SnapshotId) -> Diff:
    """What the commits after one snapshot, up to another one, changed."""
    between = commits_between(history, from_id, to_id)
    if not (between.connected and between.records):
        message = (
            f"snapshot {from_id} is not among the ancestors of {to_id}: a diff goes from a"
            " snapshot to one that was committed after it, on the same branch"
        )
        raise InvalidInputError(message, ErrorKind.BAD_SNAPSHOT_CHAIN_FOR_DIFF)
    commits = list(logs_of(assets, between.records))
    _tell_lost(commits)
    logs = [LogContents.of(log) for commit in commits for log in commit.logs]
    union = union_of_logs(logs, to_id)
    wanted = _ids_in(union)
    after = _paths(assets.snapshot(to_id).nodes, wanted)
    before = _paths(assets.snapshot(from_id).nodes, wanted)
    return _by_path(union, _moves(commits), before, after)


def status(changes: ChangeSet, nodes: NodesByPath) -> Diff:
    """What a session changed; ``nodes`` are those of the snapshot that it is based on."""
    log = log_of(changes, INITIAL_SNAPSHOT)
    touched = [(node.id, node.path) for node in list(changes.updated.values())]
    touched += [(node.id, node.path) for node in list(changes.deleted.values())]
    touched += [(id, chunks.path) for id, chunks in list(changes.chunks.items())]
    before = {id: path for id, path in touched if _holds(nodes, path, id)}
    after = {node.id: node.path for node in list(changes.created.values())}
    return _by_path(log, log.moved_nodes, before, after)


def _by_path(log: LogContents, moves: Iterable[Move], before: Paths, after: Paths) -> Diff:
    """A log with the paths that nodes have now, or had before."""
    known = {**before, **after}
    return Diff(
        new_groups=_found(log.new_groups, after),
        new_arrays=_found(log.new_arrays, after),
        deleted_groups=_found(log.deleted_groups, before),
        deleted_arrays=_found(log.deleted_arrays, before),
        updated_groups=_found(log.updated_groups, known),
        updated_arrays=_found(log.updated_arrays, known),
        updated_chunks=_chunks(log.updated_chunks, known, after),
        moved_nodes=[(move.source, move.target) for move in moves],
    )


def _chunks(
    chunks: Mapping[NodeId, Coordinates], paths: Paths, after: Paths
) -> dict[str, list[list[int]]]:
    """An array and the one that replaced it, which then counts, have one path, and so one list."""
    parts: dict[str, list[Coordinates]] = {}
    for id, coordinates in sorted(chunks.items(), key=lambda item: item[0] in after):
        if id in paths:
            parts.setdefault(paths[id], []).append(coordinates)
    return {path: united(parts[path]).tolist() for path in sorted(parts)}


def _found(ids: Ids, paths: Paths) -> set[str]:
    return {paths[id] for id in map(NodeId, ids.tolist()) if id in paths}


def _ids_in(log: LogContents) -> set[NodeId]:
    lists = (
        log.new_groups,
        log.new_arrays,
        log.deleted_groups,
        log.deleted_arrays,
        log.updated_groups,
        log.updated_arrays,
    )
    return {NodeId(id) for ids in lists for id in ids.tolist()} | set(log.updated_chunks)


def _paths(nodes: Nodes, wanted: Collection[NodeId]) -> Paths:
    return {id: nodes.node(row).path for id, row in nodes.rows_of(wanted).items()}


def _holds(nodes: NodesByPath, path: str, id: NodeId) -> bool:
    found = nodes.get(path)
    return found is not None and found.id == id


def _moves(commits: Sequence[CommitLogs]) -> list[Move]:
    """Moves of the newest commit first, as the reference lists them."""
    return [move for commit in reversed(commits) for log in commit.logs for move in log.moved_nodes]


def _tell_lost(commits: Iterable[CommitLogs]) -> None:
    for commit in commits:
        for id in commit.lost:
            _log.warning(
                "the log of the expired snapshot %s is gone, so the diff lacks what it changed", id
            )
