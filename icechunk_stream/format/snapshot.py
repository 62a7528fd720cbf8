"""Snapshots: every node of the repository at one commit, and the manifests they use."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from icechunk_stream.format.columns import table_groups
from icechunk_stream.format.flat import FlatBuffer, Table
from icechunk_stream.format.header import FileType, open_envelope
from icechunk_stream.format.ids import ID12, OBJECT_ID_SIZE, ManifestId, SnapshotId
from icechunk_stream.format.nodes import Node, NodeSlot, decode_node
from icechunk_stream.format.texts import byte_column
from icechunk_stream.format.values import MAX_VALUE_SIZE, decode_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

MANIFEST_FILE_V1 = np.dtype(
    {
        "names": ["id", "size_bytes", "num_chunk_refs"],
        "formats": ["V12", "<u8", "<u4"],
        "offsets": [0, 16, 24],
        "itemsize": 32,
    }
)


class SnapshotSlot(IntEnum):
    """Slots of ``Snapshot``."""

    ID = 0
    PARENT_ID = 1
    NODES = 2
    FLUSHED_AT = 3
    MESSAGE = 4
    METADATA = 5
    MANIFEST_FILES = 6
    MANIFEST_FILES_V2 = 7


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest that the snapshot uses: its id, object size, and number of references."""

    id: ManifestId
    size_bytes: int
    num_chunk_refs: int


class Nodes:
    """Nodes by path, each decoded when it is asked for."""

    __slots__ = ("_at", "_buffer", "_decoded", "paths")

    def __init__(self, buffer: FlatBuffer, at: list[int], paths: list[bytes]) -> None:
        self.paths = paths
        self._at = at
        self._buffer = buffer
        self._decoded: dict[int, Node] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[Node]:
        """All nodes in the order of their paths' bytes."""
        return (self._node(row) for row in range(len(self.paths)))

    def get(self, path: str) -> Node | None:
        wanted = _sought(path)
        row = bisect_left(self.paths, wanted)
        found = row < len(self.paths) and self.paths[row] == wanted
        return self._node(row) if found else None

    def below(self, path: str) -> Iterator[Node]:
        """The node at the path, if any, and all nodes under it."""
        node = self.get(path)
        if node is not None:
            yield node
        prefix = _sought(path if path == "/" else path + "/")
        for row in range(bisect_left(self.paths, prefix), len(self.paths)):
            if not self.paths[row].startswith(prefix):
                return
            if self.paths[row] != b"/":
                yield self._node(row)

    def _node(self, row: int) -> Node:
        node = self._decoded.get(row)
        if node is None:
            buffer = self._buffer.apart(again=False)
            try:
                node = self._decoded[row] = decode_node(buffer.table(self._at[row]))
            finally:
                self._buffer.spent = buffer.spent
        return node


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One version of the repository; ``parent_id`` is absent in files of spec v2."""

    id: SnapshotId
    parent_id: SnapshotId | None
    flushed_at: int
    message: str
    metadata: dict[str, Any]
    manifest_files: dict[ManifestId, ManifestFile]
    nodes: Nodes
    spec_version: int
    written_by: str
    nbytes: int


def decode_snapshot(data: bytes, key: str) -> Snapshot:
    """Read a snapshot object; nodes are decoded when asked for."""
    envelope = open_envelope(data, FileType.SNAPSHOT, key)
    root = FlatBuffer(envelope.payload, key).root()
    parent = root.struct(SnapshotSlot.PARENT_ID, OBJECT_ID_SIZE)
    id = SnapshotId(root.need(root.struct(SnapshotSlot.ID, OBJECT_ID_SIZE), "id"))
    root.need(root.target(SnapshotSlot.METADATA), "metadata")
    if parent == id.raw:
        raise root.buffer.error("the snapshot is its own parent")
    return Snapshot(
        id=id,
        parent_id=None if parent is None else SnapshotId(parent),
        flushed_at=root.time(SnapshotSlot.FLUSHED_AT),
        message=root.need(root.text(SnapshotSlot.MESSAGE), "message"),
        metadata=decode_metadata(root, SnapshotSlot.METADATA, envelope.spec_version),
        manifest_files=_manifest_files(root),
        nodes=_nodes(root),
        spec_version=envelope.spec_version,
        written_by=envelope.written_by,
        nbytes=len(envelope.payload),
    )


def decode_metadata(table: Table, slot: int, spec_version: int) -> dict[str, Any]:
    """Items of a metadata vector by name."""
    metadata: dict[str, Any] = {}
    for item in table.tables(slot):
        name = item.need(item.text(0), "name")
        if name in metadata:
            raise table.buffer.error(f"the metadata item {name!r} is there twice")
        value = item.need(item.blob(1, MAX_VALUE_SIZE), "value")
        metadata[name] = decode_value(value, spec_version, where=table.buffer.key)
    return metadata


def _sought(path: str) -> bytes:
    """Bytes to look for; those of a path with lone surrogates are the bytes of no node."""
    return path.encode("utf-8", "surrogatepass")


def _manifest_files(root: Table) -> dict[ManifestId, ManifestFile]:
    listed = _manifest_files_v1(root)
    if root.has(SnapshotSlot.MANIFEST_FILES_V2):
        listed = _manifest_files_v2(root)
    files = {
        id: ManifestFile(ManifestId(id), size, refs)
        for id, size, refs in zip(
            (id.tobytes() for id in listed["id"]),
            listed["size_bytes"].tolist(),
            listed["num_chunk_refs"].tolist(),
            strict=True,
        )
    }
    if len(files) != len(listed):
        raise root.buffer.error("a manifest is listed twice")
    return {file.id: file for file in files.values()}


def _manifest_files_v1(root: Table) -> npt.NDArray[np.void]:
    listed = root.array(SnapshotSlot.MANIFEST_FILES, MANIFEST_FILE_V1)
    return cast("npt.NDArray[np.void]", root.need(listed, "manifest_files"))


def _manifest_files_v2(root: Table) -> npt.NDArray[np.void]:
    at = root.need(root.target(SnapshotSlot.MANIFEST_FILES_V2), "manifest_files_v2")
    buffer = root.buffer
    listed = np.zeros(buffer.vector(at, 4)[1], MANIFEST_FILE_V1)
    for group in table_groups(buffer, at):
        ids = group.structs(0, ID12)
        if ids is None:
            raise buffer.error("a listed manifest lacks its id")
        listed["id"][group.rows] = ids
        for slot, name, dtype in ((1, "size_bytes", "<u8"), (2, "num_chunk_refs", "<u4")):
            numbers = group.scalars(slot, dtype)
            if numbers is not None:
                listed[name][group.rows] = numbers
    return listed


def _nodes(root: Table) -> Nodes:
    at = root.need(root.target(SnapshotSlot.NODES), "nodes")
    buffer = root.buffer
    count = buffer.vector(at, 4)[1]
    tables = np.zeros(count, np.intp)
    paths_at = np.zeros(count, np.intp)
    for group in table_groups(buffer, at):
        vectors = group.vectors(NodeSlot.PATH, 1)
        if vectors is None:
            raise buffer.error("a node lacks its path")
        tables[group.rows] = group.at
        paths_at[group.rows] = vectors[0] - 4
        buffer.spend(int(vectors[1].sum()))
    paths: list[bytes] = byte_column(buffer, paths_at).to_pylist()
    if any(path <= before for before, path in pairwise(paths)):
        raise buffer.error("its nodes are not in ascending order of their paths, or repeat")
    return Nodes(buffer, tables.tolist(), paths)
