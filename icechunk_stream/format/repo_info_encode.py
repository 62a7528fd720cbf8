"""The ``repo`` object of spec v2 written from the state of a repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from icechunk_stream.format.flat import FlatBuffer
from icechunk_stream.format.header import DEFAULT_LEVEL, WRITER, FileType
from icechunk_stream.format.heaps import lay_out
from icechunk_stream.format.records import (
    OFFSET,
    Records,
    Writer,
    invalid,
    layout,
    seal,
    shape,
    utf8,
)
from icechunk_stream.format.repo_info import V2, Known, RepoSlot, info_of
from icechunk_stream.format.snapshot_blocks import all_snapshots
from icechunk_stream.format.snapshot_encode import write_metadata
from icechunk_stream.format.update_columns import UpdateColumns
from icechunk_stream.format.updates_encode import write_status, write_updates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import numpy.typing as npt

    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.format.records import Block, Shape
    from icechunk_stream.format.repo_info import RepoInfo, SnapshotRecord, SnapshotTable
    from icechunk_stream.format.snapshot_blocks import SnapshotBlocks
    from icechunk_stream.format.updates import Status, Update

MAIN = "main"
# Readers of the reference verify the object again at each access, up to so many tables.
MAX_TABLES = 1_000_000

_ALWAYS = (
    RepoSlot.TAGS,
    RepoSlot.BRANCHES,
    RepoSlot.DELETED_TAGS,
    RepoSlot.SNAPSHOTS,
    RepoSlot.STATUS,
    RepoSlot.METADATA,
    RepoSlot.LATEST_UPDATES,
)
_REF = layout(shape((0, OFFSET), (1, "I")))
_WORD = 4
_MAX_FLAG = 2**16 - 1


@dataclass(frozen=True, slots=True, eq=False)
class RepoState:
    """What a ``repo`` object says; all but the updates, which are newest first, in any order.

    Its snapshots are ``snapshots`` and all ``stored`` ones, which are copied as they are: to
    change or drop one of them, give all as records. Its updates are ``updates``, then ``older``.
    """

    branches: Mapping[str, SnapshotId]
    tags: Mapping[str, SnapshotId]
    deleted_tags: Collection[str]
    snapshots: Sequence[SnapshotRecord]
    status: Status
    updates: Sequence[Update]
    metadata: Mapping[str, Any]
    repo_before_updates: str | None = None
    config: bytes | None = None
    enabled_flags: frozenset[int] = frozenset()
    disabled_flags: frozenset[int] = frozenset()
    stored: SnapshotTable | None = None
    older: UpdateColumns | None = None

    @classmethod
    def of(cls, info: RepoInfo) -> Self:
        """The state of a version, to be changed into that of the next one."""
        return cls(
            branches=StoredRefs(info.branches, info.snapshots),
            tags=StoredRefs(info.tags, info.snapshots),
            deleted_tags=info.deleted_tags,
            snapshots=(),
            status=info.status,
            updates=(),
            metadata=info.metadata,
            repo_before_updates=info.repo_before_updates,
            config=info.config,
            enabled_flags=info.enabled_flags,
            disabled_flags=info.disabled_flags,
            stored=info.snapshots,
            older=info.log(),
        )

    def log(self) -> UpdateColumns:
        """All entries of the operations log."""
        if self.older is None:
            return UpdateColumns.of(self.updates)
        return UpdateColumns.of(self.updates).before(self.older) if self.updates else self.older


@dataclass(frozen=True, slots=True, eq=False)
class StoredRefs(Mapping[str, "SnapshotId"]):
    """Refs of a version, in its order; no id is made for those that nobody asks for."""

    rows: Mapping[str, int]
    table: SnapshotTable

    def __getitem__(self, name: str) -> SnapshotId:
        return self.table.id(self.rows[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def encode_repo_info(state: RepoState, level: int = DEFAULT_LEVEL) -> bytes:
    """A ``repo`` object; refs and parents have to be among its snapshots."""
    return seal_repo_info(build_repo_info(state, ""), level)


def seal_repo_info(info: RepoInfo, level: int) -> bytes:
    """The object that says so, as it is stored."""
    return seal(info.root.buffer.data, FileType.REPO_INFO, V2, level)


def build_repo_info(state: RepoState, key: str) -> RepoInfo:
    """What the object of a state says, and in ``root`` its flatbuffer."""
    log = state.log()
    _check_refs(state)
    _check_updates(log)
    snapshots, moved = all_snapshots(state.stored, state.snapshots)
    of = _root_shape(state)
    writer = Writer()
    root = writer.table(of, V2, *(0 for _ in of.fields[1:]))
    writer.link(0, root)
    for slot, at in _write_parts(writer, state, log):
        writer.attach(root, of, slot, at)
    tags = _ref_rows(state.tags, state.stored, snapshots, moved)
    branches = _ref_rows(state.branches, state.stored, snapshots, moved)
    writer.attach(root, of, RepoSlot.TAGS, _write_refs(writer, tags))
    writer.attach(root, of, RepoSlot.BRANCHES, _write_refs(writer, branches))
    vector, begin = snapshots.write_vector(writer)
    writer.attach(root, of, RepoSlot.SNAPSHOTS, vector)
    _check_tables(writer.tables)
    payload = memoryview(snapshots.appended(writer.data)).toreadonly()
    buffer = FlatBuffer(payload, key)
    known = Known(snapshots.table(buffer, vector, begin), tags, branches, log)
    return info_of(buffer.root(), known, WRITER.decode())


def _check_tables(count: int) -> None:
    if count > MAX_TABLES:
        raise invalid(
            f"a repo object of {count} tables, readers take {MAX_TABLES}: expire snapshots"
        )


def _root_shape(state: RepoState) -> Shape:
    optional = {
        RepoSlot.REPO_BEFORE_UPDATES: state.repo_before_updates is not None,
        RepoSlot.CONFIG: state.config is not None,
        RepoSlot.ENABLED_FLAGS: bool(state.enabled_flags),
        RepoSlot.DISABLED_FLAGS: bool(state.disabled_flags),
    }
    slots = (*_ALWAYS, *(slot for slot, present in optional.items() if present))
    return shape((RepoSlot.SPEC_VERSION, "B"), *((slot, OFFSET) for slot in slots))


def _write_parts(
    writer: Writer, state: RepoState, log: UpdateColumns
) -> Iterator[tuple[RepoSlot, int]]:
    """Append what the root points to beside snapshots and refs, slot by slot."""
    yield RepoSlot.DELETED_TAGS, _write_texts(writer, state.deleted_tags)
    yield RepoSlot.STATUS, write_status(writer, state.status)
    yield RepoSlot.METADATA, write_metadata(writer, state.metadata, V2)
    yield RepoSlot.LATEST_UPDATES, write_updates(writer, log)
    if state.repo_before_updates is not None:
        yield RepoSlot.REPO_BEFORE_UPDATES, writer.text(state.repo_before_updates)
    if state.config is not None:
        yield RepoSlot.CONFIG, writer.blob(state.config)
    if state.enabled_flags:
        yield RepoSlot.ENABLED_FLAGS, _write_flags(writer, state.enabled_flags)
    if state.disabled_flags:
        yield RepoSlot.DISABLED_FLAGS, _write_flags(writer, state.disabled_flags)


def _check_refs(state: RepoState) -> None:
    if MAIN not in state.branches:
        raise invalid(f"the branches lack {MAIN}, which readers need")
    reused = state.tags.keys() & set(state.deleted_tags)
    if reused:
        raise invalid(f"the tag {min(reused)!r} is deleted: its name cannot be used again")
    if state.enabled_flags & state.disabled_flags:
        raise invalid("a feature flag is both enabled and disabled")


def _check_updates(log: UpdateColumns) -> None:
    """Readers panic where the newest entry has a backup, and refuse to go on from equal times."""
    if not len(log) or log.backups[0].is_valid:
        raise invalid("the operations log is empty, or its newest entry names a backup")
    if (log.times[1:] >= log.times[:-1]).any():
        raise invalid("the operations log is not in descending order of its times")


def _ref_rows(
    refs: Mapping[str, SnapshotId],
    stored: SnapshotTable | None,
    snapshots: SnapshotBlocks,
    moved: npt.NDArray[np.int32],
) -> dict[str, int]:
    """The rows to which refs point, in the order of their names."""
    if isinstance(refs, StoredRefs) and refs.table is stored:
        rows = np.fromiter(refs.rows.values(), np.intp, len(refs))
        return dict(zip(refs.rows, moved[rows].tolist(), strict=True))
    return {name: _ref_row(name, refs[name], snapshots) for name in sorted(refs, key=utf8)}


def _ref_row(name: str, id: SnapshotId, snapshots: SnapshotBlocks) -> int:
    row = snapshots.row(id)
    if row is None:
        raise invalid(f"the ref {name!r} points to {id}, which is not in the list")
    return row


def _write_refs(writer: Writer, refs: Mapping[str, int]) -> int:
    texts = lay_out(pa.array(list(refs), pa.large_string()), terminated=True)
    rows = np.fromiter(refs.values(), np.uint32, len(refs))

    def fill(block: Block, chosen: slice) -> None:
        block.link(0, texts.starts[:-1][chosen])
        block.set(1, rows[chosen])

    vector = writer.records([Records(_REF, len(refs), fill)], texts.size)
    texts.write(writer)
    return vector


def _write_texts(writer: Writer, texts: Collection[str]) -> int:
    names = sorted(set(texts), key=utf8)
    heap = lay_out(pa.array(names, pa.large_string()), terminated=True)
    vector = writer.pad(_WORD)
    places = _WORD * np.arange(len(names))
    writer.append(
        np.append(len(names), _WORD * len(names) - places + heap.starts[:-1]).astype("<u4")
    )
    heap.write(writer)
    return vector


def _write_flags(writer: Writer, flags: frozenset[int]) -> int:
    ordered = sorted(flags)
    if ordered[0] < 0 or ordered[-1] > _MAX_FLAG:
        raise invalid(f"feature flags {ordered}: 0 to {_MAX_FLAG} are possible")
    return writer.vector(np.array(ordered, "<u2"))
