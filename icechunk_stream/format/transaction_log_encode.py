"""Transaction logs written from columns: a million changed chunks make no Python objects."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np

from icechunk_stream.format.header import DEFAULT_LEVEL, FileType
from icechunk_stream.format.ids import ID8
from icechunk_stream.format.keys import KeySpace, ascending
from icechunk_stream.format.nodes import NodeType
from icechunk_stream.format.paths import is_canonical
from icechunk_stream.format.records import (
    ID8_CODE,
    ID12_CODE,
    OFFSET,
    Records,
    Writer,
    invalid,
    owning_layout,
    shape,
    utf8,
)
from icechunk_stream.format.refs_decode import MAX_RANK
from icechunk_stream.format.transaction_log import LogSlot

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from icechunk_stream.format.ids import NodeId, SnapshotId
    from icechunk_stream.format.records import Block
    from icechunk_stream.format.transaction_log import (
        Coordinates,
        Ids,
        Move,
        TransactionLog,
    )

_ID_LISTS = (
    LogSlot.NEW_GROUPS,
    LogSlot.NEW_ARRAYS,
    LogSlot.DELETED_GROUPS,
    LogSlot.DELETED_ARRAYS,
    LogSlot.UPDATED_ARRAYS,
    LogSlot.UPDATED_GROUPS,
)
_LOG = shape(
    (LogSlot.ID, ID12_CODE),
    *((slot, OFFSET) for slot in (*_ID_LISTS, LogSlot.UPDATED_CHUNKS, LogSlot.MOVED_NODES)),
)
_ARRAY = shape((0, ID8_CODE), (1, OFFSET))
_COORDINATES = shape((0, OFFSET))
_MOVE = shape((0, OFFSET), (1, OFFSET), (2, ID8_CODE), (3, "B"))
_MOVED_GROUP, _MOVED_ARRAY = 0, 1


def _no_ids() -> Ids:
    return np.zeros(0, ID8)


@dataclass(frozen=True, slots=True, eq=False)
class LogContents:
    """What a log says; ids, coordinates and moves in any order."""

    id: SnapshotId
    new_groups: Ids = field(default_factory=_no_ids)
    new_arrays: Ids = field(default_factory=_no_ids)
    deleted_groups: Ids = field(default_factory=_no_ids)
    deleted_arrays: Ids = field(default_factory=_no_ids)
    updated_arrays: Ids = field(default_factory=_no_ids)
    updated_groups: Ids = field(default_factory=_no_ids)
    updated_chunks: Mapping[NodeId, Coordinates] = field(default_factory=dict)
    moved_nodes: Collection[Move] = ()

    @classmethod
    def of(cls, log: TransactionLog) -> Self:
        return cls(**{item.name: getattr(log, item.name) for item in fields(cls)})


def encode_transaction_log(
    log: LogContents, spec_version: int, level: int = DEFAULT_LEVEL
) -> bytes:
    """A transaction log object; coordinates that are given twice are written once."""
    writer = Writer()
    root = writer.table(_LOG, log.id.raw, *(0 for _ in _LOG.fields[1:]))
    for slot in _ID_LISTS:
        ids = _sorted_ids(getattr(log, slot.name.lower()), slot.name.lower())
        writer.attach(root, _LOG, slot, writer.vector(ids))
    writer.attach(root, _LOG, LogSlot.UPDATED_CHUNKS, _write_chunks(writer, log.updated_chunks))
    writer.attach(root, _LOG, LogSlot.MOVED_NODES, _write_moves(writer, log.moved_nodes))
    return writer.seal(root, FileType.TRANSACTION_LOG, spec_version, level)


def _sorted_ids(ids: Ids, name: str) -> Ids:
    if ids.dtype != ID8 or ids.ndim != 1:
        raise invalid(f"{name}: a column of {ids.dtype}, one of {ID8} is expected")
    if len(ids) < 2:  # noqa: PLR2004
        return ids
    numbers = np.sort(np.ascontiguousarray(ids).view(">u8"))
    if (numbers[1:] == numbers[:-1]).any():
        raise invalid(f"{name}: a node id is there twice")
    return numbers.view(ID8)


def _write_chunks(writer: Writer, updated: Mapping[NodeId, Coordinates]) -> int:
    vector = writer.offsets(len(updated))
    for number, node in enumerate(sorted(updated), start=1):
        table = writer.table(_ARRAY, node.raw, 0)
        writer.link(vector + 4 * number, table)
        coordinates = _sorted_coordinates(updated[node], node)
        writer.attach(table, _ARRAY, 1, _write_coordinates(writer, coordinates))
    return vector


def _sorted_coordinates(coordinates: Coordinates, node: NodeId) -> Coordinates:
    if coordinates.dtype != np.uint32 or coordinates.ndim != 2:  # noqa: PLR2004
        shown = f"{coordinates.dtype} {coordinates.shape}"
        raise invalid(f"array {node}: coordinates {shown}, uint32 (chunks, dimensions) is expected")
    if coordinates.shape[1] > MAX_RANK:
        raise invalid(f"array {node}: chunk coordinates of {coordinates.shape[1]} dimensions")
    if len(coordinates) == 0:
        return coordinates
    bounds = [int(top) + 1 for top in coordinates.max(axis=0)]
    keys = KeySpace.within(bounds).pack(coordinates)
    if ascending(keys):
        return coordinates
    return coordinates[np.unique(keys, return_index=True)[1]]


def _write_coordinates(writer: Writer, coordinates: Coordinates) -> int:
    count, rank = coordinates.shape
    layout = owning_layout(_COORDINATES, 0, rank, rank)
    return writer.records([Records(layout, count, partial(_fill_coordinates, coordinates))])


def _fill_coordinates(coordinates: Coordinates, block: Block, rows: slice) -> None:
    block.set_items(coordinates[rows])


def _write_moves(writer: Writer, moves: Collection[Move]) -> int:
    if len({move.node_id for move in moves}) != len(moves):
        raise invalid("a node is moved twice in one log: combine its moves")
    vector = writer.offsets(len(moves))
    for number, move in enumerate(sorted(moves, key=_segments), start=1):
        kind = _MOVED_ARRAY if move.node_type is NodeType.ARRAY else _MOVED_GROUP
        table = writer.table(_MOVE, 0, 0, move.node_id.raw, kind)
        writer.link(vector + 4 * number, table)
        writer.attach(table, _MOVE, 0, writer.text(move.source))
        writer.attach(table, _MOVE, 1, writer.text(move.target))
    return vector


def _segments(move: Move) -> list[bytes]:
    """Moves are in the order of their targets, compared component by component."""
    if not (is_canonical(move.source) and is_canonical(move.target)):
        raise invalid(f"a node is moved from {move.source!r} to {move.target!r}: invalid paths")
    return utf8(move.target).split(b"/")
