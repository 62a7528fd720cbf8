"""Transaction logs of several commits as one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.format.ids import NodeId
    from icechunk_stream.format.transaction_log import Move, TransactionLog

_ID_LISTS = (
    "new_groups",
    "new_arrays",
    "deleted_groups",
    "deleted_arrays",
    "updated_arrays",
    "updated_groups",
)


def merged_logs(logs: Sequence[TransactionLog]) -> TransactionLog:
    """The union of logs from oldest to newest, under the newest one's name."""
    lists: dict[str, Any] = {
        name: _union([getattr(log, name) for log in logs]) for name in _ID_LISTS
    }
    chunks: dict[NodeId, npt.NDArray[np.uint32]] = {}
    for log in logs:
        for node, coordinates in log.updated_chunks.items():
            before = chunks.get(node)
            both = coordinates if before is None else _stacked(before, coordinates)
            chunks[node] = both
    ordered = {node: chunks[node] for node in sorted(chunks)}
    return replace(logs[-1], **lists, updated_chunks=ordered, moved_nodes=_composed(logs))


def _union(lists: Sequence[npt.NDArray[np.void]]) -> npt.NDArray[np.void]:
    numbers = [np.frombuffer(ids.tobytes(), ">u8") for ids in lists]
    return np.unique(np.concatenate(numbers)).astype(">u8").view("V8")


def _stacked(
    first: npt.NDArray[np.uint32], second: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint32]:
    if not len(first):
        return second
    if not len(second):
        return first
    return np.unique(np.concatenate([first, second]), axis=0)


def _composed(logs: Sequence[TransactionLog]) -> tuple[Move, ...]:
    """A node that moved twice moved from its first to its last place."""
    moves: dict[NodeId, Move] = {}
    for log in logs:
        for move in log.moved_nodes:
            before = moves.get(move.node_id)
            source = move.source if before is None else before.source
            moves[move.node_id] = replace(move, source=source)
    kept = (move for move in moves.values() if move.source != move.target)
    return tuple(sorted(kept, key=lambda move: move.target.split("/")))
