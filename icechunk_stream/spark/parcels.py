"""Rows of one unit as one row of bytes: to shuffle few long rows costs less than many short."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from icechunk_stream.spark.arrow_batches import BATCH_BYTES, RECORDS
from icechunk_stream.spark.column_bytes import from_parts, parts_of, sizes_of, to_parts
from icechunk_stream.stream.located import stable_order
from icechunk_stream.stream.targets import UNIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

# With more units parcels become so small that rows by themselves are no more work.
MOST_UNITS = 1_024
# As many parcels as Spark hands over at once have no more bytes than it allows.
PARCEL_BYTES = BATCH_BYTES // RECORDS
# What parcels of rows without a place have for the number of their unit.
_NO_UNIT = -1
# Rows that are taken apart at once: the more there are, the longer are the parcels.
_TAKEN_BYTES = 8 * 2**20
# Rows that are put together again at once.
_GIVEN_BYTES = 2 * 2**20


def packed(rows: pa.RecordBatch) -> bytes:
    """Rows in Arrow's own format, in which all types stay what they are."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> pa.RecordBatch:
    """What was packed."""
    (rows,) = pa.ipc.open_stream(data)
    return rows


def together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches joined to some that are worth taking apart; none is without rows."""
    waiting: list[pa.RecordBatch] = []
    total = 0
    for batch in batches:
        if len(batch):
            waiting.append(batch)
            total += batch.nbytes
        if total >= _TAKEN_BYTES:
            yield _joined(waiting)
            waiting, total = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


@dataclass(frozen=True, slots=True)
class Parcels:
    """How rows of a schema travel: the number of their unit, and their columns as bytes."""

    schema: pa.Schema

    @property
    def columns(self) -> StructType:
        """The columns of parcels, for Spark."""
        parts = [StructField(name, BinaryType()) for name in self._names]
        return StructType([StructField(UNIT, LongType()), *parts])

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that have the number of their unit as parcels; a unit may have several."""
        for rows in together(batches):
            yield self._by_unit(rows)

    def without_place(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """One parcel of rows of any schema that belong to no unit."""
        texts = [packed(rows), *[b""] * (len(self._names) - 1)]
        return pa.RecordBatch.from_arrays(
            [pa.array([_NO_UNIT]), *(pa.array([text]) for text in texts)], [UNIT, *self._names]
        )

    def rows(
        self, parcels: Iterable[pa.RecordBatch], unplaced: list[bytes]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of units in the order of parcels; what others have goes to ``unplaced``."""
        for batch in parcels:
            is_placed = batch.column(UNIT).to_numpy() != _NO_UNIT
            if not is_placed.all():
                unplaced += batch.filter(pa.array(~is_placed)).column(1).to_pylist()
                batch = batch.filter(pa.array(is_placed))  # noqa: PLW2901 - the good ones
            for piece in _pieces(batch):
                yield self._rows(piece)

    @property
    def _names(self) -> list[str]:
        return [str(number) for number in range(sum(map(parts_of, self.schema.types)))]

    def _by_unit(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        # A row without a place has no unit; whoever writes it refuses it.
        units = rows.column(UNIT).fill_null(0).to_numpy()
        first = int(units.min())
        order = stable_order(units - first, int(units.max()) - first + 1)
        units, most = units[order], max(PARCEL_BYTES * len(rows) // rows.nbytes, 1)
        starts = _starts(units, most)
        ends = np.append(starts, len(rows))
        chosen = pa.array(order)
        columns = [rows.column(each.name).cast(each.type).take(chosen) for each in self.schema]
        parts = [part for column in columns for part in to_parts(column, ends)]
        return pa.RecordBatch.from_arrays([pa.array(units[starts]), *parts], [UNIT, *self._names])

    def _rows(self, parcels: pa.RecordBatch) -> pa.RecordBatch:
        counts = list(map(parts_of, self.schema.types))
        columns = [
            from_parts(parcels.columns[end - count + 1 : end + 1], kind)
            for count, end, kind in zip(counts, accumulate(counts), self.schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _starts(units: Numbers, most: int) -> Numbers:
    """Where parcels of up to so many rows of one unit begin."""
    first = np.flatnonzero(np.append(True, units[1:] != units[:-1]))
    within = np.arange(len(units)) - np.repeat(first, np.diff(np.append(first, len(units))))
    return np.flatnonzero(within % most == 0)


def _pieces(parcels: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Some parcels at a time, so that what is made of them needs little memory."""
    if not len(parcels):
        return
    sizes = np.sum([sizes_of(column) for column in parcels.columns[1:]], axis=0)
    number = np.cumsum(sizes) // _GIVEN_BYTES
    starts = np.flatnonzero(np.append(True, number[1:] != number[:-1])).tolist()
    for start, end in zip(starts, [*starts[1:], len(parcels)], strict=True):
        yield parcels.slice(start, end - start)
