"""Public values that describe repositories, with the reference library's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

from icechunk_stream.effects import now_micros
from icechunk_stream.format.times import from_micros

if TYPE_CHECKING:
    from datetime import datetime


class SpecVersion(IntEnum):
    """Versions of the Icechunk format."""

    v1 = 1
    v2 = 2

    @staticmethod
    def current() -> SpecVersion:
        """The version that new repositories have by default."""
        return SpecVersion.v2


class ChunkType(Enum):
    """Where a chunk's bytes are."""

    uninitialized = 0
    native = 1
    virtual = 2
    inline = 3


class SessionMode(Enum):
    """What a session can do."""

    readonly = 0
    writable = 1
    rearrange = 2


class RepoAvailability(Enum):
    """What a repository allows."""

    online = 0
    read_only = 1


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A commit."""

    id: str
    parent_id: str | None
    written_at: datetime
    message: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ManifestFileInfo:
    """A manifest that a snapshot uses."""

    id: str
    size_bytes: int
    num_chunk_refs: int


@dataclass(frozen=True, slots=True)
class RepoStatus:
    """Availability of a repository, since when, and why it is limited."""

    availability: RepoAvailability
    set_at: datetime = field(default_factory=lambda: from_micros(now_micros()))
    limited_availability_reason: str | None = None


@dataclass(frozen=True, slots=True)
class FeatureFlag:
    """Something that a repository can forbid."""

    id: int
    name: str
    default_enabled: bool
    setting: bool | None

    @property
    def enabled(self) -> bool:
        return self.default_enabled if self.setting is None else self.setting


class UpdateType:
    """What an entry of the operations log records; one of the classes in it."""

    RepoInitialized: ClassVar[type[UpdateType]]
    RepoMigrated: ClassVar[type[RepoMigrated]]
    ConfigChanged: ClassVar[type[UpdateType]]
    MetadataChanged: ClassVar[type[UpdateType]]
    TagCreated: ClassVar[type[UpdateType]]
    TagDeleted: ClassVar[type[UpdateType]]
    BranchCreated: ClassVar[type[UpdateType]]
    BranchDeleted: ClassVar[type[UpdateType]]
    BranchReset: ClassVar[type[UpdateType]]
    NewCommit: ClassVar[type[UpdateType]]
    CommitAmended: ClassVar[type[UpdateType]]
    NewDetachedSnapshot: ClassVar[type[UpdateType]]
    GCRan: ClassVar[type[UpdateType]]
    ExpirationRan: ClassVar[type[UpdateType]]
    FeatureFlagChanged: ClassVar[type[FeatureFlagChanged]]
    RepoStatusChanged: ClassVar[type[RepoStatusChanged]]


@dataclass(frozen=True)
class RepoInitialized(UpdateType):
    """The repository was created."""


@dataclass(frozen=True)
class RepoMigrated(UpdateType):
    """The repository moved to another spec version."""

    from_version: int
    to_version: int


@dataclass(frozen=True)
class ConfigChanged(UpdateType):
    """The stored configuration was replaced."""


@dataclass(frozen=True)
class MetadataChanged(UpdateType):
    """The repository's metadata was changed."""


@dataclass(frozen=True)
class TagCreated(UpdateType):
    """A tag was created."""

    name: str


@dataclass(frozen=True)
class TagDeleted(UpdateType):
    """A tag was deleted."""

    name: str
    previous_snap_id: str


@dataclass(frozen=True)
class BranchCreated(UpdateType):
    """A branch was created."""

    name: str


@dataclass(frozen=True)
class BranchDeleted(UpdateType):
    """A branch was deleted."""

    name: str
    previous_snap_id: str


@dataclass(frozen=True)
class BranchReset(UpdateType):
    """A branch was pointed at another snapshot."""

    name: str
    previous_snap_id: str


@dataclass(frozen=True)
class NewCommit(UpdateType):
    """A snapshot was committed to a branch."""

    branch: str
    new_snap_id: str


@dataclass(frozen=True)
class CommitAmended(UpdateType):
    """The tip of a branch was replaced."""

    branch: str
    previous_snap_id: str
    new_snap_id: str


@dataclass(frozen=True)
class NewDetachedSnapshot(UpdateType):
    """A snapshot was written that no branch points to."""

    new_snap_id: str


@dataclass(frozen=True)
class GCRan(UpdateType):
    """Garbage was collected."""


@dataclass(frozen=True)
class ExpirationRan(UpdateType):
    """Snapshots were expired."""


@dataclass(frozen=True)
class FeatureFlagChanged(UpdateType):
    """A feature flag was set, or unset (None)."""

    id: int
    new_value: bool | None


@dataclass(frozen=True)
class RepoStatusChanged(UpdateType):
    """The repository's availability was set."""

    status: RepoStatus


for _kind in UpdateType.__subclasses__():
    setattr(UpdateType, _kind.__name__, _kind)


@dataclass(frozen=True, slots=True)
class Update:
    """One entry of the operations log."""

    kind: UpdateType
    updated_at: datetime
    backup_path: str | None = None
