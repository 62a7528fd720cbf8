"""Diffs as values, and logs of several commits as one."""

from __future__ import annotations

import numpy as np
import pytest

import icechunk_stream as icechunk
from icechunk_stream.changes.logs import merged_logs, union_of_logs
from icechunk_stream.format.ids import ID8, NodeId, SnapshotId
from icechunk_stream.format.nodes import NodeType
from icechunk_stream.format.transaction_log import Move, decode_transaction_log
from icechunk_stream.format.transaction_log_encode import LogContents, encode_transaction_log

NODES = [NodeId(number.to_bytes(8, "big")) for number in range(4)]
SNAPSHOTS = [SnapshotId(number.to_bytes(12, "big")) for number in range(4)]


def column(*nodes: NodeId) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    return np.frombuffer(b"".join(node.raw for node in nodes), ID8)


def coordinates(*indices: tuple[int, ...]) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    return np.array(indices, np.uint32).reshape(len(indices), -1)


def moved(source: str, target: str, node: int = 0) -> Move:
    return Move(source, target, NODES[node], NodeType.ARRAY)


def sample(**changed: object) -> icechunk.Diff:
    parts: dict[str, object] = {
        "new_groups": {"/b", "/a"},
        "new_arrays": set(),
        "deleted_groups": set(),
        "deleted_arrays": set(),
        "updated_groups": set(),
        "updated_arrays": set(),
        "updated_chunks": {"/x": [[0, 1], [2, 3]]},
        "moved_nodes": [],
    }
    return icechunk.Diff(**(parts | changed))  # type: ignore[arg-type]


def test_diffs_are_values_that_show_what_they_hold() -> None:
    assert repr(sample()) == "Diff(new_groups=['/a', '/b'], updated_chunks={'/x': '2 chunks'})"
    assert sample() == sample()
    assert sample() != sample(new_groups=set())
    assert not sample().is_empty()
    empty = sample(new_groups=set(), updated_chunks={})
    assert empty.is_empty()
    assert repr(empty) == "Diff()"
    assert not sample(new_groups=set(), updated_chunks={"/x": []}).is_empty()


def test_a_union_of_logs_holds_every_node_and_chunk_once() -> None:
    older = LogContents(
        SNAPSHOTS[1],
        new_arrays=column(NODES[2], NODES[1]),
        updated_chunks={
            NODES[1]: coordinates((3, 0), (0, 70_000)),
            NODES[2]: coordinates((1,)),
        },
    )
    newer = LogContents(
        SNAPSHOTS[2],
        new_arrays=column(NODES[1]),
        deleted_arrays=column(NODES[1]),
        updated_chunks={
            NODES[1]: coordinates((3, 0), (1, 1)),
            NODES[2]: np.zeros((0, 0), np.uint32),
        },
    )
    both = union_of_logs([older, newer], SNAPSHOTS[3])
    assert both.id == SNAPSHOTS[3]
    assert both.new_arrays.tolist() == [NODES[1].raw, NODES[2].raw]
    assert both.deleted_arrays.tolist() == [NODES[1].raw]
    chunks = {node: found.tolist() for node, found in both.updated_chunks.items()}
    assert chunks == {NODES[1]: [[0, 70_000], [1, 1], [3, 0]], NODES[2]: [[1]]}


def test_moves_in_turn_become_one_move_or_none() -> None:
    logs = [
        LogContents(SNAPSHOTS[0], moved_nodes=[moved("/a", "/b"), moved("/x", "/y", 1)]),
        LogContents(SNAPSHOTS[1], moved_nodes=[moved("/b", "/c"), moved("/y", "/x", 1)]),
    ]
    assert union_of_logs(logs, SNAPSHOTS[2]).moved_nodes == (moved("/a", "/c"),)


def test_a_commit_of_moves_is_not_amended_with_edits() -> None:
    made = LogContents(SNAPSHOTS[0], moved_nodes=[moved("/a", "/b")])
    older = decode_transaction_log(encode_transaction_log(made, 2), "transactions/older")
    with pytest.raises(icechunk.SessionStateError, match=str(SNAPSHOTS[0])) as raised:
        merged_logs(older, LogContents(SNAPSHOTS[1]), SNAPSHOTS[1])
    assert raised.value.kind == "rearrange-session-only"
    more = LogContents(SNAPSHOTS[1], moved_nodes=[moved("/b", "/c")])
    assert merged_logs(older, more, SNAPSHOTS[1]).moved_nodes == (moved("/a", "/c"),)
