"""Entries of the operations log, and the status that one of them repeats, written to ``repo``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING

from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.records import ID12_CODE, OFFSET, Writer, shape
from icechunk_stream.format.snapshot_encode import check_written_time
from icechunk_stream.format.updates import UPDATE_TAGS, FeatureFlagChanged, StatusChanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icechunk_stream.format.updates import Status, Update, UpdateKind

_UPDATE = ((0, "B"), (1, OFFSET), (2, "Q"))
_NEWEST = shape(*_UPDATE)
_BACKED_UP = shape(*_UPDATE, (3, OFFSET))
_STATUS = ((0, "B"), (1, "Q"))
_UNLIMITED = shape(*_STATUS)
_LIMITED = shape(*_STATUS, (2, OFFSET))
_FLAG = shape((0, "H"), (1, "?"), (2, "?"))
_STATUS_CHANGED = shape((0, OFFSET))


# The entries of some pages of the log.
_REMEMBERED = 4096
_ALIGNMENT = 8


def write_updates(writer: Writer, updates: Sequence[Update]) -> int:
    """The vector of all entries; those that were written before are copied."""
    blocks = [_block(update) for update in updates]
    vector = writer.offsets(len(blocks))
    at = writer.pad(_ALIGNMENT)
    writer.reserve(sum(len(block.data) for block in blocks))
    for number, block in enumerate(blocks, start=1):
        writer.link(vector + 4 * number, at + block.table)
        at += len(block.data)
    writer.data += b"".join(block.data for block in blocks)
    writer.tables += sum(block.tables for block in blocks)
    return vector


@dataclass(frozen=True, slots=True)
class _Block:
    """An entry with all that it points to, which may stand at any multiple of its size's unit."""

    data: bytes
    table: int
    tables: int


@lru_cache(_REMEMBERED)
def _block(update: Update) -> _Block:
    """All offsets are relative, so that an entry is the same bytes wherever it stands."""
    writer = Writer()
    start = writer.pad(_ALIGNMENT)
    table = _write_update(writer, update)
    writer.pad(_ALIGNMENT)
    return _Block(bytes(writer.data[start:]), table - start, writer.tables)


def _write_update(writer: Writer, update: Update) -> int:
    of = _NEWEST if update.backup is None else _BACKED_UP
    values = (UPDATE_TAGS[type(update.kind)], 0, check_written_time(update.updated_at))
    table = writer.table(of, *values, *(0 for _ in of.fields[3:]))
    writer.attach(table, of, 1, _write_kind(writer, update.kind))
    if update.backup is not None:
        writer.attach(table, of, 3, writer.text(update.backup))
    return table


def write_status(writer: Writer, status: Status) -> int:
    of = _UNLIMITED if status.reason is None else _LIMITED
    values = (status.availability, check_written_time(status.set_at))
    table = writer.table(of, *values, *(0 for _ in of.fields[2:]))
    if status.reason is not None:
        writer.attach(table, of, 2, writer.text(status.reason))
    return table


def _write_kind(writer: Writer, kind: UpdateKind) -> int:
    match kind:
        case FeatureFlagChanged(id, value):
            return writer.table(_FLAG, id, bool(value), value is not None)
        case StatusChanged(status):
            table = writer.table(_STATUS_CHANGED, 0)
            writer.attach(table, _STATUS_CHANGED, 0, write_status(writer, status))
            return table
        case _:
            return _write_fields(writer, [getattr(kind, item.name) for item in fields(kind)])


def _write_fields(writer: Writer, values: list[str | int | SnapshotId]) -> int:
    """The other kinds have their fields in the order of the slots."""
    of = shape(*((slot, _code(value)) for slot, value in enumerate(values)))
    table = writer.table(of, *(_packed(value) for value in values))
    for slot, value in enumerate(values):
        if isinstance(value, str):
            writer.attach(table, of, slot, writer.text(value))
    return table


def _code(value: str | int | SnapshotId) -> str:
    match value:
        case str():
            return OFFSET
        case int():
            return "B"
        case SnapshotId():
            return ID12_CODE


def _packed(value: str | int | SnapshotId) -> int | bytes:
    match value:
        case str():
            return 0
        case int():
            return value
        case SnapshotId():
            return value.raw
