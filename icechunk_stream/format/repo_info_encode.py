"""The ``repo`` object of spec v2 written from the state of a repository."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from icechunk_stream.format.header import DEFAULT_LEVEL, FileType
from icechunk_stream.format.records import OFFSET, Writer, invalid, shape, utf8
from icechunk_stream.format.repo_info import V2, RepoSlot
from icechunk_stream.format.snapshot_columns import all_snapshots
from icechunk_stream.format.snapshot_columns_encode import write_snapshots
from icechunk_stream.format.snapshot_encode import write_metadata
from icechunk_stream.format.updates_encode import write_status, write_updates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.format.records import Shape
    from icechunk_stream.format.repo_info import RepoInfo, SnapshotRecord, SnapshotTable
    from icechunk_stream.format.snapshot_columns import SnapshotColumns
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
_REF = shape((0, OFFSET), (1, "I"))
_MAX_FLAG = 2**16 - 1


@dataclass(frozen=True, slots=True, eq=False)
class RepoState:
    """What a ``repo`` object says; all but the updates, which are newest first, in any order.

    Its snapshots are ``snapshots`` and all ``stored`` ones, which are copied as they are: to
    change or drop one of them, give all as records.
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

    @classmethod
    def of(cls, info: RepoInfo) -> Self:
        """The state of a version, to be changed into that of the next one."""
        table = info.snapshots
        return cls(
            branches={name: table.id(row) for name, row in info.branches.items()},
            tags={name: table.id(row) for name, row in info.tags.items()},
            deleted_tags=info.deleted_tags,
            snapshots=(),
            status=info.status,
            updates=info.updates(),
            metadata=info.metadata,
            repo_before_updates=info.repo_before_updates,
            config=info.config,
            enabled_flags=info.enabled_flags,
            disabled_flags=info.disabled_flags,
            stored=table,
        )


def encode_repo_info(state: RepoState, level: int = DEFAULT_LEVEL) -> bytes:
    """A ``repo`` object; refs and parents have to be among its snapshots."""
    _check_refs(state)
    _check_updates(state.updates)
    of = _root_shape(state)
    writer = Writer()
    root = writer.table(of, V2, *(0 for _ in of.fields[1:]))
    for slot, at in _write_parts(writer, state):
        writer.attach(root, of, slot, at)
    if writer.tables > MAX_TABLES:
        raise invalid(
            f"a repo object of {writer.tables} tables, readers take {MAX_TABLES}: expire snapshots"
        )
    return writer.seal(root, FileType.REPO_INFO, V2, level)


def _root_shape(state: RepoState) -> Shape:
    optional = {
        RepoSlot.REPO_BEFORE_UPDATES: state.repo_before_updates is not None,
        RepoSlot.CONFIG: state.config is not None,
        RepoSlot.ENABLED_FLAGS: bool(state.enabled_flags),
        RepoSlot.DISABLED_FLAGS: bool(state.disabled_flags),
    }
    slots = (*_ALWAYS, *(slot for slot, present in optional.items() if present))
    return shape((RepoSlot.SPEC_VERSION, "B"), *((slot, OFFSET) for slot in slots))


def _write_parts(writer: Writer, state: RepoState) -> Iterator[tuple[RepoSlot, int]]:
    """Append what the root points to, slot by slot."""
    snapshots = all_snapshots(state.stored, state.snapshots)
    yield RepoSlot.TAGS, _write_refs(writer, state.tags, snapshots)
    yield RepoSlot.BRANCHES, _write_refs(writer, state.branches, snapshots)
    yield RepoSlot.DELETED_TAGS, _write_texts(writer, state.deleted_tags)
    yield RepoSlot.SNAPSHOTS, write_snapshots(writer, snapshots)
    yield RepoSlot.STATUS, write_status(writer, state.status)
    yield RepoSlot.METADATA, write_metadata(writer, state.metadata, V2)
    yield RepoSlot.LATEST_UPDATES, write_updates(writer, state.updates)
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


def _check_updates(updates: Sequence[Update]) -> None:
    """Readers panic where the newest entry has a backup, and refuse to go on from equal times."""
    if not updates or updates[0].backup is not None:
        raise invalid("the operations log is empty, or its newest entry names a backup")
    for newer, older in pairwise(updates):
        if newer.updated_at <= older.updated_at:
            raise invalid("the operations log is not in descending order of its times")


def _write_refs(writer: Writer, refs: Mapping[str, SnapshotId], snapshots: SnapshotColumns) -> int:
    vector = writer.offsets(len(refs))
    for number, name in enumerate(sorted(refs, key=utf8), start=1):
        row = snapshots.row(refs[name])
        if row is None:
            raise invalid(f"the ref {name!r} points to {refs[name]}, which is not in the list")
        table = writer.table(_REF, 0, row)
        writer.link(vector + 4 * number, table)
        writer.attach(table, _REF, 0, writer.text(name))
    return vector


def _write_texts(writer: Writer, texts: Collection[str]) -> int:
    distinct = set(texts)
    vector = writer.offsets(len(distinct))
    for number, text in enumerate(sorted(distinct, key=utf8), start=1):
        writer.link(vector + 4 * number, writer.text(text))
    return vector


def _write_flags(writer: Writer, flags: frozenset[int]) -> int:
    ordered = sorted(flags)
    if ordered[0] < 0 or ordered[-1] > _MAX_FLAG:
        raise invalid(f"feature flags {ordered}: 0 to {_MAX_FLAG} are possible")
    return writer.vector(np.array(ordered, "<u2"))
