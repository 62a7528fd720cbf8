"""Transaction logs written from columns."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format.flat import FlatBuffer
from icechunk_stream.format.header import FileType, open_envelope
from icechunk_stream.format.ids import NodeId, SnapshotId
from icechunk_stream.format.nodes import NodeType
from icechunk_stream.format.transaction_log import LogSlot, Move, decode_transaction_log
from icechunk_stream.format.transaction_log_encode import LogContents, encode_transaction_log
from tests.format.encodable import KEY, coordinates, id_column, moves, node_ids, snapshot_ids

ID, NODE = SnapshotId(b"snapshot-id."), NodeId(b"node-id.")
LISTS = tuple(item.name for item in fields(LogContents) if item.name.endswith(("groups", "arrays")))


def round_trip(log: LogContents, spec_version: int = 2) -> LogContents:
    data = encode_transaction_log(log, spec_version)
    return LogContents.of(decode_transaction_log(data, KEY))


@given(
    id=snapshot_ids,
    ids=st.tuples(*[st.lists(node_ids, unique=True, max_size=4)] * len(LISTS)),
    updated=st.dictionaries(node_ids, coordinates, max_size=3),
    moved=st.lists(moves, max_size=4, unique_by=lambda move: move.node_id),
    spec_version=st.sampled_from((1, 2)),
)
def test_logs_survive_a_round_trip(
    id: SnapshotId,
    ids: tuple[list[NodeId], ...],
    updated: dict[NodeId, Any],
    moved: list[Move],
    spec_version: int,
) -> None:
    lists: dict[str, Any] = {name: id_column(given) for name, given in zip(LISTS, ids, strict=True)}
    found = round_trip(
        LogContents(id, **lists, updated_chunks=updated, moved_nodes=moved), spec_version
    )
    assert found.id == id
    for name, given_ids in zip(LISTS, ids, strict=True):
        assert [raw.tobytes() for raw in getattr(found, name)] == sorted(id.raw for id in given_ids)
    assert list(found.updated_chunks) == sorted(updated)
    for node, chunks in updated.items():
        assert found.updated_chunks[node].tolist() == chunks.tolist()
    by_target = sorted(moved, key=lambda move: [part.encode() for part in move.target.split("/")])
    assert list(found.moved_nodes) == by_target
    assert encode_transaction_log(found, spec_version) == encode_transaction_log(
        LogContents(id, **lists, updated_chunks=updated, moved_nodes=moved), spec_version
    )


@pytest.mark.parametrize("top", [200, 2**32 - 1])
def test_coordinates_are_sorted_and_written_once(top: int) -> None:
    given_twice = np.array([[1, 0, top], [0, top, 1], [1, 0, top], [0, 2, 0]], np.uint32)
    found = round_trip(LogContents(ID, updated_chunks={NODE: given_twice}))
    assert found.updated_chunks[NODE].tolist() == [[0, 2, 0], [0, top, 1], [1, 0, top]]


def test_more_coordinates_than_a_block_are_written_in_order() -> None:
    count = 50_000
    order = np.random.default_rng(3).permutation(count).astype(np.uint32)
    found = round_trip(LogContents(ID, updated_chunks={NODE: order[:, None]}))
    assert found.updated_chunks[NODE][:, 0].tolist() == list(range(count))


def test_the_chunk_of_an_array_without_dimensions_has_no_coordinates() -> None:
    found = round_trip(LogContents(ID, updated_chunks={NODE: np.zeros((1, 0), np.uint32)}))
    assert found.updated_chunks[NODE].tolist() == [[]]


def test_an_empty_log_has_all_of_its_lists() -> None:
    data = encode_transaction_log(LogContents(ID), 2)
    payload = open_envelope(data, FileType.TRANSACTION_LOG, KEY).payload
    root = FlatBuffer(payload, KEY).root()
    assert all(root.has(slot) for slot in LogSlot)
    assert not root.has(len(LogSlot))


def test_moves_are_sorted_component_by_component() -> None:
    targets = ["/a-b", "/a/b", "/a", "/ab/c", "/a!/x"]
    moved = [
        Move("/from", target, NodeId(number.to_bytes(8, "big")), NodeType.GROUP)
        for number, target in enumerate(targets)
    ]
    found = round_trip(LogContents(ID, moved_nodes=moved))
    assert [move.target for move in found.moved_nodes] == ["/a", "/a/b", "/a!/x", "/a-b", "/ab/c"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"new_groups": id_column([NODE, NODE])}, "new_groups: a node id is there twice"),
        ({"deleted_arrays": np.zeros(1, "V12")}, "deleted_arrays: a column of"),
        ({"updated_chunks": {NODE: np.zeros((1, 1), np.int64)}}, "uint32"),
        ({"updated_chunks": {NODE: np.zeros(1, np.uint32)}}, "uint32"),
        ({"updated_chunks": {NODE: np.zeros((1, 65), np.uint32)}}, "of 65 dimensions"),
        ({"moved_nodes": [Move("/a", "/b", NODE, NodeType.GROUP)] * 2}, "moved twice"),
        ({"moved_nodes": [Move("a", "/b", NODE, NodeType.GROUP)]}, "invalid paths"),
        ({"moved_nodes": [Move("/a", "/b/", NODE, NodeType.GROUP)]}, "invalid paths"),
        ({"moved_nodes": [Move("/\ud800", "/b", NODE, NodeType.GROUP)]}, "lone surrogate"),
    ],
)
def test_what_no_reader_could_use_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        encode_transaction_log(LogContents(ID, **change), 2)
