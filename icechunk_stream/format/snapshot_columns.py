"""The snapshots of a ``repo`` object as columns: those that stay are copied, never decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from icechunk_stream.format.columns import gather, nested_groups, table_groups
from icechunk_stream.format.ids import ID12, OBJECT_ID_SIZE, SnapshotId
from icechunk_stream.format.records import invalid, utf8
from icechunk_stream.format.repo_info import NO_PARENT, V2, InfoSlot
from icechunk_stream.format.snapshot_encode import check_written_time
from icechunk_stream.format.texts import byte_column, text_column
from icechunk_stream.format.times import MAX_MICROS
from icechunk_stream.format.values import encode_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from icechunk_stream.errors import InvalidInputError
    from icechunk_stream.format.columns import TableGroup
    from icechunk_stream.format.flat import FlatBuffer
    from icechunk_stream.format.repo_info import SnapshotRecord, SnapshotTable

    Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotColumns:
    """One row for each snapshot; parents are rows, or -1.

    Metadata items and pruned logs of all snapshots follow one another, so many for each.
    """

    ids: npt.NDArray[np.void]
    parents: npt.NDArray[np.int32]
    flushed_at: npt.NDArray[np.uint64]
    messages: pa.Array
    item_counts: Positions
    names: pa.Array
    values: pa.Array
    pruned_counts: Positions
    pruned: npt.NDArray[np.void]

    def __len__(self) -> int:
        return len(self.ids)


def spread(starts: Positions, counts: Positions, size: int) -> Positions:
    """Places of items of one size, so many side by side from each start on."""
    before = np.cumsum(counts) - counts
    items = np.arange(0, int(counts.sum()) * size, size, dtype=np.intp)
    places: Positions = np.repeat(starts - before * size, counts) + items
    return places


def columns_of(records: Sequence[SnapshotRecord], stored: SnapshotTable | None) -> SnapshotColumns:
    """Records as rows that follow those of a table, in which their parents may be."""
    before = 0 if stored is None else len(stored)
    rows = {record.id: row for row, record in enumerate(records, start=before)}
    parents = [_parent_row(record, rows, stored) for record in records]
    times = [check_written_time(record.flushed_at) for record in records]
    items = [(name, record.metadata[name]) for record in records for name in _names(record)]
    values = [encode_value(value, V2, f"the metadata item {name!r}") for name, value in items]
    return SnapshotColumns(
        ids=_ids([record.id for record in records]),
        parents=np.array(parents, np.int32),
        flushed_at=np.array(times, np.uint64),
        messages=_texts([record.message for record in records]),
        item_counts=np.array([len(record.metadata) for record in records], np.intp),
        names=_texts([name for name, _ in items]),
        values=pa.array(values, pa.large_binary()),
        pruned_counts=np.array([len(record.pruned_logs) for record in records], np.intp),
        pruned=_ids([id for record in records for id in record.pruned_logs]),
    )


def _parent_row(
    record: SnapshotRecord, rows: Mapping[SnapshotId, int], stored: SnapshotTable | None
) -> int:
    if record.parent_id is None:
        return NO_PARENT
    row = rows.get(record.parent_id)
    if row is None and stored is not None:
        row = stored.row(record.parent_id)
    if row is None:
        raise no_parent(record.id)
    return row


def _names(record: SnapshotRecord) -> list[str]:
    return sorted(record.metadata, key=utf8)


def _texts(texts: Sequence[str]) -> pa.Array:
    return pa.array([utf8(text) for text in texts], pa.large_binary()).view(pa.large_string())


def _ids(ids: Sequence[SnapshotId]) -> npt.NDArray[np.void]:
    return np.frombuffer(b"".join([id.raw for id in ids]), ID12)


def no_parent(id: SnapshotId) -> InvalidInputError:
    return invalid(f"the parent of {id} is itself, or not in the list")


def stored_columns(table: SnapshotTable) -> SnapshotColumns:
    buffer = table.buffer.apart(again=True)
    draft = _Draft(buffer, len(table))
    for group in table_groups(buffer, table.vector_at):
        draft.fill(group)
    return draft.finish(table)


class _Draft:
    """Columns while they are read, group by group; texts and vectors by their place and size."""

    def __init__(self, buffer: FlatBuffer, count: int) -> None:
        self.buffer = buffer
        self.flushed_at = np.zeros(count, np.uint64)
        self.messages = np.zeros(count, np.intp)
        self.items, self.item_counts = np.zeros((2, count), np.intp)
        self.pruned, self.pruned_counts = np.zeros((2, count), np.intp)

    def fill(self, group: TableGroup) -> None:
        rows = group.rows
        flushed_at = group.scalars(InfoSlot.FLUSHED_AT, "<u8")
        if flushed_at is not None:
            self.flushed_at[rows] = flushed_at
        self.messages[rows] = _texts_at(group, InfoSlot.MESSAGE, "a snapshot lacks its message")
        metadata = group.vectors(InfoSlot.METADATA, 4)
        if metadata is not None:
            self.items[rows], self.item_counts[rows] = metadata
        pruned = group.vectors(InfoSlot.PRUNED_LOGS, OBJECT_ID_SIZE)
        if pruned is not None:
            self.pruned[rows], self.pruned_counts[rows] = pruned

    def finish(self, table: SnapshotTable) -> SnapshotColumns:
        if int(self.flushed_at.max(initial=0)) > MAX_MICROS:
            raise self.buffer.error("the time of a snapshot is beyond the year 9998")
        names, values = self._items()
        return SnapshotColumns(
            ids=table.ids,
            parents=table.parents,
            flushed_at=self.flushed_at,
            messages=text_column(self.buffer, self.messages).cast(pa.large_string()),
            item_counts=self.item_counts,
            names=text_column(self.buffer, names).cast(pa.large_string()),
            values=byte_column(self.buffer, values).cast(pa.large_binary()),
            pruned_counts=self.pruned_counts,
            pruned=self._pruned_logs(),
        )

    def _items(self) -> tuple[Positions, Positions]:
        """Where the names and the values of all metadata items are."""
        # Counts what it will visit before memory is spent on it.
        groups = nested_groups(self.buffer, self.items, self.item_counts)
        names, values = np.zeros((2, int(self.item_counts.sum())), np.intp)
        for group in groups:
            names[group.rows] = _texts_at(group, 0, "a metadata item lacks its name")
            values[group.rows] = _texts_at(group, 1, "a metadata item lacks its value")
        return names, values

    def _pruned_logs(self) -> npt.NDArray[np.void]:
        self.buffer.spend(int(self.pruned_counts.sum()) * OBJECT_ID_SIZE)
        places = spread(self.pruned, self.pruned_counts, OBJECT_ID_SIZE)
        return cast("npt.NDArray[np.void]", gather(self.buffer, places, ID12))


def _texts_at(group: TableGroup, slot: int, lacking: str) -> Positions:
    """Where the strings or byte vectors of a field begin, their sizes in front."""
    vectors = group.vectors(slot, 1)
    if vectors is None:
        raise group.buffer.error(lacking)
    starts, sizes = vectors
    group.buffer.spend(int(sizes.sum()))
    return starts - 4
