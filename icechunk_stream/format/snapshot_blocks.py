"""The snapshots of a ``repo`` object as they are written: each with all it points to, in a block.

Only the row of its parent changes in a block when snapshots are added. Blocks stand in the order in
which they were made: one more is appended, and compression finds its neighbours alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from icechunk_stream.format.areas import Area
from icechunk_stream.format.heaps import lay_out
from icechunk_stream.format.ids import ID12, SnapshotId, find_row
from icechunk_stream.format.records import ID12_CODE, OFFSET, aligned, invalid, layout, shape
from icechunk_stream.format.repo_info import NO_PARENT, InfoSlot, SnapshotTable
from icechunk_stream.format.snapshot_columns import (
    columns_of,
    no_parent,
    spread,
    stored_columns,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.format.flat import FlatBuffer
    from icechunk_stream.format.records import Writer
    from icechunk_stream.format.repo_info import SnapshotRecord
    from icechunk_stream.format.snapshot_columns import SnapshotColumns

    Positions = npt.NDArray[np.intp]
    Octets = bytes | bytearray | memoryview

_INFO = (
    (InfoSlot.PARENT, "i"),
    (InfoSlot.FLUSHED_AT, "Q"),
    (InfoSlot.ID, ID12_CODE),
    (InfoSlot.MESSAGE, OFFSET),
    (InfoSlot.METADATA, OFFSET),
)
_WHOLE = layout(shape(*_INFO))
_PRUNED = layout(shape(*_INFO, (InfoSlot.PRUNED_LOGS, OFFSET)))
_ITEM = layout(shape((0, OFFSET), (1, OFFSET)))
_PARENT = _WHOLE.shape.places[InfoSlot.PARENT]
_WORD = 4
_ID_WORDS = 3
_ALIGNMENT = 8

# The vtables of all blocks stand before them.
_VTABLES = _WHOLE.shape.vtable + _PRUNED.shape.vtable + _ITEM.shape.vtable
_PRUNED_VTABLE = len(_WHOLE.shape.vtable)
_ITEM_VTABLE = _PRUNED_VTABLE + len(_PRUNED.shape.vtable)
_HEAD = _VTABLES + bytes(-len(_VTABLES) % _ALIGNMENT)


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotBlocks:
    """Snapshots in the order of their ids; ``at`` is where in the ``parts`` their tables are."""

    ids: npt.NDArray[np.void]
    parents: npt.NDArray[np.int32]
    at: Positions
    parts: tuple[Octets, ...]
    tables: int

    @classmethod
    def none(cls) -> Self:
        empty = np.zeros(0, np.intp)
        return cls(np.zeros(0, ID12), np.zeros(0, np.int32), empty, (_HEAD,), 0)

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts)

    def row(self, id: SnapshotId) -> int | None:
        return find_row(self.ids, id)

    def write_vector(self, writer: Writer) -> tuple[int, int]:
        """The vector of offsets to the tables, and where the parts, which come next, begin."""
        count = len(self.ids)
        vector = writer.pad(_WORD)
        fields = vector + _WORD * np.arange(1, count + 1)
        begin = aligned(vector + _WORD * (1 + count), _ALIGNMENT)
        words = np.append(np.uint32(count), (begin + self.at - fields).astype("<u4"))
        writer.reserve(begin - vector + self.size)
        writer.append(words)
        writer.tables += self.tables
        return vector, writer.pad(_ALIGNMENT)

    def appended(self, head: bytearray) -> bytearray:
        """The parts after what was written before them, with their parents as they are now."""
        payload = bytearray().join([head, *self.parts])
        numbers = np.frombuffer(payload, "<i4", count=len(payload) // _WORD)
        numbers[(len(head) + _PARENT + self.at) // _WORD] = self.parents
        return payload

    def table(self, buffer: FlatBuffer, vector: int, begin: int) -> SnapshotTable:
        """The snapshots in a buffer into which they were written."""
        written = replace(self, parts=(memoryview(buffer.data)[begin:],))
        return SnapshotTable(buffer, vector, self.ids, self.parents, begin + self.at, written)


def all_snapshots(
    stored: SnapshotTable | None, records: Sequence[SnapshotRecord]
) -> tuple[SnapshotBlocks, npt.NDArray[np.int32]]:
    """Those of a ``repo`` object and others beside them, and the rows that the stored ones get."""
    kept = SnapshotBlocks.none() if stored is None else _stored_blocks(stored)
    rows = np.arange(len(kept.ids), dtype=np.int32)
    if not records:
        _check_parents(kept)
        return kept, rows
    added, new = columns_of(records, stored), len(records)
    at, area = _blocks(added, kept.size)
    rows = _merged_rows(kept.ids, added.ids)
    parents = np.concatenate([kept.parents, added.parents])
    blocks = SnapshotBlocks(
        ids=_merged(rows, kept.ids, added.ids),
        # A parent of -1 is the last row, which is -1 again.
        parents=_merged(rows, np.append(rows, np.int32(NO_PARENT))[parents]),
        at=_merged(rows, kept.at, at),
        parts=(*kept.parts, area.words.tobytes()),
        tables=kept.tables + new + len(added.names),
    )
    _check_ids(blocks)
    _check_parents(blocks)
    return blocks, rows[: len(kept.ids)]


def _stored_blocks(stored: SnapshotTable) -> SnapshotBlocks:
    if stored.blocks is not None:
        return stored.blocks
    columns = stored_columns(stored)
    at, area = _blocks(columns, len(_HEAD))
    parts = (_HEAD, area.words.tobytes())
    tables = len(columns) + len(columns.names)
    return SnapshotBlocks(columns.ids, columns.parents, at, parts, tables)


def _merged_rows(kept: npt.NDArray[np.void], added: npt.NDArray[np.void]) -> npt.NDArray[np.int32]:
    """The rows of sorted ids and of others behind them once all of them are in order."""
    keys = added.view("S12")
    order = np.argsort(keys, kind="stable")
    places = np.searchsorted(kept.view("S12"), keys[order]) + np.arange(len(order))
    free = np.ones(len(kept) + len(added), np.bool_)
    free[places] = False
    rows = np.empty(len(free), np.int32)
    rows[: len(kept)] = np.flatnonzero(free)
    rows[len(kept) + order] = places
    return rows


def _merged(rows: npt.NDArray[np.int32], *columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
    whole = np.concatenate(columns)
    merged = np.empty_like(whole)
    merged[rows] = whole
    return merged


def _check_ids(blocks: SnapshotBlocks) -> None:
    keys = blocks.ids.view("S12")
    if (keys[1:] == keys[:-1]).any():
        raise invalid("a snapshot is there twice")


def _check_parents(blocks: SnapshotBlocks) -> None:
    itself = blocks.parents == np.arange(len(blocks.parents))
    if itself.any():
        raise no_parent(SnapshotId(blocks.ids[itself][0].tobytes()))


def _blocks(columns: SnapshotColumns, begin: int) -> tuple[Positions, Area]:
    """Where the table of each snapshot is, and all of them with what they point to."""
    draft = _Draft(columns)
    order = np.lexsort((columns.ids.view("S12"), columns.flushed_at))
    ends = begin + np.cumsum(draft.sizes[order])
    at = np.empty(len(order), np.intp)
    at[order] = ends - draft.sizes[order]
    area = Area(begin, int(ends[-1]) if len(ends) else begin)
    draft.fill(area, at)
    return at, area


class _Draft:
    """Table, message, metadata, its items, their names and values, pruned logs: one by one."""

    def __init__(self, columns: SnapshotColumns) -> None:
        counts, pruned = columns.item_counts, columns.pruned_counts
        self.columns = columns
        self.messages = lay_out(columns.messages, terminated=True)
        self.names = lay_out(columns.names, terminated=True)
        self.values = lay_out(columns.values, terminated=False)
        self.bounds = np.append(0, np.cumsum(self.names.sizes + self.values.sizes))
        self.firsts = self.bounds[np.cumsum(counts) - counts]
        self.metadata = _PRUNED.stride + self.messages.sizes
        self.items = self.metadata + _WORD * (1 + counts)
        self.texts = self.items + _ITEM.stride * counts
        self.pruned = self.texts + self.bounds[np.cumsum(counts)] - self.firsts
        ends = self.pruned + _WORD * ((pruned > 0) + _ID_WORDS * pruned)
        self.sizes = -(-ends // _ALIGNMENT) * _ALIGNMENT

    def fill(self, area: Area, at: Positions) -> None:
        pruned = self.columns.pruned_counts > 0
        self._fill_tables(area, at, np.flatnonzero(~pruned))
        self._fill_pruned(area, at, np.flatnonzero(pruned))
        area.put_texts(self.messages, at + _PRUNED.stride)
        self._fill_items(area, at)

    def _fill_tables(self, area: Area, at: Positions, rows: Positions) -> None:
        area.put_tables(_WHOLE, 0, at[rows], self._fields(rows), self._links(at, rows))

    def _fill_pruned(self, area: Area, at: Positions, rows: Positions) -> None:
        logs, counts = (at + self.pruned)[rows], self.columns.pruned_counts[rows]
        links = {**self._links(at, rows), InfoSlot.PRUNED_LOGS: logs}
        area.put_tables(_PRUNED, _PRUNED_VTABLE, at[rows], self._fields(rows), links)
        area.put_words(logs, counts)
        places = spread(logs + _WORD, counts * _ID_WORDS, _WORD)
        area.put_words(places, self.columns.pruned.view("<u4"))

    def _fields(self, rows: Positions) -> dict[int, npt.NDArray[np.generic]]:
        return {
            InfoSlot.ID: self.columns.ids[rows],
            InfoSlot.FLUSHED_AT: self.columns.flushed_at[rows],
        }

    def _links(self, at: Positions, rows: Positions) -> dict[int, Positions]:
        return {
            InfoSlot.MESSAGE: at[rows] + _PRUNED.stride,
            InfoSlot.METADATA: (at + self.metadata)[rows],
        }

    def _fill_items(self, area: Area, at: Positions) -> None:
        counts = self.columns.item_counts
        area.put_words(at + self.metadata, counts)
        fields = spread(at + self.metadata + _WORD, counts, _WORD)
        items = spread(at + self.items, counts, _ITEM.stride)
        area.put_words(fields, items - fields)
        names = np.repeat(at + self.texts - self.firsts, counts) + self.bounds[:-1]
        values = names + self.names.sizes
        area.put_tables(_ITEM, _ITEM_VTABLE, items, {}, {0: names, 1: values})
        area.put_texts(self.names, names)
        area.put_texts(self.values, values)
