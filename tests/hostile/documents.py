"""Documents of every kind, valid as they are, out of parts that tests can take away or change."""

from __future__ import annotations

import struct
from copy import deepcopy
from typing import TYPE_CHECKING, TypeAlias

from tests.hostile.raw import (
    Field,
    Inline,
    Octets,
    Offsets,
    Table,
    i32,
    text,
    u8,
    u16,
    u32,
    u64,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Slots that the format requires, by kind of table.
REQUIRED: dict[str, set[int]] = {
    "Manifest": {0, 1},
    "ArrayManifest": {0, 1},
    "ChunkRef": {0},
    "Snapshot": {0, 2, 4, 5, 6},
    "ManifestFileInfoV2": {0},
    "NodeSnapshot": {0, 1, 2, 3, 4},
    "ArrayNodeData v1": {0, 2},
    "ArrayNodeData": {2},
    "ManifestRef": {0, 1},
    "MetadataItem": {0, 1},
    "TransactionLog": {0, 1, 2, 3, 4, 5, 6, 7},
    "ArrayUpdatedChunks": {0, 1},
    "ChunkIndices": {0},
    "MoveOperation": {0, 1, 2},
    "Repo": {0, 1, 2, 3, 4, 5, 7},
    "Ref": {0},
    "SnapshotInfo": {0, 3},
    "Update": {0, 1},
    "TagCreated": {0},
    "TagDeleted": {0, 1},
    "BranchCreated": {0},
    "BranchDeleted": {0, 1},
    "BranchReset": {0, 1},
    "NewCommit": {0, 1},
    "CommitAmended": {0, 1, 2},
    "NewDetachedSnapshot": {0},
    "RepoStatusChanged": {0},
}

MESSAGE_PACK_TRUE = b"\xc3"
FLEX_TRUE = b"\x01\x68\x01"
DOCUMENT = b'{"zarr_format":3,"node_type":"group"}'
NOW = 1_700_000_000_000_000


def id12(number: int) -> Inline:
    return Inline(number.to_bytes(12, "big"))


def id8(number: int) -> Inline:
    return Inline(number.to_bytes(8, "big"))


def ids8(*numbers: int) -> Octets:
    return Octets(b"".join(number.to_bytes(8, "big") for number in numbers), 8)


def metadata(name: str = "key", value: bytes = FLEX_TRUE) -> Table:
    return Table("MetadataItem", {0: text(name), 1: Octets(value)})


# -- manifests -------------------------------------------------------------------------------------


def manifest(*arrays: Table, **more: Field) -> Table:
    fields: dict[int, Field] = {0: id12(1), 1: Offsets(arrays), 3: more.get("algorithm", u8(0))}
    if "dictionary" in more:
        fields[2] = more["dictionary"]
    return Table("Manifest", fields)


def array_refs(node: int, refs: Sequence[Table]) -> Table:
    return Table("ArrayManifest", {0: id8(node), 1: Offsets(refs)})


def ref(index: Sequence[int], **fields: Field) -> Table:
    slots = {
        "inline": 1,
        "offset": 2,
        "length": 3,
        "chunk_id": 4,
        "location": 5,
        "etag": 6,
        "modified": 7,
        "compressed": 8,
    }
    return Table("ChunkRef", {0: words(*index), **{slots[name]: at for name, at in fields.items()}})


def native(index: Sequence[int], offset: int = 0, length: int = 8) -> Table:
    return ref(index, chunk_id=id12(77), offset=u64(offset), length=u64(length))


def inline(index: Sequence[int], data: bytes = b"inline") -> Table:
    return ref(index, inline=Octets(data))


def virtual(index: Sequence[int], location: str | bytes = "s3://bucket/key") -> Table:
    at = text(location)
    return ref(index, location=at, offset=u64(8), length=u64(4), etag=text("etag"))


def every_manifest() -> Table:
    return manifest(
        array_refs(1, [native([0, 0]), inline([0, 1]), virtual([1, 0])]),
        array_refs(2, [virtual([5])]),
        array_refs(3, [inline([])]),
        array_refs(4, []),
    )


# -- snapshots -------------------------------------------------------------------------------------


def group(path: str | bytes, node: int = 9, document: bytes = DOCUMENT) -> Table:
    return _node(path, node, document, 2, Table("GroupNodeData"))


def array(
    path: str,
    node: int = 8,
    shape: Sequence[tuple[int, int]] = ((4, 2), (6, 3)),
    boxes: Sequence[Sequence[tuple[int, int]]] = (((0, 2), (0, 3)),),
    names: Sequence[str | None] | None = ("x", None),
) -> Table:
    """An array of spec v2; the shape gives length and number of chunks of every dimension."""
    dimensions = [Table("DimensionShapeV2", {0: u64(n), 1: u32(chunks)}) for n, chunks in shape]
    data = array_data(boxes, names)
    data.fields |= {0: Octets(b"", 16, 8), 3: Offsets(dimensions)}
    return _node(path, node, DOCUMENT, 1, data)


def array_v1(
    path: str, node: int = 8, shape: Sequence[tuple[int, int]] = ((4, 2), (6, 2))
) -> Table:
    """An array of spec v1; the shape gives length and chunk length of every dimension."""
    data = array_data([[(0, 2), (0, 3)]], ("x", None))
    data.kind = "ArrayNodeData v1"
    data.fields[0] = Octets(b"".join(struct.pack("<QQ", *both) for both in shape), 16, 8)
    return _node(path, node, DOCUMENT, 1, data)


def array_data(
    boxes: Sequence[Sequence[tuple[int, int]]], names: Sequence[str | None] | None
) -> Table:
    refs = [manifest_ref(1, box) for box in boxes]
    fields: dict[int, Field] = {2: Offsets(refs)}
    if names is not None:
        fields[1] = Offsets([_dimension_name(name) for name in names])
    return Table("ArrayNodeData", fields)


def manifest_ref(number: int, box: Sequence[tuple[int, int]]) -> Table:
    extents = b"".join(struct.pack("<II", *bounds) for bounds in box)
    return Table("ManifestRef", {0: id12(number), 1: Octets(extents, 8)})


def _dimension_name(name: str | None) -> Table:
    return Table("DimensionName", {} if name is None else {0: text(name)})


def _node(path: str | bytes, node: int, document: bytes, tag: int, data: Table) -> Table:
    fields: dict[int, Field] = {
        0: id8(node),
        1: text(path),
        2: Octets(document),
        3: u8(tag),
        4: data,
    }
    return Table("NodeSnapshot", fields)


def snapshot(*nodes: Table, flushed_at: int = NOW) -> Table:
    """A snapshot of spec v2, with one manifest."""
    file = Table("ManifestFileInfoV2", {0: id12(1), 1: u64(300), 2: u32(6)})
    fields: dict[int, Field] = {
        0: id12(1),
        2: Offsets(nodes),
        3: u64(flushed_at),
        4: text("message"),
        5: Offsets([metadata()]),
        6: Octets(b"", 32, 8),
        7: Offsets([file]),
    }
    return Table("Snapshot", fields)


def snapshot_v1(*nodes: Table, parent: int = 2) -> Table:
    fields: dict[int, Field] = {
        0: id12(1),
        1: id12(parent),
        2: Offsets(nodes),
        3: u64(NOW),
        4: text("message"),
        5: Offsets([metadata(value=MESSAGE_PACK_TRUE)]),
        6: Octets(struct.pack("<12s4xQI4x", (1).to_bytes(12, "big"), 300, 6), 32, 8),
    }
    return Table("Snapshot", fields)


def every_snapshot() -> Table:
    point = array("/point", 6, (), ((),), None)
    empty = array("/empty", 7, ((0, 0), (3, 2)), (), ("t", "x"))
    return snapshot(group("/"), array("/array"), empty, point)


def every_snapshot_v1() -> Table:
    return snapshot_v1(group("/"), array_v1("/array"))


# -- transaction logs ------------------------------------------------------------------------------


def log(
    updated: Sequence[Table] = (),
    moves: Sequence[Table] = (),
    ids: Mapping[int, Field] | None = None,
) -> Table:
    """A transaction log; ``ids`` replaces lists of node ids by slot."""
    fields: dict[int, Field] = {slot: ids8(10 * slot, 10 * slot + 1) for slot in range(1, 7)}
    fields |= {0: id12(1), 7: Offsets(updated), 8: Offsets(moves)}
    return Table("TransactionLog", fields | dict(ids or {}))


def updated_chunks(node: int, *indices: Sequence[int]) -> Table:
    chunks = [Table("ChunkIndices", {0: words(*index)}) for index in indices]
    return Table("ArrayUpdatedChunks", {0: id8(node), 1: Offsets(chunks)})


def move(source: str = "/a", target: str = "/b", node: int = 5) -> Table:
    return Table("MoveOperation", {0: text(source), 1: text(target), 2: id8(node), 3: u8(1)})


def every_log() -> Table:
    chunks = [updated_chunks(1, [0, 0], [0, 1]), updated_chunks(2, []), updated_chunks(3)]
    return log(chunks, [move(), move("/c", "/d/e", 6)])


# -- the repo object -------------------------------------------------------------------------------

_Update: TypeAlias = "tuple[int, str, dict[int, Field]]"
_UPDATES: list[_Update] = [
    (1, "RepoInitialized", {}),
    (2, "RepoMigrated", {0: u8(1), 1: u8(2)}),
    (3, "ConfigChanged", {}),
    (4, "MetadataChanged", {}),
    (5, "TagCreated", {0: text("t")}),
    (6, "TagDeleted", {0: text("t"), 1: id12(1)}),
    (7, "BranchCreated", {0: text("b")}),
    (8, "BranchDeleted", {0: text("b"), 1: id12(1)}),
    (9, "BranchReset", {0: text("b"), 1: id12(1)}),
    (10, "NewCommit", {0: text("b"), 1: id12(1)}),
    (11, "CommitAmended", {0: text("b"), 1: id12(1), 2: id12(2)}),
    (12, "NewDetachedSnapshot", {0: id12(1)}),
    (13, "GCRan", {}),
    (14, "ExpirationRan", {}),
    (15, "FeatureFlagChanged", {0: u16(3), 1: u8(1), 2: u8(1)}),
]


def updates() -> list[Table]:
    """An entry of the operations log of every kind."""
    kinds: list[_Update] = [*_UPDATES, (16, "RepoStatusChanged", {0: status()})]
    # Tests damage the parts of their documents.
    return [update(tag, Table(kind, deepcopy(fields))) for tag, kind, fields in kinds]


def update(tag: int, kind: Table, at: int = NOW) -> Table:
    fields: dict[int, Field] = {0: u8(tag), 1: kind, 2: u64(at), 3: text("repo.1.X")}
    return Table("Update", fields)


def status(set_at: int = NOW) -> Table:
    return Table("RepoStatus", {0: u8(1), 1: u64(set_at), 2: text("why")})


def refs(**rows: int) -> Offsets:
    return Offsets([Table("Ref", {0: text(name), 1: u32(row)}) for name, row in rows.items()])


def info(number: int, parent: int, flushed_at: int = NOW) -> Table:
    fields: dict[int, Field] = {
        0: id12(number),
        1: i32(parent),
        2: u64(flushed_at),
        3: text("message"),
        4: Offsets([metadata()]),
        5: Octets(bytes(24), 12),
    }
    return Table("SnapshotInfo", fields)


def repo(*snapshots: Table, **more: Field) -> Table:
    """A ``repo`` object; ``slot_<n>`` replaces a field."""
    fields: dict[int, Field] = {
        0: u8(2),
        1: refs(tag=1),
        2: refs(main=0),
        3: Offsets([text("gone"), text("lost")]),
        4: Offsets(snapshots or [info(1, 1), info(2, -1)]),
        5: status(),
        6: Offsets([metadata()]),
        7: Offsets(updates()),
        8: text("repo.2.X"),
        10: Octets(struct.pack("<H", 3), 2),
        11: Octets(struct.pack("<H", 4), 2),
    }
    return Table("Repo", fields | {int(slot[5:]): at for slot, at in more.items()})


def every_repo() -> Table:
    return repo()
