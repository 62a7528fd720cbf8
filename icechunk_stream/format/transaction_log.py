"""Transaction logs: what one commit changed, by node id."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np

from icechunk_stream.format.columns import table_groups
from icechunk_stream.format.flat import FlatBuffer, Table
from icechunk_stream.format.header import FileType, open_envelope
from icechunk_stream.format.ids import ID8, NODE_ID_SIZE, OBJECT_ID_SIZE, NodeId, SnapshotId
from icechunk_stream.format.manifest import MAX_RANK
from icechunk_stream.format.nodes import NodeType
from icechunk_stream.format.paths import is_canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Ids = npt.NDArray[np.void]
    Coordinates = npt.NDArray[np.uint32]


class LogSlot(IntEnum):
    """Slots of ``TransactionLog``."""

    ID = 0
    NEW_GROUPS = 1
    NEW_ARRAYS = 2
    DELETED_GROUPS = 3
    DELETED_ARRAYS = 4
    UPDATED_ARRAYS = 5
    UPDATED_GROUPS = 6
    UPDATED_CHUNKS = 7
    MOVED_NODES = 8


_MOVED_ARRAY = 1


@dataclass(frozen=True, slots=True)
class Move:
    """A node that was renamed."""

    source: str
    target: str
    node_id: NodeId
    node_type: NodeType


@dataclass(frozen=True, slots=True, eq=False)
class TransactionLog:
    """Changes of one commit; columns of node ids, and of chunk coordinates by node."""

    id: SnapshotId
    new_groups: Ids
    new_arrays: Ids
    deleted_groups: Ids
    deleted_arrays: Ids
    updated_arrays: Ids
    updated_groups: Ids
    updated_chunks: Mapping[NodeId, Coordinates]
    moved_nodes: tuple[Move, ...]
    spec_version: int
    written_by: str
    nbytes: int


def decode_transaction_log(data: bytes, key: str) -> TransactionLog:
    """Read a transaction log object."""
    envelope = open_envelope(data, FileType.TRANSACTION_LOG, key)
    root = FlatBuffer(envelope.payload, key).root()
    return TransactionLog(
        id=SnapshotId(root.need(root.struct(LogSlot.ID, OBJECT_ID_SIZE), "id")),
        new_groups=_ids(root, LogSlot.NEW_GROUPS),
        new_arrays=_ids(root, LogSlot.NEW_ARRAYS),
        deleted_groups=_ids(root, LogSlot.DELETED_GROUPS),
        deleted_arrays=_ids(root, LogSlot.DELETED_ARRAYS),
        updated_arrays=_ids(root, LogSlot.UPDATED_ARRAYS),
        updated_groups=_ids(root, LogSlot.UPDATED_GROUPS),
        updated_chunks=MappingProxyType(_updated_chunks(root)),
        moved_nodes=tuple(_move(table) for table in root.tables(LogSlot.MOVED_NODES)),
        spec_version=envelope.spec_version,
        written_by=envelope.written_by,
        nbytes=len(envelope.payload),
    )


def _ids(root: Table, slot: LogSlot) -> Ids:
    ids = cast("Ids", root.need(root.array(slot, ID8), slot.name.lower()))
    numbers = ids.view(">u8")
    if (numbers[1:] <= numbers[:-1]).any():
        raise root.buffer.error(f"its {slot.name.lower()} are not in ascending order, or repeat")
    return ids


def _updated_chunks(root: Table) -> dict[NodeId, Coordinates]:
    root.need(root.target(LogSlot.UPDATED_CHUNKS), "updated_chunks")
    updated: dict[NodeId, Coordinates] = {}
    last = b""
    for table in root.tables(LogSlot.UPDATED_CHUNKS):
        node = table.need(table.struct(0, NODE_ID_SIZE), "node_id")
        if node <= last:
            raise root.buffer.error("its updated chunks are not in ascending order of node ids")
        last = node
        updated[NodeId(node)] = _coordinates(root.buffer, table.need(table.target(1), "chunks"))
    return updated


def _coordinates(buffer: FlatBuffer, at: int) -> Coordinates:
    count = buffer.vector(at, 4)[1]
    coordinates: Coordinates | None = None
    for group in table_groups(buffer, at):
        vectors = group.vectors(0, 4)
        if vectors is None:
            raise buffer.error("a changed chunk lacks its coordinates")
        starts, counts = vectors
        if coordinates is None:
            if int(counts[0]) > MAX_RANK:
                raise buffer.error(f"chunk coordinates of {int(counts[0])} dimensions")
            coordinates = np.empty((count, int(counts[0])), np.uint32)
        if (counts != coordinates.shape[1]).any():
            raise buffer.error("chunk coordinates of one array differ in their rank")
        for axis in range(coordinates.shape[1]):
            coordinates[group.rows, axis] = buffer.words[(starts >> 2) + axis]
    return np.empty((0, 0), np.uint32) if coordinates is None else coordinates


def _move(table: Table) -> Move:
    source, target = table.need(table.text(0), "from"), table.need(table.text(1), "to")
    if not (is_canonical(source) and is_canonical(target)):
        raise table.buffer.error(f"a node is moved from {source!r} to {target!r}")
    node_id = NodeId(table.need(table.struct(2, NODE_ID_SIZE), "node_id"))
    kind = NodeType.ARRAY if table.scalar(3, "B") == _MOVED_ARRAY else NodeType.GROUP
    return Move(source, target, node_id, kind)
