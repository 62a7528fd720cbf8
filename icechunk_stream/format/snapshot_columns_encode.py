"""Snapshots written to a ``repo`` object from columns, their texts and vectors in one heap."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.format.heaps import lay_out
from icechunk_stream.format.records import ID12_CODE, OFFSET, Records, layout, shape
from icechunk_stream.format.repo_info import InfoSlot
from icechunk_stream.format.snapshot_columns import spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from icechunk_stream.format.records import Block, Writer
    from icechunk_stream.format.snapshot_columns import SnapshotColumns

    Positions = npt.NDArray[np.intp]

_INFO = (
    (InfoSlot.ID, ID12_CODE),
    (InfoSlot.PARENT, "i"),
    (InfoSlot.FLUSHED_AT, "Q"),
    (InfoSlot.MESSAGE, OFFSET),
    (InfoSlot.METADATA, OFFSET),
)
_WHOLE = layout(shape(*_INFO))
_PRUNED = layout(shape(*_INFO, (InfoSlot.PRUNED_LOGS, OFFSET)))
_ITEM = layout(shape((0, OFFSET), (1, OFFSET)))
_WORD = 4
_ID_WORDS = 3


def write_snapshots(writer: Writer, columns: SnapshotColumns) -> int:
    """The vector of snapshots, and after it what they point to."""
    heap = _Heap(columns)
    item_vtable = writer.vtable(_ITEM.shape.vtable)
    vector = writer.records(list(heap.groups()), heap.size)
    heap.write(writer, item_vtable)
    return vector


class _Heap:
    """Messages, metadata vectors, items, names, values, pruned logs: where each of them begins."""

    def __init__(self, columns: SnapshotColumns) -> None:
        self.columns = columns
        self.messages = lay_out(columns.messages, terminated=True)
        self.names = lay_out(columns.names, terminated=True)
        self.values = lay_out(columns.values, terminated=False)
        pruned = columns.pruned_counts
        self.metadata_starts, metadata_size = _vectors(1 + columns.item_counts)
        self.pruned_starts, pruned_size = _vectors((pruned > 0) + _ID_WORDS * pruned)
        self.metadata_at = self.messages.size
        self.items_at = self.metadata_at + metadata_size
        self.names_at = self.items_at + len(columns.names) * _ITEM.stride
        self.values_at = self.names_at + self.names.size
        self.pruned_at = self.values_at + self.values.size
        self.size = self.pruned_at + pruned_size

    def groups(self) -> Iterator[Records]:
        pruned = self.columns.pruned_counts > 0
        for of, rows in ((_WHOLE, np.flatnonzero(~pruned)), (_PRUNED, np.flatnonzero(pruned))):
            if len(rows):
                yield Records(of, len(rows), partial(self._fill, rows), rows)

    def write(self, writer: Writer, item_vtable: int) -> None:
        items_at = len(writer.data) + self.items_at
        self.messages.write(writer)
        writer.append(self._metadata())
        items = _ITEM.block(items_at, item_vtable, len(self.names), items_at)
        items.link(0, self.names_at - self.items_at + self.names.starts[:-1])
        items.link(1, self.values_at - self.items_at + self.values.starts[:-1])
        writer.append(items.records)
        writer.tables += len(self.names)
        self.names.write(writer)
        self.values.write(writer)
        writer.append(self._pruned())

    def _fill(self, chosen: Positions, block: Block, rows: slice) -> None:
        selected = chosen[rows]
        block.set(InfoSlot.ID, self.columns.ids[selected])
        block.set(InfoSlot.PARENT, self.columns.parents[selected])
        block.set(InfoSlot.FLUSHED_AT, self.columns.flushed_at[selected])
        block.link(InfoSlot.MESSAGE, self.messages.starts[selected])
        block.link(InfoSlot.METADATA, self.metadata_at + _WORD * self.metadata_starts[selected])
        if block.has(InfoSlot.PRUNED_LOGS):
            starts = self.pruned_at + _WORD * self.pruned_starts[selected]
            block.link(InfoSlot.PRUNED_LOGS, starts)

    def _metadata(self) -> npt.NDArray[np.uint32]:
        """A vector of offsets for each snapshot, to items that follow one another."""
        counts = self.columns.item_counts
        words = np.zeros(len(counts) + len(self.names), np.uint32)
        words[self.metadata_starts] = counts
        places = spread(self.metadata_starts + 1, counts, 1)
        items = self.items_at - self.metadata_at + np.arange(len(places)) * _ITEM.stride
        words[places] = items - places * _WORD
        return words

    def _pruned(self) -> npt.NDArray[np.uint32]:
        counts = self.columns.pruned_counts
        some = counts > 0
        starts, counts = self.pruned_starts[some], counts[some]
        words = np.zeros(len(counts) + _ID_WORDS * len(self.columns.pruned), np.uint32)
        words[starts] = counts
        ids = self.columns.pruned.view("<u4")
        words[spread(starts + 1, counts * _ID_WORDS, 1)] = ids
        return words


def _vectors(sizes: Positions) -> tuple[Positions, int]:
    """The word at which each vector begins, and the bytes that all of them take."""
    ends = np.cumsum(sizes)
    return ends - sizes, _WORD * int(ends[-1] if len(ends) else 0)
