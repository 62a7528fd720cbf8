"""Rows to stored chunks: the one function that tasks and the driver run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from icechunk_stream.stream.base_units import BaseUnits
from icechunk_stream.stream.located import Located
from icechunk_stream.stream.refs_batch import RefRows
from icechunk_stream.stream.rows import Column, StoredRows, stored_rows
from icechunk_stream.stream.tally import Tally
from icechunk_stream.stream.unit_codec import MAX_UNITS, empty_value, unit_codecs
from icechunk_stream.stream.units import OpenUnits, open_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from icechunk_stream.stream.packs import PackWriter
    from icechunk_stream.stream.refs_batch import Refs
    from icechunk_stream.stream.targets import Plan
    from icechunk_stream.stream.unit_codec import UnitCodec
    from icechunk_stream.stream.units import Encoded
    from icechunk_stream.stream.warm_units import WarmUnits

# Units that are open together take about so much memory, or are a single one.
_OPEN_BYTES = 16 * 2**20
# References that wait for their packs.
_MAX_REFS = 2**16


def write_chunks(
    rows: Iterable[pa.RecordBatch],
    plan: Plan,
    writer: PackWriter,
    tally: Tally | None = None,
    warm: WarmUnits | None = None,
) -> Iterator[Refs]:
    """Store the units that rows touch; their references hold once the writer has flushed.

    Rows have the plan's columns, and those of one unit are in one batch, or at the end of one and
    the beginning of the next. Nothing is stored for good before the last reference was taken and
    committed. ``warm`` has units of the batch before, and gets those of this one.

    Raises:
        ConflictingRowsError: rows give different values to one cell, and no policy decides.
    """
    refs = RefRows()
    with unit_codecs(plan.targets) as codecs:
        work = _Work(plan, codecs, tally or Tally(plan), warm)
        for each in work.encoded(rows):
            _place(each, work.base, writer, refs)
            # The bytes of one unit need not stay while the next one is made.
            del each
            if len(refs) >= _MAX_REFS:
                writer.flush()
                yield refs.take()
    if len(refs):
        yield refs.take()


def _place(each: Encoded, base: BaseUnits, writer: PackWriter, refs: RefRows) -> None:
    path = each.target.path
    if each.data is not None:
        placed = writer.add(each.data, is_complete=each.is_complete)
        refs.add(path, each.unit, placed)
        if not each.is_complete:
            base.keep(path, each.unit, placed, each.cells)
    elif base.holds(path, each.unit):
        refs.delete(path, each.unit)


def write_labels(
    plan: Plan, start: int, labels: npt.NDArray[Any], writer: PackWriter, warm: WarmUnits
) -> Refs:
    """Store stored labels of the plan's one array from a position on, as units of rows are."""
    (size,), stop = plan.unit, start + len(labels)
    end = -(-stop // size)
    refs = RefRows()
    with unit_codecs(plan.targets) as codecs:
        base = _base_units(plan, codecs, warm)
        for first in range(start // size, end, MAX_UNITS):
            last = min(first + MAX_UNITS, end)
            low, high = max(start, first * size), min(stop, last * size)
            units, cells = np.arange(first, last)[:, None], np.arange(low, high) - first * size
            column = Column(labels[low - start : high - start], None)
            opened = OpenUnits(plan, codecs, units)
            opened.put(StoredRows((column,), None, Located(units, cells)), 0, len(units))
            for each in opened.encoded(base):
                _place(each, base, writer, refs)
    return refs.take()


def _base_units(plan: Plan, codecs: tuple[UnitCodec, ...], warm: WarmUnits | None) -> BaseUnits:
    coded = zip(plan.targets, codecs, strict=True)
    exact = {target.path: codec.document for target, codec in coded if codec.is_exact}
    return BaseUnits(plan.base, warm, exact)


class _Work:
    """The open units of one task."""

    def __init__(
        self, plan: Plan, codecs: tuple[UnitCodec, ...], tally: Tally, warm: WarmUnits | None
    ) -> None:
        self.base = _base_units(plan, codecs, warm)
        self._plan = plan
        self._tally = tally
        self._open: OpenUnits | None = None
        self._codecs = codecs
        self._empties = [
            empty_value(target, codec) for target, codec in zip(plan.targets, codecs, strict=True)
        ]
        unit_bytes = open_bytes(plan, codecs)
        self._capacity = min(max(_OPEN_BYTES // unit_bytes, 1), MAX_UNITS)

    def encoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Encoded]:
        for batch in batches:
            if len(batch):
                yield from self._take(batch)
        yield from self._close()

    def _take(self, batch: pa.RecordBatch) -> Iterator[Encoded]:
        # A unit that is open goes on with the first rows of the next batch.
        capacity = self._capacity if self._open is None else 0
        rows = stored_rows(batch, self._plan, self._empties, self._tally, capacity)
        units = rows.located.units
        first = 0
        if self._open is not None and len(units) and self._open.is_last(units[0]):
            self._open.put(rows, 0, 1)
            first = 1
        for start in range(first, len(units), self._capacity):
            yield from self._close()
            last = min(start + self._capacity, len(units))
            self._open = OpenUnits(self._plan, self._codecs, units[start:last])
            self._open.put(rows, start, last)

    def _close(self) -> Iterator[Encoded]:
        """Encode the open units: what comes next belongs to others."""
        units, self._open = self._open, None
        if units is None:
            return
        units.finish(self._empties)
        yield from units.encoded(self.base)
        for block, target in zip(units.blocks, self._plan.targets, strict=True):
            self._tally.duplicates[target.column] += block.duplicates
