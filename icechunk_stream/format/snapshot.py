"""Snapshots: every node of the repository at one commit, and the manifests they use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from icechunk_stream.format.columns import table_groups
from icechunk_stream.format.flat import FlatBuffer
from icechunk_stream.format.header import FileType, open_envelope
from icechunk_stream.format.ids import ID12, OBJECT_ID_SIZE, ManifestId, SnapshotId, find_row
from icechunk_stream.format.node_rows import read_nodes
from icechunk_stream.format.values import MAX_VALUE_SIZE, decode_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from icechunk_stream.format.flat import Table
    from icechunk_stream.format.node_rows import Nodes

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


class ManifestFiles:
    """The manifests that a snapshot lists, as one column; found by id."""

    __slots__ = ("_ids", "_order", "listed")

    def __init__(self, listed: npt.NDArray[np.void]) -> None:
        ids = listed["id"].copy()
        self.listed = listed
        self._order = np.argsort(ids.view("S12"), kind="stable")
        self._ids = ids[self._order]

    def __len__(self) -> int:
        return len(self.listed)

    def __iter__(self) -> Iterator[ManifestFile]:
        """All of them, in the order of the file."""
        return (self._file(row) for row in range(len(self)))

    def get(self, id: ManifestId) -> ManifestFile | None:
        row = find_row(self._ids, id)
        return None if row is None else self._file(int(self._order[row]))

    def counts(self, ids: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        """How many references each of some manifests has; -1 for one that is not listed."""
        if not len(self):
            return np.full(len(ids), -1)
        rows = np.searchsorted(self._ids.view("S12"), ids.view("S12"))
        rows = np.minimum(rows, len(self) - 1)
        counts = self.listed["num_chunk_refs"][self._order[rows]].astype(np.int64)
        return np.where(self._ids[rows] == ids, counts, -1)

    def repeat(self) -> bool:
        """Whether a manifest is listed twice."""
        return bool((self._ids[1:] == self._ids[:-1]).any())

    def _file(self, row: int) -> ManifestFile:
        id, size, refs = self.listed[row].item()
        return ManifestFile(ManifestId(id), size, refs)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One version of the repository; ``parent_id`` is absent in files of spec v2."""

    id: SnapshotId
    parent_id: SnapshotId | None
    flushed_at: int
    message: str
    metadata: dict[str, Any]
    manifest_files: ManifestFiles
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
        nodes=read_nodes(root.buffer, root.need(root.target(SnapshotSlot.NODES), "nodes")),
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


def _manifest_files(root: Table) -> ManifestFiles:
    listed = _manifest_files_v1(root)
    if root.has(SnapshotSlot.MANIFEST_FILES_V2):
        listed = _manifest_files_v2(root)
    files = ManifestFiles(listed)
    if files.repeat():
        raise root.buffer.error("a manifest is listed twice")
    return files


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
