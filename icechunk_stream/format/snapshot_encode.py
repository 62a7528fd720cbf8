"""Snapshots written from nodes and the manifests that they use, by the rules of either spec."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from icechunk_stream.format.header import DEFAULT_LEVEL, FileType
from icechunk_stream.format.ids import ID12, ManifestId
from icechunk_stream.format.node_copies import copies_of
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.format.nodes_encode import write_nodes
from icechunk_stream.format.records import (
    ID12_CODE,
    OFFSET,
    Records,
    Writer,
    invalid,
    layout,
    shape,
    utf8,
)
from icechunk_stream.format.snapshot import MANIFEST_FILE_V1, SnapshotSlot
from icechunk_stream.format.times import MAX_MICROS
from icechunk_stream.format.values import encode_value

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt

    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.format.node_copies import Copies
    from icechunk_stream.format.node_rows import Nodes
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.records import Block, Shape
    from icechunk_stream.format.snapshot import ManifestFile, Snapshot

    Rows = npt.NDArray[np.intp]

_ALWAYS = (
    (SnapshotSlot.ID, ID12_CODE),
    (SnapshotSlot.FLUSHED_AT, "Q"),
    (SnapshotSlot.NODES, OFFSET),
    (SnapshotSlot.MESSAGE, OFFSET),
    (SnapshotSlot.METADATA, OFFSET),
    (SnapshotSlot.MANIFEST_FILES, OFFSET),
)
_FIRST_V1 = shape(*_ALWAYS)
_LATER_V1 = shape(*_ALWAYS, (SnapshotSlot.PARENT_ID, ID12_CODE))
_V2 = shape(*_ALWAYS, (SnapshotSlot.MANIFEST_FILES_V2, OFFSET))
_MANIFEST_FILE_V2 = layout(shape((0, ID12_CODE), (1, "Q"), (2, "I")))
_ITEM = shape((0, OFFSET), (1, OFFSET))
# So few nodes are written anew sooner than it is found out where their bytes are.
_FEW = 16
_NO_OFFSETS = (0, 0, 0, 0)
_FILE_FIELDS = ("id", "size_bytes", "num_chunk_refs")


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotContents:
    """What a snapshot says; nodes and manifests in any order. The parent is written in v1 only.

    With a base, these are the nodes that it does not have like this. Its others stay, told by their
    ids, but for those at paths that are gone; so do its manifests, as far as a node uses them.
    """

    id: SnapshotId
    parent_id: SnapshotId | None
    flushed_at: int
    message: str
    metadata: Mapping[str, Any]
    manifest_files: Sequence[ManifestFile]
    nodes: Sequence[Node]
    base: Snapshot | None = None
    gone: Collection[str] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        return cls(
            id=snapshot.id,
            parent_id=snapshot.parent_id,
            flushed_at=snapshot.flushed_at,
            message=snapshot.message,
            metadata=snapshot.metadata,
            manifest_files=tuple(snapshot.manifest_files),
            nodes=tuple(snapshot.nodes),
        )


def encode_snapshot(
    snapshot: SnapshotContents, spec_version: int, level: int = DEFAULT_LEVEL
) -> bytes:
    """A snapshot object; every manifest that a node uses has to be among its manifest files."""
    copies, decoded = _kept(snapshot, spec_version)
    nodes = [*snapshot.nodes, *decoded]
    writer = Writer()
    of, root = _write_root(writer, snapshot, spec_version)
    message = writer.text(snapshot.message)
    writer.attach(root, of, SnapshotSlot.MESSAGE, message)
    metadata = write_metadata(writer, snapshot.metadata, spec_version)
    writer.attach(root, of, SnapshotSlot.METADATA, metadata)
    vector = write_nodes(writer, nodes, spec_version, copies)
    writer.attach(root, of, SnapshotSlot.NODES, vector)
    _write_files(writer, root, of, _files(snapshot, _used(nodes, copies)))
    return writer.seal(root, FileType.SNAPSHOT, spec_version, level)


def write_metadata(writer: Writer, metadata: Mapping[str, Any], spec_version: int) -> int:
    """The vector of metadata items, in the order of their names' bytes."""
    vector = writer.offsets(len(metadata))
    for number, name in enumerate(sorted(metadata, key=utf8), start=1):
        value = encode_value(metadata[name], spec_version, f"the metadata item {name!r}")
        table = writer.table(_ITEM, 0, 0)
        writer.link(vector + 4 * number, table)
        writer.attach(table, _ITEM, 0, writer.text(name))
        writer.attach(table, _ITEM, 1, writer.blob(value))
    return vector


def check_written_time(micros: int) -> int:
    if not 0 <= micros <= MAX_MICROS:
        raise invalid(f"the time of {micros} microseconds is before 1970 or beyond the year 9998")
    return micros


def _write_root(writer: Writer, snapshot: SnapshotContents, spec_version: int) -> tuple[Shape, int]:
    flushed_at = check_written_time(snapshot.flushed_at)
    values = (snapshot.id.raw, flushed_at, *_NO_OFFSETS)
    if spec_version != 1:
        return _V2, writer.table(_V2, *values, 0)
    if snapshot.parent_id is None:
        return _FIRST_V1, writer.table(_FIRST_V1, *values)
    if snapshot.parent_id == snapshot.id:
        raise invalid(f"the snapshot {snapshot.id} is its own parent")
    return _LATER_V1, writer.table(_LATER_V1, *values, snapshot.parent_id.raw)


def _write_files(writer: Writer, root: int, of: Shape, files: npt.NDArray[np.void]) -> None:
    """Spec v1 lists manifests as structs, v2 as tables beside an empty vector of structs."""
    if of is not _V2:
        at = writer.vector(files, alignment=8)
        writer.attach(root, of, SnapshotSlot.MANIFEST_FILES, at)
        return
    at = writer.vector(files[:0], alignment=8)
    writer.attach(root, of, SnapshotSlot.MANIFEST_FILES, at)
    tables = Records(_MANIFEST_FILE_V2, len(files), partial(_fill_files, files))
    writer.attach(root, of, SnapshotSlot.MANIFEST_FILES_V2, writer.records([tables]))


def _fill_files(files: npt.NDArray[np.void], block: Block, rows: slice) -> None:
    for slot, name in enumerate(_FILE_FIELDS):
        block.set(slot, files[name][rows])


def _sorted_files(listed: Sequence[ManifestFile]) -> npt.NDArray[np.void]:
    ids = np.frombuffer(b"".join([file.id.raw for file in listed]), ID12)
    try:
        sizes = np.array([file.size_bytes for file in listed], np.uint64)
        counts = np.array([file.num_chunk_refs for file in listed], np.uint32)
    except OverflowError as error:
        raise invalid(f"a manifest's size or number of references: {error}") from error
    files = _chosen((ids, sizes, counts), np.argsort(ids.view("S12")))
    if (files["id"][1:] == files["id"][:-1]).any():
        raise invalid("a manifest is listed twice")
    return files


def _chosen(columns: Sequence[npt.NDArray[Any]], rows: Rows) -> npt.NDArray[np.void]:
    # Zeroed, and filled by field: the structs have padding.
    files = np.zeros(len(rows), MANIFEST_FILE_V1)
    for name, column in zip(_FILE_FIELDS, columns, strict=True):
        files[name] = column[rows]
    return files


def _kept(snapshot: SnapshotContents, spec_version: int) -> tuple[Copies | None, Sequence[Node]]:
    """Nodes of the base that stay: those that can be copied, and the others as values."""
    base = snapshot.base
    if base is None:
        return None, ()
    kept = _staying(base.nodes, snapshot)
    copies = None
    # A reader of spec v2 takes an array that was encoded in v1 for one without dimensions.
    if base.spec_version == spec_version and np.count_nonzero(kept) > _FEW:
        copies = copies_of(base.nodes, kept, spec_version)
        kept[copies.rows] = False
    return copies, [base.nodes.node(row) for row in np.flatnonzero(kept).tolist()]


def _staying(nodes: Nodes, snapshot: SnapshotContents) -> npt.NDArray[np.bool_]:
    kept = np.ones(len(nodes), np.bool_)
    kept[list(nodes.rows_of(node.id for node in snapshot.nodes).values())] = False
    for path in snapshot.gone:
        row = nodes.row(path)
        assert row is not None
        kept[row] = False
    for node in snapshot.nodes:
        row = nodes.row(node.path)
        if row is not None and kept[row]:
            raise invalid(f"two nodes have the path {node.path}")
    return kept


def _used(nodes: Sequence[Node], copies: Copies | None) -> npt.NDArray[np.void]:
    """The manifests of all arrays, as often as they are used."""
    used = [node.manifests.ids for node in nodes if isinstance(node, ArrayNode)]
    return np.concatenate([np.zeros(0, ID12), *used, *([copies.manifests] if copies else [])])


def _files(snapshot: SnapshotContents, used: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """What the snapshot lists: every manifest that is used, each once."""
    files = _sorted_files(snapshot.manifest_files)
    if snapshot.base is not None:
        files = _united(files, snapshot.base.manifest_files.listed)
    rows = _rows_of(files["id"].copy(), used)
    if snapshot.base is None:
        return files
    is_used = np.zeros(len(files), np.bool_)
    is_used[rows] = True
    return _chosen([files[name] for name in _FILE_FIELDS], np.flatnonzero(is_used))


def _united(files: npt.NDArray[np.void], others: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Listed manifests, and those of others that are not among them, sorted."""
    both = [np.concatenate([files[name], others[name]]) for name in _FILE_FIELDS]
    return _chosen(both, np.unique(both[0].view("S12"), return_index=True)[1])


def _rows_of(listed: npt.NDArray[np.void], used: npt.NDArray[np.void]) -> Rows:
    """Where manifests are in the list, which has to have all of them."""
    rows = np.searchsorted(listed.view("S12"), used.view("S12"))
    found = rows < len(listed)
    found[found] = listed[rows[found]] == used[found]
    if not found.all():
        missing = ManifestId(used[~found][0].tobytes())
        raise invalid(f"an array uses the manifest {missing}, which is not listed")
    return rows
