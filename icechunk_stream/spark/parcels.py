"""Rows of one unit as one row of bytes: to shuffle few long rows costs less than many short."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from icechunk_stream.stream.rows import stable_order
from icechunk_stream.stream.targets import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# With more units parcels become so small that rows by themselves are no more work.
MOST_UNITS = 1_024
PARCEL_DDL = f"`{UNIT}` long, data binary"
# Rows that are taken apart at once: the more there are, the longer are the parcels.
_TAKEN_BYTES = 8 * 2**20
# Rows that are put together again at once, where parcels have fewer.
_GIVEN_ROWS = 10_000


def packed(rows: pa.RecordBatch) -> bytes:
    """Rows in Arrow's own format, in which all types stay what they are."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """What was packed."""
    (rows,) = pa.ipc.open_stream(data)
    return rows


def in_parcels(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as parcels: each has rows of one unit, and a unit may have several."""
    for rows in _together(batches, attrgetter("nbytes"), _TAKEN_BYTES):
        yield _by_unit(rows)


def from_parcels(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of parcels, in their order."""
    parcels = (unpacked(each.as_buffer()) for batch in batches for each in batch.column("data"))
    yield from _together(parcels, len, _GIVEN_ROWS)


def _together(
    batches: Iterable[pa.RecordBatch], size: Callable[[pa.RecordBatch], int], enough: int
) -> Iterator[pa.RecordBatch]:
    """Batches joined to larger ones; none is without rows."""
    waiting: list[pa.RecordBatch] = []
    total = 0
    for batch in batches:
        if len(batch):
            waiting.append(batch)
            total += size(batch)
        if total >= enough:
            yield pa.concat_batches(waiting)
            waiting, total = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def _by_unit(rows: pa.RecordBatch) -> pa.RecordBatch:
    # A row without a place has no unit; whoever writes it refuses it.
    units = rows.column(UNIT).fill_null(0).to_numpy()
    first = int(units.min())
    order = stable_order(units - first, int(units.max()) - first + 1)
    units = units[order]
    starts = np.flatnonzero(np.append(True, units[1:] != units[:-1]))
    rows = rows.drop_columns([UNIT]).take(pa.array(order))
    ends = np.append(starts[1:], len(rows))
    parcels = [
        packed(rows.slice(start, end - start))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return pa.RecordBatch.from_arrays([units[starts], parcels], [UNIT, "data"])
