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
    ├── SessionStateError
    ├── StorageError
    │   ├── CommitStateUnknownError
    │   └── ObjectNotFoundError
    ├── FormatError
    └── InternalError

Every error carries ``message`` and a stable ``kind``, and survives pickling.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorKind(StrEnum):
    """Stable machine-readable codes of errors, with the reference library's values."""

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
    READ_ONLY_SESSION = "read-only-session"
    READ_ONLY_STORE = "read-only-store"
    READ_ONLY_STORAGE = "read-only-storage"
    INVALID_KEY = "invalid-key"
    INVALID_CHUNK_INDEX = "invalid-chunk-index"
    INVALID_REF_NAME = "invalid-ref-name"
    INVALID_SNAPSHOT_ID = "invalid-snapshot-id"
    INVALID_PATH = "invalid-path"
    BAD_KEY_PREFIX = "bad-key-prefix"
    NOT_AN_ARRAY = "not-an-array"
    INVALID_BYTE_RANGE = "invalid-byte-range"
    INVALID_VIRTUAL_REF = "invalid-virtual-ref"
    INVALID_CREDENTIALS = "invalid-credentials"
    NO_CONTAINER_FOR_VIRTUAL_CHUNK = "no-container-for-virtual-chunk"
    UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER = "unauthorized-virtual-chunk-container"
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


class RebaseFailedError(ConflictError):
    """The rebase met conflicts that its solver does not resolve."""


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


class FormatError(IcechunkError):
    """Stored bytes are not what the format allows; ``key`` names the object."""

    default_kind = ErrorKind.DESERIALIZATION

    def __init__(self, message: str, kind: str | None = None, *, key: str = "") -> None:
        super().__init__(f"{key}: {message}" if key else message, kind)
        self.key = key

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_format_error, (self.message, str(self.kind), self.key))


class InternalError(IcechunkError):
    """A bug in this package; please report it."""


def _rebuild_format_error(message: str, kind: str, key: str) -> FormatError:
    error = FormatError(message, kind)
    error.key = key
    return error
