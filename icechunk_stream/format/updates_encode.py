"""Entries of the operations log, and the status that one of them repeats, written to ``repo``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from icechunk_stream.format.areas import Area
from icechunk_stream.format.heaps import lay_out, present_rows
from icechunk_stream.format.records import OFFSET, aligned, layout, shape
from icechunk_stream.format.snapshot_encode import check_written_time
from icechunk_stream.format.update_columns import (
    FORMS,
    LIMITED_FORM,
    STATUS_CHANGED,
    STATUS_FORM,
    TEXT,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from icechunk_stream.format.heaps import Heap
    from icechunk_stream.format.records import Layout, Writer
    from icechunk_stream.format.update_columns import Form, UpdateColumns
    from icechunk_stream.format.updates import Status

    Positions = npt.NDArray[np.intp]
    Fields = Mapping[int, npt.NDArray[Any]]
    Links = Mapping[int, int | Positions]

_STATUS = ((0, "B"), (1, "Q"))
_UNLIMITED = shape(*_STATUS)
_LIMITED = shape(*_STATUS, (2, OFFSET))

_UPDATE = ((1, OFFSET), (2, "Q"))
_NEWEST = layout(shape(*_UPDATE, (0, "B")))
_BACKED_UP = layout(shape(*_UPDATE, (3, OFFSET), (0, "B")))
_STATUS_CHANGED = layout(shape((0, OFFSET)))
_WORD = 4
_ALIGNMENT = 8
# A table of _NEWEST or _BACKED_UP, and the offset before the status of a StatusChanged.
_TABLE = _BACKED_UP.stride
_STATUS_AT = _TABLE + _ALIGNMENT


@cache
def _layout_of(form: Form) -> Layout:
    """Its widest fields first, so that nothing is left between them."""
    return layout(shape(*((slot, code) for slot, code, _ in sorted(form, key=_is_narrow))))


def _is_narrow(field: tuple[int, str, str]) -> bool:
    return field[1] != "Q"


def _kind_size(tag: int) -> int:
    if tag == STATUS_CHANGED:
        return _ALIGNMENT + _layout_of(LIMITED_FORM).stride
    return aligned(_layout_of(FORMS[tag]).stride, _WORD)


_KIND_SIZES = np.array([0, *map(_kind_size, sorted(FORMS))], np.intp)


def write_updates(writer: Writer, columns: UpdateColumns) -> int:
    """The vector of all entries, each of them followed by all that it points to."""
    page = _Page(writer, columns)
    vector = writer.pad(_WORD)
    fields = vector + _WORD * np.arange(1, len(columns) + 1)
    begin = aligned(vector + _WORD * (1 + len(columns)), _ALIGNMENT)
    writer.reserve(begin - vector + page.size)
    writer.append(np.append(np.uint32(len(columns)), (begin + page.at - fields).astype("<u4")))
    writer.pad(_ALIGNMENT)
    writer.append(page.filled(begin).words)
    writer.tables += page.tables
    return vector


class _Page:
    """Table, table of its kind, name or reason, name of the backup: entry by entry."""

    def __init__(self, writer: Writer, columns: UpdateColumns) -> None:
        self.columns = columns
        self.texts, text_sizes = _sized(columns.texts)
        self.backups, backup_sizes = _sized(columns.backups)
        self.text = _TABLE + _KIND_SIZES[columns.tags]
        self.backup = self.text + text_sizes
        sizes = -(-(self.backup + backup_sizes) // _ALIGNMENT) * _ALIGNMENT
        ends = np.cumsum(sizes)
        self.at = ends - sizes
        self.size = int(ends[-1])
        self.groups = [group for group in self._groups() if len(group.rows)]
        # They stand before the entries, whose places follow from where these end.
        self.vtables = [writer.vtable(group.of.shape.vtable) for group in self.groups]

    @property
    def tables(self) -> int:
        return sum(len(group.rows) for group in self.groups)

    def filled(self, begin: int) -> Area:
        area, at = Area(begin, begin + self.size), begin + self.at
        for group, vtable in zip(self.groups, self.vtables, strict=True):
            links = {slot: (at + place)[group.rows] for slot, place in group.links.items()}
            area.put_tables(group.of, vtable, at[group.rows] + group.place, group.fields, links)
        area.put_texts(self.texts, (at + self.text)[present_rows(self.columns.texts)])
        area.put_texts(self.backups, (at + self.backup)[present_rows(self.columns.backups)])
        return area

    def _groups(self) -> Iterator[_Group]:
        """Tables of one shape at one place of their entries."""
        backed_up = present_rows(self.columns.backups)
        yield self._entries(_NEWEST, np.flatnonzero(~backed_up), {1: _TABLE})
        yield self._entries(_BACKED_UP, np.flatnonzero(backed_up), {1: _TABLE, 3: self.backup})
        for tag in np.unique(self.columns.tags).tolist():
            rows = np.flatnonzero(self.columns.tags == tag)
            if tag == STATUS_CHANGED:
                yield from self._statuses(rows)
            else:
                yield self._kinds(FORMS[tag], rows, _TABLE)

    def _entries(self, of: Layout, rows: Positions, links: Links) -> _Group:
        fields: Fields = {0: self.columns.tags[rows], 2: self.columns.times[rows]}
        return _Group(of, rows, 0, fields, links)

    def _statuses(self, rows: Positions) -> Iterator[_Group]:
        yield _Group(_STATUS_CHANGED, rows, _TABLE, {}, {0: _STATUS_AT})
        limited = present_rows(self.columns.texts)[rows]
        yield self._kinds(STATUS_FORM, rows[~limited], _STATUS_AT)
        yield self._kinds(LIMITED_FORM, rows[limited], _STATUS_AT)

    def _kinds(self, form: Form, rows: Positions, place: int) -> _Group:
        numbers = self.columns.numbers
        fields = {slot: numbers[name][rows] for slot, _, name in form if name != TEXT}
        links: Links = {slot: self.text for slot, _, name in form if name == TEXT}
        return _Group(_layout_of(form), rows, place, fields, links)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Tables of some rows, so far behind the begin of their entries; links are as far as that."""

    of: Layout
    rows: Positions
    place: int
    fields: Fields
    links: Links


def _sized(column: pa.Array) -> tuple[Heap, Positions]:
    """Texts that are there, and the bytes that each row's takes."""
    heap = lay_out(column.drop_null(), terminated=True)
    sizes = np.zeros(len(column), np.intp)
    sizes[present_rows(column)] = heap.sizes
    return heap, sizes


def write_status(writer: Writer, status: Status) -> int:
    of = _UNLIMITED if status.reason is None else _LIMITED
    values = (status.availability, check_written_time(status.set_at))
    table = writer.table(of, *values, *(0 for _ in of.fields[2:]))
    if status.reason is not None:
        writer.attach(table, of, 2, writer.text(status.reason))
    return table
