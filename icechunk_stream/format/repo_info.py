"""The ``repo`` object of spec v2: refs, every snapshot, status, configuration, operations log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from icechunk_stream.errors import ErrorKind, FormatError
from icechunk_stream.format.columns import table_groups
from icechunk_stream.format.flat import FlatBuffer, Table
from icechunk_stream.format.header import FileType, open_envelope
from icechunk_stream.format.ids import ID12, SnapshotId, find_row
from icechunk_stream.format.snapshot import decode_metadata
from icechunk_stream.format.texts import text_column
from icechunk_stream.format.update_columns import UpdateColumns, read_updates
from icechunk_stream.format.updates import Status, Update, decode_status, decode_update

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from icechunk_stream.format.snapshot_blocks import SnapshotBlocks

V2 = 2
NO_PARENT = -1
_U16 = np.dtype("<u2")


class RepoSlot(IntEnum):
    """Slots of ``Repo``."""

    SPEC_VERSION = 0
    TAGS = 1
    BRANCHES = 2
    DELETED_TAGS = 3
    SNAPSHOTS = 4
    STATUS = 5
    METADATA = 6
    LATEST_UPDATES = 7
    REPO_BEFORE_UPDATES = 8
    CONFIG = 9
    ENABLED_FLAGS = 10
    DISABLED_FLAGS = 11


class InfoSlot(IntEnum):
    """Slots of ``SnapshotInfo``."""

    ID = 0
    PARENT = 1
    FLUSHED_AT = 2
    MESSAGE = 3
    METADATA = 4
    PRUNED_LOGS = 5


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """What the tip knows of a snapshot without reading the snapshot object."""

    id: SnapshotId
    parent_id: SnapshotId | None
    flushed_at: int
    message: str
    metadata: dict[str, Any]
    pruned_logs: tuple[SnapshotId, ...] = ()


class SnapshotTable:
    """All snapshots of a repository: ids and parents as columns, records decoded when asked for.

    Whoever wrote the object knows its ``blocks``, and need not lay them out again.
    """

    __slots__ = ("_at", "_counted", "blocks", "buffer", "ids", "parents", "vector_at")

    def __init__(
        self,
        buffer: FlatBuffer,
        vector_at: int,
        ids: npt.NDArray[np.void],
        parents: npt.NDArray[np.int32],
        at: npt.NDArray[np.intp],
        blocks: SnapshotBlocks | None = None,
    ) -> None:
        self.blocks = blocks
        self.ids = ids
        self.parents = parents
        self.buffer = buffer
        self.vector_at = vector_at
        self._at = at
        self._counted = bytearray(len(at))

    def __len__(self) -> int:
        return len(self.ids)

    def row(self, id: SnapshotId) -> int | None:
        return find_row(self.ids, id)

    def id(self, row: int) -> SnapshotId:
        return SnapshotId(self.ids[row].tobytes())

    def record(self, row: int) -> SnapshotRecord:
        counted = bool(self._counted[row])
        buffer = self.buffer.apart(again=counted)
        try:
            record = self._decode(buffer.table(int(self._at[row])), row)
        finally:
            if not counted:
                self.buffer.spent = buffer.spent
        self._counted[row] = True
        return record

    def _decode(self, table: Table, row: int) -> SnapshotRecord:
        parent = int(self.parents[row])
        pruned = table.array(InfoSlot.PRUNED_LOGS, ID12)
        return SnapshotRecord(
            id=self.id(row),
            parent_id=None if parent == NO_PARENT else self.id(parent),
            flushed_at=table.time(InfoSlot.FLUSHED_AT),
            message=table.need(table.text(InfoSlot.MESSAGE), "message"),
            metadata=decode_metadata(table, InfoSlot.METADATA, V2),
            pruned_logs=() if pruned is None else tuple(SnapshotId(id.tobytes()) for id in pruned),
        )

    def ancestry(self, row: int) -> Iterator[SnapshotRecord]:
        """Records from a row to its root."""
        return (self.record(at) for at in self._lineage(row))

    def newest_at(self, row: int, limit: int) -> int | None:
        """The first row on the way to the root that is not younger than a time."""
        times = self._times()
        return next((at for at in self._lineage(row) if times.item(at) <= limit), None)

    def _lineage(self, row: int) -> Iterator[int]:
        """Rows from one to its root."""
        seen: set[int] = set()
        while row != NO_PARENT:
            if row in seen:
                raise self.buffer.error(f"the ancestry of {self.id(row)} is a loop")
            seen.add(row)
            yield row
            row = self.parents.item(row)

    def _times(self) -> npt.NDArray[np.uint64]:
        times = np.zeros(len(self), np.uint64)
        for group in table_groups(self.buffer.apart(again=True), self.vector_at):
            found = group.scalars(InfoSlot.FLUSHED_AT, "<u8")
            if found is not None:
                times[group.rows] = found
        return times


@dataclass(frozen=True, slots=True, eq=False)
class RepoInfo:
    """One version of the ``repo`` object; branches and tags name rows of ``snapshots``."""

    spec_version: int
    tags: dict[str, int]
    branches: dict[str, int]
    deleted_tags: tuple[str, ...]
    snapshots: SnapshotTable
    status: Status
    metadata: dict[str, Any]
    repo_before_updates: str | None
    config: bytes | None
    enabled_flags: frozenset[int]
    disabled_flags: frozenset[int]
    written_by: str
    root: Table
    known_log: UpdateColumns | None = None

    def updates(self) -> list[Update]:
        """This object's page of the operations log, newest first."""
        root = self.root.buffer.apart(again=True).root()
        return [decode_update(table) for table in root.tables(RepoSlot.LATEST_UPDATES)]

    def log(self) -> UpdateColumns:
        """The same page as columns."""
        if self.known_log is not None:
            return self.known_log
        at = self.root.need(self.root.target(RepoSlot.LATEST_UPDATES), "latest_updates")
        return read_updates(self.root.buffer, at)


def decode_repo_info(data: bytes, key: str) -> RepoInfo:
    """Read a ``repo`` object; snapshots' messages and the operations log wait until asked for."""
    envelope = open_envelope(data, FileType.REPO_INFO, key)
    if envelope.spec_version != V2:
        raise FormatError("a repo object of spec v1", ErrorKind.INVALID_FILE_FORMAT, key=key)
    root = FlatBuffer(envelope.payload, key).root()
    spec_version = root.scalar(RepoSlot.SPEC_VERSION, "B")
    if spec_version != V2:
        message = f"spec version {spec_version} is unknown; a newer library may read it"
        raise FormatError(message, ErrorKind.UNSUPPORTED_SPEC_VERSION, key=key)
    root.need(root.target(RepoSlot.LATEST_UPDATES), "latest_updates")
    snapshots = _snapshots(root)
    tags, branches = (
        _refs(root, slot, len(snapshots)) for slot in (RepoSlot.TAGS, RepoSlot.BRANCHES)
    )
    known = Known(snapshots, tags, branches)
    return info_of(root, known, envelope.written_by)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The large parts of an object; whoever has just written it also knows its log."""

    snapshots: SnapshotTable
    tags: dict[str, int]
    branches: dict[str, int]
    log: UpdateColumns | None = None


def info_of(root: Table, known: Known, written_by: str) -> RepoInfo:
    """What an object says beside what is known."""
    return RepoInfo(
        spec_version=V2,
        tags=known.tags,
        branches=known.branches,
        deleted_tags=_deleted_tags(root),
        snapshots=known.snapshots,
        status=decode_status(root.need(root.table(RepoSlot.STATUS), "status")),
        metadata=decode_metadata(root, RepoSlot.METADATA, V2),
        repo_before_updates=root.text(RepoSlot.REPO_BEFORE_UPDATES),
        config=root.blob(RepoSlot.CONFIG),
        enabled_flags=_flags(root, RepoSlot.ENABLED_FLAGS),
        disabled_flags=_flags(root, RepoSlot.DISABLED_FLAGS),
        written_by=written_by,
        root=root,
        known_log=known.log,
    )


def _refs(root: Table, slot: RepoSlot, count: int) -> dict[str, int]:
    at = root.need(root.target(slot), slot.name.lower())
    names, rows = _ref_columns(root.buffer, at)
    far = np.flatnonzero(rows >= count)
    if len(far):
        name, row = names[far[0]], int(rows[far[0]])
        raise root.buffer.error(f"the ref {name!r} points to snapshot {row} of {count}")
    # Strings are in the order of their UTF-8.
    if names != sorted(set(names)):
        raise root.buffer.error(f"its {slot.name.lower()} are not in ascending order")
    return dict(zip(names, rows.tolist(), strict=True))


def _ref_columns(buffer: FlatBuffer, vector_at: int) -> tuple[list[str], npt.NDArray[np.intp]]:
    names, rows = np.zeros((2, buffer.vector(vector_at, 4)[1]), np.intp)
    for group in table_groups(buffer, vector_at):
        texts = group.vectors(0, 1)
        if texts is None:
            raise buffer.error("a ref lacks its name")
        buffer.spend(int(texts[1].sum()))
        names[group.rows] = texts[0] - 4
        numbers = group.scalars(1, "<u4")
        rows[group.rows] = 0 if numbers is None else numbers
    return text_column(buffer, names).to_pylist(), rows


def _deleted_tags(root: Table) -> tuple[str, ...]:
    root.need(root.target(RepoSlot.DELETED_TAGS), "deleted_tags")
    tags = list(root.texts(RepoSlot.DELETED_TAGS))
    if tags != sorted(set(tags)):
        raise root.buffer.error("its deleted tags are not in ascending order, or repeat")
    return tuple(tags)


def _flags(root: Table, slot: RepoSlot) -> frozenset[int]:
    flags = root.array(slot, _U16)
    return frozenset(() if flags is None else flags.tolist())


def _snapshots(root: Table) -> SnapshotTable:
    at = root.need(root.target(RepoSlot.SNAPSHOTS), "snapshots")
    buffer = root.buffer
    count = buffer.vector(at, 4)[1]
    ids = np.zeros(count, ID12)
    parents = np.zeros(count, np.int32)
    tables = np.zeros(count, np.intp)
    for group in table_groups(buffer, at):
        found = group.structs(InfoSlot.ID, ID12)
        if found is None:
            raise buffer.error("a snapshot lacks its id")
        ids[group.rows] = found
        tables[group.rows] = group.at
        offsets = group.scalars(InfoSlot.PARENT, "<i4")
        if offsets is not None:
            parents[group.rows] = offsets
    _check_snapshots(buffer, ids, parents)
    return SnapshotTable(buffer, at, ids, parents, tables)


def _check_snapshots(
    buffer: FlatBuffer, ids: npt.NDArray[np.void], parents: npt.NDArray[np.int32]
) -> None:
    keys = ids.view("S12")
    if (keys[1:] <= keys[:-1]).any():
        raise buffer.error("its snapshots are not in ascending order of their ids, or repeat")
    if ((parents < NO_PARENT) | (parents >= len(ids))).any():
        raise buffer.error("the parent of a snapshot is not in the list")
