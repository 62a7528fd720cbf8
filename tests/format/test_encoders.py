"""Objects of very many small parts: what the encoders write, the decoders have the patience for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format.chunk_refs import RefKind
from icechunk_stream.format.ids import ID12, ManifestId, NodeId, SnapshotId
from icechunk_stream.format.manifest import MAX_ARRAYS, decode_manifest
from icechunk_stream.format.manifest_encode import encode_manifest
from icechunk_stream.format.nodes import (
    ArrayNode,
    Dimension,
    GroupNode,
    ManifestRefs,
    Node,
    NodeType,
)
from icechunk_stream.format.ref_tables import RefTable
from icechunk_stream.format.repo_info import SnapshotRecord, decode_repo_info
from icechunk_stream.format.repo_info_encode import RepoState, encode_repo_info
from icechunk_stream.format.snapshot import ManifestFile, decode_snapshot
from icechunk_stream.format.snapshot_encode import SnapshotContents, encode_snapshot
from icechunk_stream.format.transaction_log import Move, decode_transaction_log
from icechunk_stream.format.transaction_log_encode import LogContents, encode_transaction_log
from icechunk_stream.format.updates import Availability, GCRan, Status, Update
from tests.format.encodable import KEY

MANY = 5_000
ID = SnapshotId(b"snapshot-id.")


def node_id(number: int) -> NodeId:
    return NodeId(number.to_bytes(8, "big"))


def object_id(number: int) -> bytes:
    return number.to_bytes(12, "big")


def inline(count: int, rank: int) -> RefTable:
    """References that all have the same byte."""
    indices = np.zeros((count, rank), np.uint32)
    if rank:
        indices[:, -1] = np.arange(count)
    return RefTable(
        indices=indices,
        kinds=np.full(count, RefKind.INLINE, np.uint8),
        offsets=np.zeros(count, np.uint64),
        lengths=np.zeros(count, np.uint64),
        inline=pa.array([b"x"] * count),
    )


@pytest.mark.parametrize("rank", [1, 64])
def test_a_manifest_whose_references_are_all_equal(rank: int) -> None:
    data = encode_manifest(ManifestId(ID.raw), {node_id(1): inline(MANY, rank)}, 2)
    (columns,) = decode_manifest(data, KEY).arrays.values()
    assert len(columns) == MANY
    assert {columns.inline(row) for row in range(MANY)} == {b"x"}


def test_a_manifest_of_as_many_arrays_as_are_possible_and_not_of_one_more() -> None:
    arrays = {node_id(number): inline(1, 0) for number in range(MAX_ARRAYS)}
    manifest = decode_manifest(encode_manifest(ManifestId(ID.raw), arrays, 2), KEY)
    assert list(manifest.arrays) == list(arrays)
    one_more = arrays | {node_id(MAX_ARRAYS): inline(1, 0)}
    with pytest.raises(InvalidInputError, match="split it"):
        encode_manifest(ManifestId(ID.raw), one_more, 2)


def test_a_log_of_many_arrays_and_moves() -> None:
    scalar = np.zeros((1, 0), np.uint32)
    log = LogContents(
        ID,
        updated_chunks={node_id(number): scalar for number in range(MANY)},
        moved_nodes=[
            Move(f"/{number:x}", f"/a{number:x}", node_id(number), NodeType.GROUP)
            for number in range(MANY)
        ],
    )
    found = decode_transaction_log(encode_transaction_log(log, 2), KEY)
    assert list(found.updated_chunks) == list(log.updated_chunks)
    assert len(found.moved_nodes) == MANY


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_snapshot_of_many_small_nodes(spec_version: int) -> None:
    no_names = (None,) * 16
    manifests = ManifestRefs(np.array([object_id(1)], ID12), np.zeros((1, 0, 2), np.uint32))
    nodes: list[Node] = [GroupNode(node_id(number), f"/{number:x}", b"") for number in range(MANY)]
    nodes += [
        ArrayNode(node_id(MANY + number), f"/g{number:x}", b"", (), no_names, manifests)
        for number in range(MANY)
    ]
    files = [ManifestFile(ManifestId(object_id(number)), 0, 0) for number in range(MANY)]
    snapshot = SnapshotContents(ID, None, 0, "", {}, files, nodes)
    found = decode_snapshot(encode_snapshot(snapshot, spec_version), KEY)
    assert {node.path for node in found.nodes} == {node.path for node in nodes}
    assert len(found.manifest_files) == MANY


def test_an_array_of_many_dimensions_and_manifests() -> None:
    shape = (Dimension(2**40, MANY),) + (Dimension(0, 0),) * 63
    extents = np.zeros((MANY, 64, 2), np.uint32)
    extents[:, 0, 0] = np.arange(MANY)
    extents[:, :, 1] = 1
    extents[:, 0, 1] = np.arange(MANY) + 1
    ids = np.array([object_id(number) for number in range(MANY)], ID12)
    array = ArrayNode(node_id(1), "/a", b"", shape, None, ManifestRefs(ids, extents))
    files = [ManifestFile(ManifestId(object_id(number)), 0, 0) for number in range(MANY)]
    snapshot = SnapshotContents(ID, None, 0, "", {}, files, [array])
    (found,) = decode_snapshot(encode_snapshot(snapshot, 2), KEY).nodes
    assert isinstance(found, ArrayNode)
    assert found.manifests.extents.tolist() == extents.tolist()


def test_a_repo_object_of_many_small_entries() -> None:
    ids = [SnapshotId(object_id(number)) for number in range(MANY)]
    state = RepoState(
        branches={"main": ids[0]} | {f"{number:x}": ids[number] for number in range(MANY)},
        tags={f"{number:x}": ids[number] for number in range(MANY)},
        deleted_tags=[f"-{number:x}" for number in range(MANY)],
        snapshots=[
            SnapshotRecord(id, parent, 0, "", {})
            for id, parent in zip(ids, [None, *ids], strict=False)
        ],
        status=Status(Availability.ONLINE, 0, None),
        updates=[Update(GCRan(), at) for at in range(MANY, 0, -1)],
        metadata={f"{number:x}": None for number in range(MANY)},
    )
    info = decode_repo_info(encode_repo_info(state), KEY)
    for _ in range(3):
        assert len(list(info.snapshots.ancestry(MANY - 1))) == MANY
        assert len(info.updates()) == MANY
    assert info.deleted_tags == tuple(sorted(state.deleted_tags))
    assert len(info.metadata) == MANY
