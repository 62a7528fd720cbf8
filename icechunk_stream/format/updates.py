"""Entries of the operations log that the ``repo`` object carries (spec v2)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from icechunk_stream.format.ids import OBJECT_ID_SIZE, SnapshotId

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.format.flat import Table


class Availability(IntEnum):
    """What a repository allows."""

    ONLINE = 0
    READ_ONLY = 1


@dataclass(frozen=True, slots=True)
class Status:
    """Availability of a repository, since when, and why it is limited."""

    availability: Availability
    set_at: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class RepoInitialized:
    """The repository was created."""


@dataclass(frozen=True, slots=True)
class RepoMigrated:
    """The repository moved to another spec version."""

    from_version: int
    to_version: int


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """The stored configuration was replaced."""


@dataclass(frozen=True, slots=True)
class MetadataChanged:
    """The repository's metadata was changed."""


@dataclass(frozen=True, slots=True)
class TagCreated:
    """A tag was created."""

    name: str


@dataclass(frozen=True, slots=True)
class TagDeleted:
    """A tag was deleted."""

    name: str
    previous: SnapshotId


@dataclass(frozen=True, slots=True)
class BranchCreated:
    """A branch was created."""

    name: str


@dataclass(frozen=True, slots=True)
class BranchDeleted:
    """A branch was deleted."""

    name: str
    previous: SnapshotId


@dataclass(frozen=True, slots=True)
class BranchReset:
    """A branch was pointed at another snapshot."""

    name: str
    previous: SnapshotId


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A snapshot was committed to a branch."""

    branch: str
    new: SnapshotId


@dataclass(frozen=True, slots=True)
class CommitAmended:
    """The tip of a branch was replaced."""

    branch: str
    previous: SnapshotId
    new: SnapshotId


@dataclass(frozen=True, slots=True)
class NewDetachedSnapshot:
    """A snapshot was written that no branch points to."""

    new: SnapshotId


@dataclass(frozen=True, slots=True)
class GCRan:
    """Garbage was collected."""


@dataclass(frozen=True, slots=True)
class ExpirationRan:
    """Snapshots were expired."""


@dataclass(frozen=True, slots=True)
class FeatureFlagChanged:
    """A feature flag was set, or unset (None)."""

    id: int
    value: bool | None


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The repository's availability was set."""

    status: Status


UpdateKind = (
    RepoInitialized
    | RepoMigrated
    | ConfigChanged
    | MetadataChanged
    | TagCreated
    | TagDeleted
    | BranchCreated
    | BranchDeleted
    | BranchReset
    | NewCommit
    | CommitAmended
    | NewDetachedSnapshot
    | GCRan
    | ExpirationRan
    | FeatureFlagChanged
    | StatusChanged
)


@dataclass(frozen=True, slots=True)
class Update:
    """One entry: what happened, when, and the backup in which it was the newest entry."""

    kind: UpdateKind
    updated_at: int
    backup: str | None = None


def decode_update(table: Table) -> Update:
    tag = table.scalar(0, "B")
    read = _READERS.get(tag)
    if read is None:
        raise table.buffer.error(f"an entry of the operations log has the unknown type {tag}")
    kind = read(table.need(table.table(1), "update_type"))
    return Update(kind, table.time(2), table.text(3))


def decode_status(table: Table) -> Status:
    read_only = table.scalar(0, "B") == Availability.READ_ONLY
    availability = Availability.READ_ONLY if read_only else Availability.ONLINE
    return Status(availability, table.time(1), table.text(2))


def _text(table: Table, slot: int) -> str:
    return table.need(table.text(slot), "name")


def _id(table: Table, slot: int) -> SnapshotId:
    return SnapshotId(table.need(table.struct(slot, OBJECT_ID_SIZE), "snapshot id"))


def _flag(table: Table) -> FeatureFlagChanged:
    is_set = table.scalar(2, "?")
    return FeatureFlagChanged(table.scalar(0, "H"), bool(table.scalar(1, "?")) if is_set else None)


_READERS: dict[int, Callable[[Table], UpdateKind]] = {
    1: lambda _: RepoInitialized(),
    2: lambda table: RepoMigrated(table.scalar(0, "B"), table.scalar(1, "B")),
    3: lambda _: ConfigChanged(),
    4: lambda _: MetadataChanged(),
    5: lambda table: TagCreated(_text(table, 0)),
    6: lambda table: TagDeleted(_text(table, 0), _id(table, 1)),
    7: lambda table: BranchCreated(_text(table, 0)),
    8: lambda table: BranchDeleted(_text(table, 0), _id(table, 1)),
    9: lambda table: BranchReset(_text(table, 0), _id(table, 1)),
    10: lambda table: NewCommit(_text(table, 0), _id(table, 1)),
    11: lambda table: CommitAmended(_text(table, 0), _id(table, 1), _id(table, 2)),
    12: lambda table: NewDetachedSnapshot(_id(table, 0)),
    13: lambda _: GCRan(),
    14: lambda _: ExpirationRan(),
    15: _flag,
    16: lambda table: StatusChanged(decode_status(table.need(table.table(0), "status"))),
}
UPDATE_TAGS: dict[type, int] = {kind: tag for tag, kind in enumerate(UpdateKind.__args__, start=1)}
