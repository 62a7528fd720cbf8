"""Icechunk repositories in pure Python, under the reference library's names.

``import icechunk_stream as icechunk`` runs code that was written for ``icechunk``, as far as the
README says that this release goes.
"""

from icechunk_stream.config import (
    CachingConfig,
    ChecksumAlgorithm,
    CompressionAlgorithm,
    CompressionConfig,
    ManifestConfig,
    ManifestPreloadCondition,
    ManifestPreloadConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
    ManifestVirtualChunkLocationCompressionConfig,
    ObjectStoreConfig,
    RepositoryConfig,
    S3Options,
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
    VirtualChunkContainer,
    azure_store,
    gcs_store,
    http_store,
    local_filesystem_store,
    s3_store,
)
from icechunk_stream.credentials import (
    AnyCredential,
    AnyS3Credential,
    Credentials,
    S3Credentials,
    S3StaticCredentials,
    containers_credentials,
    s3_anonymous_credentials,
    s3_credentials,
    s3_from_env_credentials,
    s3_refreshable_credentials,
    s3_static_credentials,
)
from icechunk_stream.errors import (
    AlreadyExistsError,
    CommitStateUnknownError,
    ConflictError,
    ErrorKind,
    FormatError,
    IcechunkError,
    InternalError,
    InvalidInputError,
    NodeNotFoundError,
    NotFoundError,
    ObjectNotFoundError,
    ReadOnlyError,
    RebaseFailedError,
    RefNotFoundError,
    RepositoryNotFoundError,
    SessionStateError,
    SnapshotNotFoundError,
    StorageError,
)
from icechunk_stream.info import (
    ChunkType,
    FeatureFlag,
    ManifestFileInfo,
    RepoAvailability,
    RepoStatus,
    SessionMode,
    SnapshotInfo,
    SpecVersion,
    Update,
    UpdateType,
)
from icechunk_stream.repository import Repository
from icechunk_stream.session import Session
from icechunk_stream.storage import (
    Storage,
    in_memory_storage,
    local_filesystem_storage,
    r2_storage,
    s3_storage,
    tigris_storage,
)
from icechunk_stream.storage.azure import azure_storage
from icechunk_stream.storage.gcs import gcs_storage
from icechunk_stream.storage.http import http_storage
from icechunk_stream.store import IcechunkStore
from icechunk_stream.version import VERSION as __version__


def spec_version() -> SpecVersion:
    """The newest version of the Icechunk format that this package reads."""
    return SpecVersion.current()


def supported_spec_versions() -> list[SpecVersion]:
    """Versions of the Icechunk format that this package reads."""
    return [SpecVersion.v2, SpecVersion.v1]


__all__ = [
    "AlreadyExistsError",
    "AnyCredential",
    "AnyS3Credential",
    "CachingConfig",
    "ChecksumAlgorithm",
    "ChunkType",
    "CommitStateUnknownError",
    "CompressionAlgorithm",
    "CompressionConfig",
    "ConflictError",
    "Credentials",
    "ErrorKind",
    "FeatureFlag",
    "FormatError",
    "IcechunkError",
    "IcechunkStore",
    "InternalError",
    "InvalidInputError",
    "ManifestConfig",
    "ManifestFileInfo",
    "ManifestPreloadCondition",
    "ManifestPreloadConfig",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ManifestSplittingConfig",
    "ManifestVirtualChunkLocationCompressionConfig",
    "NodeNotFoundError",
    "NotFoundError",
    "ObjectNotFoundError",
    "ObjectStoreConfig",
    "ReadOnlyError",
    "RebaseFailedError",
    "RefNotFoundError",
    "RepoAvailability",
    "RepoStatus",
    "Repository",
    "RepositoryConfig",
    "RepositoryNotFoundError",
    "S3Credentials",
    "S3Options",
    "S3StaticCredentials",
    "Session",
    "SessionMode",
    "SessionStateError",
    "SnapshotInfo",
    "SnapshotNotFoundError",
    "SpecVersion",
    "Storage",
    "StorageConcurrencySettings",
    "StorageError",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "Update",
    "UpdateType",
    "VirtualChunkContainer",
    "__version__",
    "azure_storage",
    "azure_store",
    "containers_credentials",
    "gcs_storage",
    "gcs_store",
    "http_storage",
    "http_store",
    "in_memory_storage",
    "local_filesystem_storage",
    "local_filesystem_store",
    "r2_storage",
    "s3_anonymous_credentials",
    "s3_credentials",
    "s3_from_env_credentials",
    "s3_refreshable_credentials",
    "s3_static_credentials",
    "s3_storage",
    "s3_store",
    "spec_version",
    "supported_spec_versions",
    "tigris_storage",
]
