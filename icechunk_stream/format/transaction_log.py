"""Transaction logs: what one commit changed, by node id."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np

from icechunk_stream.format.columns import nested_groups, table_groups
from icechunk_stream.format.flat import OFFSET_SIZE, FlatBuffer, Table
from icechunk_stream.format.header import FileType, open_envelope
from icechunk_stream.format.ids import ID8, NODE_ID_SIZE, OBJECT_ID_SIZE, NodeId, SnapshotId
from icechunk_stream.format.keys import KeySpace, ascending
from icechunk_stream.format.nodes import NodeType
from icechunk_stream.format.paths import is_canonical
from icechunk_stream.format.refs_decode import MAX_RANK

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Ids = npt.NDArray[np.void]
    Coordinates = npt.NDArray[np.uint32]
    Places = npt.NDArray[np.intp]


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
        moved_nodes=_moves(root),
        spec_version=envelope.spec_version,
        written_by=envelope.written_by,
        nbytes=len(envelope.payload),
    )


def _ids(root: Table, slot: LogSlot) -> Ids:
    ids = cast("Ids", root.need(root.array(slot, ID8), slot.name.lower()))
    if not ascending(ids.view(">u8")):
        raise root.buffer.error(f"its {slot.name.lower()} are not in ascending order, or repeat")
    return ids


def _updated_chunks(root: Table) -> dict[NodeId, Coordinates]:
    at = root.need(root.target(LogSlot.UPDATED_CHUNKS), "updated_chunks")
    buffer = root.buffer
    count = buffer.vector(at, OFFSET_SIZE)[1]
    nodes = np.zeros(count, ID8)
    starts, counts = np.zeros(count, np.intp), np.zeros(count, np.intp)
    for group in table_groups(buffer, at):
        ids, vectors = group.structs(0, ID8), group.vectors(1, OFFSET_SIZE)
        if ids is None or vectors is None:
            raise buffer.error("an array with changed chunks lacks its id or its chunks")
        nodes[group.rows] = ids
        starts[group.rows], counts[group.rows] = vectors
    if not ascending(nodes.view(">u8")):
        raise buffer.error("its updated chunks are not in ascending order of node ids, or repeat")
    coordinates = _coordinates(buffer, starts, counts)
    return dict(zip(map(NodeId, nodes.tolist()), coordinates, strict=True))


def _coordinates(buffer: FlatBuffer, starts: Places, counts: Places) -> list[Coordinates]:
    """Coordinates of every array, whose vectors of chunks begin at ``starts``."""
    owners = np.repeat(np.arange(len(counts)), counts)
    where, ranks = np.zeros(len(owners), np.intp), np.zeros(len(owners), np.intp)
    for group in nested_groups(buffer, starts, counts):
        vectors = group.vectors(0, 4)
        if vectors is None:
            raise buffer.error("a changed chunk lacks its coordinates")
        where[group.rows], ranks[group.rows] = vectors[0] >> 2, vectors[1]
    buffer.spend(4 * int(ranks.sum()))
    found = [np.empty((0, 0), np.uint32)] * len(counts)
    for rank in np.unique(ranks).tolist():
        rows = ranks == rank
        block = _block(buffer, owners[rows], where[rows], rank)
        arrays, sizes = np.unique(owners[rows], return_counts=True)
        for array, end, size in zip(arrays, np.cumsum(sizes), sizes, strict=True):
            if size != counts[array]:
                raise buffer.error("chunk coordinates of one array differ in their rank")
            found[array] = block[end - size : end]
    return found


def _block(buffer: FlatBuffer, owners: Places, where: Places, rank: int) -> Coordinates:
    """Coordinates of one rank, of many arrays, brought into ascending order in each of them.

    Readers take them for a set, and release 1.1.21 writes them in any order.
    """
    if rank > MAX_RANK:
        raise buffer.error(f"chunk coordinates of {rank} dimensions")
    block = np.empty((len(owners), 1 + rank), np.uint32)
    block[:, 0] = owners
    for axis in range(rank):
        block[:, 1 + axis] = buffer.words[where + axis]
    keys = KeySpace.within([int(top) + 1 for top in block.max(0)]).pack(block)
    if not ascending(keys):
        order = np.argsort(keys)
        block = block[order]
        if not ascending(keys[order]):
            raise buffer.error("a changed chunk is listed twice")
    return block[:, 1:]


def _moves(root: Table) -> tuple[Move, ...]:
    moves: dict[NodeId, Move] = {}
    for table in root.tables(LogSlot.MOVED_NODES):
        move = _move(table)
        if move.node_id in moves:
            raise root.buffer.error(f"the node {move.node_id} is moved twice")
        moves[move.node_id] = move
    return tuple(moves.values())


def _move(table: Table) -> Move:
    source, target = table.need(table.text(0), "from"), table.need(table.text(1), "to")
    if not (is_canonical(source) and is_canonical(target)):
        raise table.buffer.error(f"a node is moved from {source!r} to {target!r}")
    node_id = NodeId(table.need(table.struct(2, NODE_ID_SIZE), "node_id"))
    kind = NodeType.ARRAY if table.scalar(3, "B") == _MOVED_ARRAY else NodeType.GROUP
    return Move(source, target, node_id, kind)
