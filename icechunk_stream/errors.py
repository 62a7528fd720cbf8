"""The exception tree: the reference library's names, grouped by what a handler would do.

::

    IcechunkError
    ├── ConflictError
    │   └── RebaseFailedError
    ├── NotFoundError                 (also a KeyError)
    │   ├── NodeNotFoundError
    │   ├── SnapshotNotFoundError
    │   ├── RefNotFoundError
    │   └── RepositoryNotFoundError
    ├── AlreadyExistsError
    ├── ReadOnlyError
    ├── InvalidInputError             (also a ValueError)
    │   ├── LayoutError
    │   └── ConflictingRowsError
    ├── SessionStateError
    ├── StorageError
    │   ├── CommitStateUnknownError
    │   └── ObjectNotFoundError
    ├── StreamError
    │   ├── StreamRewoundError
    │   ├── StreamGapError
    │   ├── StreamIdentityError
    │   ├── LedgerMissingError
    │   ├── CheckpointError
    │   └── BadRowsError
    ├── FormatError
    └── InternalError

Every error carries ``message`` and a stable ``kind``, and survives pickling.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icechunk_stream.conflict_kinds import Conflict

_SHOWN = 5


class ErrorKind(StrEnum):
    """Stable machine-readable codes of errors, with the reference library's values."""

    COMMIT_CONFLICT = "commit-conflict"
    BRANCH_UPDATE_CONFLICT = "branch-update-conflict"
    REBASE_FAILED = "rebase-failed"
    CONFIG_UPDATED = "config-updated"
    REPO_INFO_UPDATED = "repo-info-updated"
    UPDATE_ATTEMPTS_EXHAUSTED = "update-attempts-exhausted"
    NODE_NOT_FOUND = "node-not-found"
    CHUNK_NOT_FOUND = "chunk-not-found"
    KEY_NOT_FOUND = "key-not-found"
    SNAPSHOT_NOT_FOUND = "snapshot-not-found"
    NO_SNAPSHOT_AT_TIME = "no-snapshot-at-time"
    REF_NOT_FOUND = "ref-not-found"
    BRANCH_NOT_FOUND = "branch-not-found"
    TAG_NOT_FOUND = "tag-not-found"
    REPOSITORY_NOT_FOUND = "repository-not-found"
    MANIFEST_INFO_NOT_FOUND = "manifest-info-not-found"
    NODE_ALREADY_EXISTS = "node-already-exists"
    BRANCH_ALREADY_EXISTS = "branch-already-exists"
    TAG_ALREADY_EXISTS = "tag-already-exists"
    TAG_PREVIOUSLY_DELETED = "tag-previously-deleted"
    READ_ONLY_SESSION = "read-only-session"
    READ_ONLY_STORE = "read-only-store"
    READ_ONLY_STORAGE = "read-only-storage"
    READ_ONLY_REPOSITORY = "read-only-repository"
    INVALID_KEY = "invalid-key"
    INVALID_CHUNK_INDEX = "invalid-chunk-index"
    ZERO_LENGTH_CHUNK = "zero-length-chunk"
    INVALID_REF_NAME = "invalid-ref-name"
    INVALID_SNAPSHOT_ID = "invalid-snapshot-id"
    INVALID_PATH = "invalid-path"
    BAD_KEY_PREFIX = "bad-key-prefix"
    BAD_METADATA = "bad-metadata"
    NOT_AN_ARRAY = "not-an-array"
    INVALID_BYTE_RANGE = "invalid-byte-range"
    INVALID_COMMIT_CONFIGURATION = "invalid-commit-configuration"
    INVALID_ARRAY_METADATA = "invalid-array-metadata"
    INVALID_FEATURE_FLAG = "invalid-feature-flag"
    INVALID_VIRTUAL_REF = "invalid-virtual-ref"
    INVALID_CREDENTIALS = "invalid-credentials"
    NO_CONTAINER_FOR_VIRTUAL_CHUNK = "no-container-for-virtual-chunk"
    UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER = "unauthorized-virtual-chunk-container"
    EMPTY_PREFIX_CREATION = "empty-prefix-creation"
    PARENT_DIRECTORY_NOT_CLEAN = "parent-directory-not-clean"
    BAD_SNAPSHOT_CHAIN_FOR_DIFF = "bad-snapshot-chain-for-diff"
    COMMIT_NOT_ALLOWED = "commit-not-allowed"
    REARRANGE_SESSION_ONLY = "rearrange-session-only"
    NON_REARRANGE_SESSION = "non-rearrange-session"
    NO_CHANGES_TO_COMMIT = "no-changes-to-commit"
    NO_AMEND_FOR_INITIAL_COMMIT = "no-amend-for-initial-commit"
    CANNOT_DELETE_MAIN = "cannot-delete-main"
    UNCOMMITTED_CHANGES = "uncommitted-changes"
    NOT_ALLOWED = "not-allowed"
    UNIMPLEMENTED = "unimplemented"
    REBASE_TX_LOG_PRUNED = "rebase-tx-log-pruned"
    FEATURE_FLAG_DISABLED = "feature-flag-disabled"
    OBJECT_NOT_FOUND = "object-not-found"
    OBJECT_STORE = "object-store"
    IO = "io"
    STORAGE_CONFIG = "storage-config"
    CANNOT_PARSE_URL = "cannot-parse-url"
    STORAGE_OTHER = "storage-other"
    VIRTUAL_CHUNK_FETCH = "virtual-chunk-fetch"
    VIRTUAL_CHUNK_MODIFIED = "virtual-chunk-modified"
    INVALID_OBJECT_SIZE = "invalid-object-size"
    SERIALIZATION = "serialization"
    DESERIALIZATION = "deserialization"
    CONFIG_DESERIALIZATION = "config-deserialization"
    INVALID_FILE_FORMAT = "invalid-file-format"
    UNSUPPORTED_SPEC_VERSION = "unsupported-spec-version"
    UNSUPPORTED_OPERATION_FOR_VERSION = "unsupported-operation-for-version"
    SNAPSHOT_TIMESTAMP = "snapshot-timestamp"
    DUPLICATE_SNAPSHOT_ID = "duplicate-snapshot-id"
    CONFLICTING_ROWS = "conflicting-rows"
    STREAM_REWOUND = "stream-rewound"
    STREAM_GAP = "stream-gap"
    STREAM_IDENTITY = "stream-identity"
    LEDGER_MISSING = "ledger-missing"
    CHECKPOINT = "checkpoint"
    BAD_ROWS = "bad-rows"
    UNKNOWN = "unknown"


class IcechunkError(Exception):
    """Base of every error that this package raises."""

    default_kind = ErrorKind.UNKNOWN

    def __init__(self, message: str, kind: str | None = None) -> None:
        super().__init__(message, kind)
        self.message = message
        self.kind = ErrorKind(kind) if kind is not None else self.default_kind

    def __str__(self) -> str:
        return self.message


class ConflictError(IcechunkError):
    """Someone else changed what this change was based on: rebase, or start again."""

    default_kind = ErrorKind.COMMIT_CONFLICT

    def __init__(
        self,
        expected_parent: str | None = None,
        actual_parent: str | None = None,
        message: str | None = None,
        kind: str | None = None,
    ) -> None:
        text = message or (
            f"the branch is at {actual_parent}, this change is based on {expected_parent}: rebase"
            " the session, or make the change again from the new tip"
        )
        super().__init__(text, kind)
        self.args = (expected_parent, actual_parent, message, kind)
        self.expected_parent = expected_parent
        self.actual_parent = actual_parent


class RebaseFailedError(ConflictError):
    """The rebase met conflicts that its solver does not resolve.

    ``snapshot`` is the commit that the changes do not go with; the session stands before it.
    """

    default_kind = ErrorKind.REBASE_FAILED

    def __init__(self, snapshot: str, conflicts: Sequence[Conflict]) -> None:
        found = "; ".join(str(conflict) for conflict in conflicts[:_SHOWN])
        more = f"; and {len(conflicts) - _SHOWN} more" if len(conflicts) > _SHOWN else ""
        message = (
            f"the rebase met {len(conflicts)} conflicts with snapshot {snapshot}: {found}{more}."
            " Choose a solver that resolves them, or make the change again from the tip"
        )
        super().__init__(snapshot, None, message)
        self.args = (snapshot, conflicts)
        self.snapshot = snapshot
        self.conflicts = list(conflicts)


class NotFoundError(IcechunkError, KeyError):
    """Something that was asked for does not exist."""

    default_kind = ErrorKind.KEY_NOT_FOUND


class NodeNotFoundError(NotFoundError):
    """No group, array or chunk is at the path."""

    default_kind = ErrorKind.NODE_NOT_FOUND


class SnapshotNotFoundError(NotFoundError):
    """No snapshot has the id, or none existed at the time."""

    default_kind = ErrorKind.SNAPSHOT_NOT_FOUND


class RefNotFoundError(NotFoundError):
    """No branch or tag has the name."""

    default_kind = ErrorKind.REF_NOT_FOUND


class RepositoryNotFoundError(NotFoundError):
    """No Icechunk repository is at the storage location."""

    default_kind = ErrorKind.REPOSITORY_NOT_FOUND


class AlreadyExistsError(IcechunkError):
    """Something that was being created exists already."""


class ReadOnlyError(IcechunkError):
    """A write went to a read-only session, store or repository."""

    default_kind = ErrorKind.READ_ONLY_STORE


class InvalidInputError(IcechunkError, ValueError):
    """An argument, key, index or value is invalid."""

    default_kind = ErrorKind.INVALID_KEY


class LayoutError(InvalidInputError):
    """A layout of rows is wrong in itself, or does not fit the arrays that are there."""

    default_kind = ErrorKind.INVALID_ARRAY_METADATA


class SessionStateError(IcechunkError):
    """The session or repository is in a state that does not allow the operation."""


class StorageError(IcechunkError):
    """The object store or file system failed, or is misconfigured; ``key`` names the object."""

    default_kind = ErrorKind.STORAGE_OTHER

    def __init__(self, message: str, kind: str | None = None, *, key: str = "") -> None:
        super().__init__(message, kind)
        self.key = key


class ObjectNotFoundError(StorageError):
    """The object that a key names is not in the storage."""

    default_kind = ErrorKind.OBJECT_NOT_FOUND


class CommitStateUnknownError(StorageError):
    """A conditional write may or may not have taken place, or may still do so."""


class ConflictingRowsError(InvalidInputError):
    """Rows of one batch give different values to one cell, and no policy says which one counts."""

    default_kind = ErrorKind.CONFLICTING_ROWS


class StreamError(IcechunkError):
    """A batch of a stream cannot be committed without losing or repeating rows."""


class StreamRewoundError(StreamError):
    """The checkpoint went back in time, or is used by two queries: the batch is not a new one."""

    default_kind = ErrorKind.STREAM_REWOUND


class StreamGapError(StreamError):
    """Batches between the last one that was committed and this one are missing."""

    default_kind = ErrorKind.STREAM_GAP


class StreamIdentityError(StreamError):
    """Another query than the one that wrote the stream so far delivers the batch."""

    default_kind = ErrorKind.STREAM_IDENTITY


class LedgerMissingError(StreamError):
    """The branch holds nothing of the stream, whose query has committed batches before."""

    default_kind = ErrorKind.LEDGER_MISSING


class CheckpointError(StreamError):
    """A file of a query's checkpoint is missing, or not what Spark writes; ``path`` names it."""

    default_kind = ErrorKind.CHECKPOINT

    def __init__(self, message: str, kind: str | None = None, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message, kind)
        self.path = path


class BadRowsError(StreamError):
    """Rows of a batch have no place in the arrays, or values that these cannot store."""

    default_kind = ErrorKind.BAD_ROWS


class FormatError(IcechunkError):
    """Stored bytes are not what the format allows; ``key`` names the object."""

    default_kind = ErrorKind.DESERIALIZATION

    def __init__(self, message: str, kind: str | None = None, *, key: str = "") -> None:
        super().__init__(f"{key}: {message}" if key else message, kind)
        self.key = key


class InternalError(IcechunkError):
    """A bug in this package; please report it."""
