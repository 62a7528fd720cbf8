"""Transaction logs of change sets: what a commit changed, for those who rebase over it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from icechunk_stream.errors import ErrorKind, SessionStateError
from icechunk_stream.format.ids import ID8
from icechunk_stream.format.keys import KeySpace
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.format.transaction_log_encode import LogContents

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from icechunk_stream.changes.change_set import ChangeSet
    from icechunk_stream.format.ids import NodeId, SnapshotId
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.transaction_log import Coordinates, Ids, Move, TransactionLog

_ID_LISTS = (
    "new_groups",
    "new_arrays",
    "deleted_groups",
    "deleted_arrays",
    "updated_arrays",
    "updated_groups",
)


def log_of(changes: ChangeSet, id: SnapshotId) -> LogContents:
    """The log of the snapshot that these changes make."""
    new_groups, new_arrays = _by_kind(list(changes.created.values()))
    updated_groups, updated_arrays = _by_kind(list(changes.updated.values()))
    deleted = list(changes.deleted.values())
    return LogContents(
        id=id,
        new_groups=new_groups,
        new_arrays=new_arrays,
        deleted_groups=_ids(node.id for node in deleted if not node.is_array),
        deleted_arrays=_ids(node.id for node in deleted if node.is_array),
        updated_arrays=updated_arrays,
        updated_groups=updated_groups,
        updated_chunks={
            node: chunks.run().table.indices for node, chunks in list(changes.chunks.items())
        },
    )


def merged_logs(older: TransactionLog, newer: LogContents, id: SnapshotId) -> LogContents:
    """The log of a snapshot that takes the place of another and adds changes to it."""
    if older.moved_nodes and not newer.moved_nodes:
        message = (
            f"snapshot {older.id} moved nodes, and a commit holds either moves or edits: it cannot"
            " be amended with edits. Commit them on top of it"
        )
        raise SessionStateError(message, ErrorKind.REARRANGE_SESSION_ONLY)
    return union_of_logs([LogContents.of(older), newer], id)


def union_of_logs(logs: Sequence[LogContents], id: SnapshotId) -> LogContents:
    """Logs from oldest to newest as one: a node is in every list that any of them has it in."""
    lists: dict[str, Any] = {
        name: _union([getattr(log, name) for log in logs]) for name in _ID_LISTS
    }
    chunks: dict[NodeId, list[Coordinates]] = {}
    for log in logs:
        for node, coordinates in log.updated_chunks.items():
            chunks.setdefault(node, []).append(coordinates)
    by_node = {node: united(chunks[node]) for node in sorted(chunks)}
    return LogContents(id, **lists, updated_chunks=by_node, moved_nodes=_composed(logs))


def united(parts: Sequence[Coordinates]) -> Coordinates:
    """Coordinates in their order, each once; a log may name an array and no chunk of it."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:  # noqa: PLR2004
        return filled[0] if filled else parts[-1]
    if len({part.shape[1] for part in filled}) > 1:
        # A commit between them changed the rank, and whatever was written before is gone.
        return filled[-1]
    together = np.concatenate(filled)
    bounds = [int(top) + 1 for top in together.max(axis=0)]
    keys = KeySpace.within(bounds).pack(together)
    return together[np.unique(keys, return_index=True)[1]]


def _by_kind(nodes: Iterable[Node]) -> tuple[Ids, Ids]:
    """Ids of the groups, and of the arrays."""
    listed = list(nodes)
    arrays = _ids(node.id for node in listed if isinstance(node, ArrayNode))
    return _ids(node.id for node in listed if not isinstance(node, ArrayNode)), arrays


def _ids(ids: Iterable[NodeId]) -> Ids:
    return np.frombuffer(b"".join(sorted(id.raw for id in ids)), ID8)


def _union(lists: Sequence[Ids]) -> Ids:
    numbers = [np.ascontiguousarray(ids).view(">u8") for ids in lists]
    return np.unique(np.concatenate(numbers)).astype(">u8").view(ID8)


def _composed(logs: Sequence[LogContents]) -> tuple[Move, ...]:
    """A node that moved twice moved from its first to its last place."""
    moves: dict[NodeId, Move] = {}
    for log in logs:
        for move in log.moved_nodes:
            before = moves.get(move.node_id)
            source = move.source if before is None else before.source
            moves[move.node_id] = replace(move, source=source)
    kept = (move for move in moves.values() if move.source != move.target)
    return tuple(sorted(kept, key=lambda move: move.target.split("/")))
