"""Snapshots written by the rules of either spec."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format.flat import FlatBuffer
from icechunk_stream.format.header import FileType, open_envelope
from icechunk_stream.format.ids import ID12, ManifestId, NodeId, SnapshotId
from icechunk_stream.format.nodes import ArrayNode, Dimension, GroupNode, ManifestRefs
from icechunk_stream.format.snapshot import ManifestFile, SnapshotSlot, decode_snapshot
from icechunk_stream.format.snapshot_encode import SnapshotContents, encode_snapshot
from icechunk_stream.format.times import MAX_MICROS
from tests.format.encodable import KEY, snapshots

if TYPE_CHECKING:
    from icechunk_stream.format.flat import Table
    from icechunk_stream.format.nodes import Node

ID, PARENT = SnapshotId(b"snapshot-id."), SnapshotId(b"its--parent.")
MANIFEST = ManifestId(bytes.fromhex("958990cf20079101cb3024b4"))
ROOT = GroupNode(NodeId(b"the-root"), "/", b"{}")
BOX = np.array([[[0, 3], [0, 1]]], np.uint32)
ARRAY = ArrayNode(
    id=NodeId(b"an-array"),
    path="/a",
    user_data=b"{}",
    shape=(Dimension(5, 3), Dimension(0, 0)),
    dimension_names=("x", None),
    manifests=ManifestRefs(np.frombuffer(MANIFEST.raw, ID12), BOX),
)
SNAPSHOT = SnapshotContents(
    id=ID,
    parent_id=PARENT,
    flushed_at=1_700_000_000_000_000,
    message="message",
    metadata={"b": 1, "a": [True]},
    manifest_files=[ManifestFile(MANIFEST, 182, 4)],
    nodes=[ARRAY, ROOT],
)


def plain(snapshot: SnapshotContents) -> dict[str, Any]:
    """Everything that a snapshot says, comparable; columns as lists."""
    said = {item.name: getattr(snapshot, item.name) for item in fields(snapshot)}
    nodes = sorted(snapshot.nodes, key=lambda node: node.path.encode())
    return said | {
        "manifest_files": sorted(snapshot.manifest_files, key=lambda file: file.id),
        "nodes": [(node, manifests(node)) for node in nodes],
        "metadata": dict(snapshot.metadata),
    }


def manifests(node: Node) -> tuple[list[bytes], list[Any]] | None:
    if isinstance(node, GroupNode):
        return None
    return [id.tobytes() for id in node.manifests.ids], node.manifests.extents.tolist()


def round_trip(snapshot: SnapshotContents, spec_version: int) -> SnapshotContents:
    found = decode_snapshot(encode_snapshot(snapshot, spec_version), KEY)
    assert found.spec_version == spec_version
    return SnapshotContents.of(found)


def root(snapshot: SnapshotContents, spec_version: int) -> Table:
    data = encode_snapshot(snapshot, spec_version)
    return FlatBuffer(open_envelope(data, FileType.SNAPSHOT, KEY).payload, KEY).root()


@pytest.mark.parametrize("spec_version", [1, 2])
@given(data=st.data())
def test_snapshots_survive_a_round_trip(spec_version: int, data: st.DataObject) -> None:
    snapshot = data.draw(snapshots(spec_version))
    found = round_trip(snapshot, spec_version)
    assert plain(found) == plain(snapshot)
    assert encode_snapshot(found, spec_version) == encode_snapshot(snapshot, spec_version)


def test_nodes_are_sorted_by_the_bytes_of_their_paths() -> None:
    paths = ["/ab", "/a/b", "/a-b", "/é", "/a", "/z", "/"]
    nodes = [GroupNode(NodeId(path.encode().ljust(8)), path, b"") for path in paths]
    found = round_trip(replace(SNAPSHOT, nodes=nodes), 2)
    assert [node.path for node in found.nodes] == ["/", "/a", "/a-b", "/a/b", "/ab", "/z", "/é"]


def test_spec_v1_has_a_parent_structs_of_manifests_and_chunk_lengths() -> None:
    table = root(SNAPSHOT, 1)
    assert table.struct(SnapshotSlot.PARENT_ID, 12) == PARENT.raw
    assert not table.has(SnapshotSlot.MANIFEST_FILES_V2)
    files = table.array(SnapshotSlot.MANIFEST_FILES, np.dtype("V32"))
    assert files is not None
    stored = "958990cf20079101cb3024b400000000b6000000000000000400000000000000"
    assert [file.tobytes().hex() for file in files] == [stored]
    at = table.target(SnapshotSlot.MANIFEST_FILES)
    assert at is not None
    assert (at + 4) % 8 == 0
    array = _data(table)
    assert array.array(0, np.dtype("2<u8")).tolist() == [[5, 2], [0, 0]]  # type: ignore[union-attr]
    assert not array.has(3)


def test_spec_v2_has_no_parent_tables_of_manifests_and_numbers_of_chunks() -> None:
    table = root(SNAPSHOT, 2)
    assert not table.has(SnapshotSlot.PARENT_ID)
    assert table.array(SnapshotSlot.MANIFEST_FILES, np.dtype("V32")).tolist() == []  # type: ignore[union-attr]
    assert len(list(table.tables(SnapshotSlot.MANIFEST_FILES_V2))) == 1
    array = _data(table)
    assert array.array(0, np.dtype("V16")).tolist() == []  # type: ignore[union-attr]
    shape = [(item.scalar(0, "Q"), item.scalar(1, "I")) for item in array.tables(3)]
    assert shape == [(5, 3), (0, 0)]


def _data(table: Table) -> Table:
    array = list(table.tables(SnapshotSlot.NODES))[1].table(4)
    assert array is not None
    return array


def test_an_array_without_dimensions_has_an_empty_shape_in_spec_v2() -> None:
    scalar = replace(
        ARRAY, shape=(), manifests=ManifestRefs(np.zeros(0, ID12), np.zeros((0, 0, 2), np.uint32))
    )
    array = _data(root(replace(SNAPSHOT, nodes=[ROOT, scalar]), 2))
    assert array.has(3)
    assert list(array.tables(3)) == []


def test_a_first_snapshot_of_spec_v1_has_no_parent() -> None:
    assert not root(replace(SNAPSHOT, parent_id=None), 1).has(SnapshotSlot.PARENT_ID)


def array_with(**change: Any) -> dict[str, Any]:
    return {"nodes": [replace(ARRAY, **change)]}


def extents(*boxes: list[list[int]]) -> ManifestRefs:
    ids = np.array([MANIFEST.raw] * len(boxes), ID12)
    return ManifestRefs(ids, np.array(boxes, np.uint32))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": [ROOT, replace(ROOT, id=ARRAY.id)]}, "two nodes have the path /"),
        ({"nodes": [ROOT, replace(ARRAY, id=ROOT.id)]}, "the same id"),
        ({"nodes": [replace(ROOT, path="a")]}, "invalid path 'a'"),
        ({"nodes": [replace(ROOT, path="/a/../b")]}, "invalid path"),
        ({"nodes": [replace(ROOT, path="/\ud800")]}, "lone surrogate"),
        ({"nodes": [replace(ROOT, user_data=b"[" * 600)]}, "zarr.json of / cannot be stored"),
        ({"manifest_files": []}, "which is not listed"),
        ({"manifest_files": [*SNAPSHOT.manifest_files] * 2}, "listed twice"),
        ({"manifest_files": [ManifestFile(MANIFEST, -1, 0)]}, "size or number"),
        ({"manifest_files": [ManifestFile(MANIFEST, 1, 2**32)]}, "size or number"),
        ({"flushed_at": MAX_MICROS + 1}, "beyond the year 9998"),
        ({"flushed_at": -1}, "before 1970"),
        ({"message": "\udfff"}, "lone surrogate"),
        ({"metadata": {"a": float("nan")}}, "metadata item 'a'"),
        ({"metadata": {"\ud800": 1}}, "lone surrogate"),
        (array_with(shape=(Dimension(5, 3), Dimension(2**64, 1))), "has the length"),
        (array_with(shape=(Dimension(5, 3), Dimension(1, 2**32))), "chunks along one axis"),
        (array_with(shape=(Dimension(5, 3),)), "for 1 manifests in 1 dimensions"),
        (array_with(manifests=extents([[0, 0], [0, 1]])), "empty or inverted"),
        (array_with(manifests=ManifestRefs(np.zeros(2, ID12), BOX)), "for 2 manifests"),
    ],
)
def test_what_no_reader_could_use_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        encode_snapshot(replace(SNAPSHOT, **change), 2)


@pytest.mark.parametrize(
    "dimension", [Dimension(5, 0), Dimension(0, 1), Dimension(5, 4), Dimension(2, 3)]
)
def test_grids_that_spec_v1_cannot_say_are_refused_there(dimension: Dimension) -> None:
    no_manifests = ManifestRefs(np.zeros(0, ID12), np.zeros((0, 1, 2), np.uint32))
    snapshot = replace(SNAPSHOT, **array_with(shape=(dimension,), manifests=no_manifests))
    with pytest.raises(InvalidInputError, match="spec v1 cannot say"):
        encode_snapshot(snapshot, 1)
    (array,) = round_trip(snapshot, 2).nodes
    assert isinstance(array, ArrayNode)
    assert array.shape == (dimension,)


def test_a_snapshot_is_not_its_own_parent() -> None:
    with pytest.raises(InvalidInputError, match="its own parent"):
        encode_snapshot(replace(SNAPSHOT, parent_id=ID), 1)
