"""Settings of compression, caching, storage and retries, with the reference library's names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from icechunk_stream.config.fields import (
    U8,
    U16_POSITIVE,
    U32,
    U64,
    U64_POSITIVE,
    Choice,
    Flag,
    Kind,
    Settings,
    Struct,
    Text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class CompressionAlgorithm(Enum):
    """How metadata files are compressed."""

    Zstd = 0

    @staticmethod
    def default() -> CompressionAlgorithm:
        return CompressionAlgorithm.Zstd


@dataclass(slots=True)
class CompressionConfig(Settings):
    """How metadata files are compressed."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {"algorithm": Choice({"zstd": CompressionAlgorithm.Zstd}), "level": U8}
    )

    algorithm: CompressionAlgorithm | None = None
    level: int | None = None

    @staticmethod
    def default() -> CompressionConfig:
        return CompressionConfig()


@dataclass(slots=True)
class CachingConfig(Settings):
    """How much of each kind of object is kept in memory."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {
            "num_snapshot_nodes": U64,
            "num_chunk_refs": U64,
            "num_transaction_changes": U64,
            "num_bytes_attributes": U64,
            "num_bytes_chunks": U64,
        }
    )

    num_snapshot_nodes: int | None = None
    num_chunk_refs: int | None = None
    num_transaction_changes: int | None = None
    num_bytes_attributes: int | None = None
    num_bytes_chunks: int | None = None


@dataclass(slots=True)
class StorageConcurrencySettings(Settings):
    """How one large object is fetched in parallel pieces."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {
            "max_concurrent_requests_for_object": U16_POSITIVE,
            "ideal_concurrent_request_size": U64_POSITIVE,
        }
    )

    max_concurrent_requests_for_object: int | None = None
    ideal_concurrent_request_size: int | None = None


@dataclass(slots=True)
class StorageRetriesSettings(Settings):
    """How failed requests are tried again; ``max_tries`` counts the first one."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {"max_tries": U16_POSITIVE, "initial_backoff_ms": U32, "max_backoff_ms": U32}
    )

    max_tries: int | None = None
    initial_backoff_ms: int | None = None
    max_backoff_ms: int | None = None


@dataclass(slots=True)
class StorageTimeoutSettings(Settings):
    """Time limits of requests; unset ones are the client's own."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {
            "connect_timeout_ms": U32,
            "read_timeout_ms": U32,
            "operation_timeout_ms": U32,
            "operation_attempt_timeout_ms": U32,
        }
    )

    connect_timeout_ms: int | None = None
    read_timeout_ms: int | None = None
    operation_timeout_ms: int | None = None
    operation_attempt_timeout_ms: int | None = None


@dataclass(slots=True)
class StorageSettings(Settings):
    """How the object store is used."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {
            "concurrency": Struct(StorageConcurrencySettings),
            "retries": Struct(StorageRetriesSettings),
            "timeouts": Struct(StorageTimeoutSettings),
            "unsafe_use_conditional_update": Flag(),
            "unsafe_use_conditional_create": Flag(),
            "unsafe_use_metadata": Flag(),
            "storage_class": Text(),
            "metadata_storage_class": Text(),
            "chunks_storage_class": Text(),
            "minimum_size_for_multipart_upload": U64,
        }
    )

    concurrency: StorageConcurrencySettings | None = None
    retries: StorageRetriesSettings | None = None
    unsafe_use_conditional_create: bool | None = None
    unsafe_use_conditional_update: bool | None = None
    unsafe_use_metadata: bool | None = None
    storage_class: str | None = None
    metadata_storage_class: str | None = None
    chunks_storage_class: str | None = None
    minimum_size_for_multipart_upload: int | None = None
    timeouts: StorageTimeoutSettings | None = None


@dataclass(slots=True)
class RepoUpdateRetryConfig(Settings):
    """How an update of the repository's refs is tried again after a lost race."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {"default": Struct(StorageRetriesSettings)}
    )

    default: StorageRetriesSettings | None = None
