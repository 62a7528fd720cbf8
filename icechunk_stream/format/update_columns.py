"""The operations log of a ``repo`` object as columns: entries that stay are never decoded."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from icechunk_stream.format.columns import linked_groups, table_groups
from icechunk_stream.format.ids import ID12, OBJECT_ID_SIZE, SnapshotId
from icechunk_stream.format.records import ID12_CODE, OFFSET, invalid, utf8
from icechunk_stream.format.snapshot_encode import check_written_time
from icechunk_stream.format.texts import text_column
from icechunk_stream.format.times import MAX_MICROS
from icechunk_stream.format.updates import (
    UPDATE_TAGS,
    Availability,
    FeatureFlagChanged,
    RepoMigrated,
    StatusChanged,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from icechunk_stream.format.columns import TableGroup
    from icechunk_stream.format.flat import FlatBuffer
    from icechunk_stream.format.updates import Update, UpdateKind

    Positions = npt.NDArray[np.intp]
    Numbers = Mapping[str, npt.NDArray[Any]]

# Slot, struct code and column of each field that the table of a kind has.
Form = tuple[tuple[int, str, str], ...]

TEXT = "text"
_NAMED: Form = ((0, OFFSET, TEXT),)
_NAMED_SNAPSHOT: Form = (*_NAMED, (1, ID12_CODE, "first"))
STATUS_FORM: Form = ((0, "B", "b"), (1, "Q", "moment"))
LIMITED_FORM: Form = (*STATUS_FORM, (2, OFFSET, TEXT))
FORMS: dict[int, Form] = dict.fromkeys(UPDATE_TAGS.values(), ()) | {
    2: ((0, "B", "b"), (1, "B", "c")),
    **dict.fromkeys((5, 7), _NAMED),
    **dict.fromkeys((6, 8, 9, 10), _NAMED_SNAPSHOT),
    11: (*_NAMED_SNAPSHOT, (2, ID12_CODE, "second")),
    12: ((0, ID12_CODE, "first"),),
    15: ((0, "H", "a"), (1, "?", "b"), (2, "?", "c")),
}
FLAG_CHANGED = UPDATE_TAGS[FeatureFlagChanged]
STATUS_CHANGED = UPDATE_TAGS[StatusChanged]

_DTYPES = {
    "first": ID12,
    "second": ID12,
    "a": np.dtype("<u2"),
    "b": np.dtype("u1"),
    "c": np.dtype("u1"),
    "moment": np.dtype("<u8"),
}
_CODES = {"B": "u1", "?": "u1", "H": "<u2", "Q": "<u8"}


@dataclass(frozen=True, slots=True, eq=False)
class UpdateColumns:
    """One row for each entry, newest first; what a kind lacks is null, or zero.

    ``texts`` are names of refs and reasons; ``numbers`` holds the fields of all other types.
    """

    tags: npt.NDArray[np.uint8]
    times: npt.NDArray[np.uint64]
    backups: pa.Array
    texts: pa.Array
    numbers: Numbers

    @classmethod
    def of(cls, updates: Sequence[Update]) -> Self:
        said = [_said(update.kind) for update in updates]
        times = [check_written_time(update.updated_at) for update in updates]
        return cls(
            tags=np.array([UPDATE_TAGS[type(update.kind)] for update in updates], np.uint8),
            times=np.array(times, np.uint64),
            backups=_texts([update.backup for update in updates]),
            texts=_texts([row.get(TEXT) for row in said]),
            numbers={name: _column(name, [row.get(name, 0) for row in said]) for name in _DTYPES},
        )

    def __len__(self) -> int:
        return len(self.tags)

    @property
    def newest(self) -> int:
        """The time of the newest entry."""
        return int(self.times[0]) if len(self) else 0

    def before(self, older: UpdateColumns) -> UpdateColumns:
        """These entries, then older ones."""
        return UpdateColumns(
            tags=np.concatenate([self.tags, older.tags]),
            times=np.concatenate([self.times, older.times]),
            backups=pa.concat_arrays([self.backups, older.backups]),
            texts=pa.concat_arrays([self.texts, older.texts]),
            numbers={
                name: np.concatenate([column, older.numbers[name]])
                for name, column in self.numbers.items()
            },
        )

    def first(self, count: int) -> UpdateColumns:
        return UpdateColumns(
            tags=self.tags[:count],
            times=self.times[:count],
            backups=self.backups[:count],
            texts=self.texts[:count],
            numbers={name: column[:count] for name, column in self.numbers.items()},
        )

    def backed_up(self, backup: str) -> UpdateColumns:
        """The entries so far; the newest of them now lies in a backup."""
        if not len(self):
            return self
        return replace(self, backups=pa.concat_arrays([_texts([backup]), self.backups[1:]]))

    def page(self, size: int) -> tuple[UpdateColumns, str | None]:
        """The newest entries, and the backup in which the next one is found; None after all."""
        size = max(size, 0)
        found = self.backups[size:].is_valid().index(True).as_py()
        if found < 0:
            return self, None
        return self.first(size + found), self.backups[size + found].as_py()


def _said(kind: UpdateKind) -> dict[str, Any]:
    match kind:
        case RepoMigrated(before, after):
            return {"b": before, "c": after}
        case FeatureFlagChanged(id, value):
            return {"a": id, "b": bool(value), "c": value is not None}
        case StatusChanged(status):
            moment = check_written_time(status.set_at)
            return {"b": status.availability, "moment": moment, TEXT: status.reason}
        case _:
            return _said_of_refs([getattr(kind, item.name) for item in fields(kind)])


def _said_of_refs(values: list[str | SnapshotId]) -> dict[str, Any]:
    """A name, and one or two snapshots."""
    ids = [value.raw for value in values if isinstance(value, SnapshotId)]
    names = [value for value in values if isinstance(value, str)]
    return dict(zip(("first", "second"), ids, strict=False)) | dict(
        zip((TEXT,), names, strict=False)
    )


def _column(name: str, values: list[Any]) -> npt.NDArray[Any]:
    dtype = _DTYPES[name]
    if dtype == ID12:
        return np.array([value or bytes(OBJECT_ID_SIZE) for value in values], ID12)
    try:
        return np.array(values, dtype)
    except OverflowError as error:
        raise invalid(f"a value is too large or negative: {error}") from error


def _texts(texts: Sequence[str | None]) -> pa.Array:
    octets = [None if text is None else utf8(text) for text in texts]
    return pa.array(octets, pa.large_binary()).view(pa.large_string())


def read_updates(buffer: FlatBuffer, vector_at: int) -> UpdateColumns:
    """The entries of a page that may be damaged; tables of unknown types are refused."""
    buffer = buffer.apart(again=True)
    draft = _Draft(buffer, buffer.vector(vector_at, 4)[1])
    for group in table_groups(buffer, vector_at):
        draft.fill(group)
    for kinds in linked_groups(buffer, draft.kinds):
        for tag, chosen in _by_tag(kinds, draft.tags):
            draft.fill_kinds(chosen, tag)
    return draft.finish()


class _Draft:
    """Columns while they are read, group by group; texts by their place, -1 where there is none."""

    def __init__(self, buffer: FlatBuffer, count: int) -> None:
        self.buffer = buffer
        self.tags = np.zeros(count, np.uint8)
        self.times = np.zeros(count, np.uint64)
        self.kinds = np.zeros(count, np.intp)
        self.texts, self.backups = np.full((2, count), -1, np.intp)
        self.numbers = {name: np.zeros(count, dtype) for name, dtype in _DTYPES.items()}

    def fill(self, group: TableGroup) -> None:
        tags = group.scalars(0, "u1")
        self.tags[group.rows] = 0 if tags is None else tags
        self._check_tags(self.tags[group.rows])
        kinds = group.offsets(1)
        if kinds is None or group.targets(1) is None:
            raise self.buffer.error("an entry of the operations log lacks its update_type")
        self.kinds[group.rows] = kinds
        times = group.scalars(2, "<u8")
        self.times[group.rows] = 0 if times is None else times
        self._fill_texts(self.backups, group, 3)

    def fill_kinds(self, group: TableGroup, tag: int) -> None:
        if tag != STATUS_CHANGED:
            self._fill_form(group, FORMS[tag])
            return
        status = group.offsets(0)
        if status is None or group.targets(0) is None:
            raise self.buffer.error("an entry of the operations log lacks its status")
        rows = np.arange(len(self.tags))[group.rows]
        for inner in linked_groups(self.buffer, status):
            self._fill_form(replace(inner, rows=rows[inner.rows]), LIMITED_FORM)

    def finish(self) -> UpdateColumns:
        latest = max(int(column.max(initial=0)) for column in (self.times, self.numbers["moment"]))
        if latest > MAX_MICROS:
            raise self.buffer.error(f"the time of {latest} microseconds is beyond the year 9998")
        self._normalise()
        return UpdateColumns(
            tags=self.tags,
            times=self.times,
            backups=self._text_column(self.backups),
            texts=self._text_column(self.texts),
            numbers=self.numbers,
        )

    def _normalise(self) -> None:
        """Flags are 0 or 1, and an availability that is unknown is online."""
        b, c = self.numbers["b"], self.numbers["c"]
        flags = self.tags == FLAG_CHANGED
        c[flags] = c[flags] != 0
        b[flags] = (b[flags] != 0) & (c[flags] != 0)
        statuses = self.tags == STATUS_CHANGED
        b[statuses] = b[statuses] == Availability.READ_ONLY

    def _check_tags(self, tags: npt.NDArray[np.uint8]) -> None:
        unknown = (tags < 1) | (tags > len(FORMS))
        if unknown.any():
            tag = int(tags[unknown][0])
            message = f"an entry of the operations log has the unknown type {tag}"
            raise self.buffer.error(message)

    def _fill_form(self, group: TableGroup, form: Form) -> None:
        for slot, code, name in form:
            if code == OFFSET:
                self._fill_texts(self.texts, group, slot, needed=form is not LIMITED_FORM)
            elif code == ID12_CODE:
                self._fill_ids(self.numbers[name], group, slot)
            else:
                numbers = group.scalars(slot, _CODES[code])
                self.numbers[name][group.rows] = 0 if numbers is None else numbers

    def _fill_ids(self, column: npt.NDArray[Any], group: TableGroup, slot: int) -> None:
        ids = group.structs(slot, ID12)
        if ids is None:
            raise self.buffer.error("an entry of the operations log lacks a snapshot id")
        column[group.rows] = ids

    def _fill_texts(
        self, column: Positions, group: TableGroup, slot: int, *, needed: bool = False
    ) -> None:
        vectors = group.vectors(slot, 1)
        if vectors is None:
            if needed:
                raise self.buffer.error("an entry of the operations log lacks its name")
            return
        starts, sizes = vectors
        self.buffer.spend(int(sizes.sum()))
        column[group.rows] = starts - 4

    def _text_column(self, at: Positions) -> pa.Array:
        present = at >= 0
        texts = text_column(self.buffer, at[present]).cast(pa.large_string())
        return texts.take(pa.array(np.cumsum(present) - 1, mask=~present))


def _by_tag(group: TableGroup, tags: npt.NDArray[np.uint8]) -> Iterator[tuple[int, TableGroup]]:
    """Tables of one vtable by what they are."""
    rows = np.arange(len(tags))[group.rows]
    for tag in np.unique(tags[rows]).tolist():
        same = tags[rows] == tag
        yield tag, replace(group, rows=rows[same], at=group.at[same])
