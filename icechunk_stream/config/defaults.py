"""The values that unset settings stand for."""

from __future__ import annotations

from icechunk_stream.config.conditions import (
    ManifestPreloadCondition,
    ManifestSplitCondition,
    PreloadCondition,
    SplitAnyDimension,
)
from icechunk_stream.config.fields import U32
from icechunk_stream.config.manifests import (
    ManifestConfig,
    ManifestPreloadConfig,
    ManifestSplittingConfig,
    ManifestVirtualChunkLocationCompressionConfig,
)
from icechunk_stream.config.repository import RepositoryConfig, overlay
from icechunk_stream.config.settings import (
    CachingConfig,
    CompressionAlgorithm,
    CompressionConfig,
    RepoUpdateRetryConfig,
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
)

_MEBIBYTE = 2**20
_COORDINATE_NAMES = (
    r"(?i)^(t|x|y|z|time[0-9]*|min|hour|day|week|month|year|date|datetime|step|"
    r"lat|latitude|nav_lat|lon|longitude|nav_lon|xc|yc|rlat|rlon|"
    r"lev|level|plev|isobaric|pressure|height|altitude|depth)$"
)


def default_preload_condition() -> PreloadCondition:
    """Small manifests of arrays that are named like coordinates."""
    small = ManifestPreloadCondition.num_refs(None, 1001)
    return ManifestPreloadCondition.name_matches(_COORDINATE_NAMES) & small


def default_storage_settings() -> StorageSettings:
    """What applies where a storage backend has no settings of its own."""
    return StorageSettings(
        concurrency=StorageConcurrencySettings(18, 12 * _MEBIBYTE),
        retries=StorageRetriesSettings(10, 100, 180_000),
        timeouts=StorageTimeoutSettings(),
        unsafe_use_conditional_create=True,
        unsafe_use_conditional_update=True,
        unsafe_use_metadata=True,
        minimum_size_for_multipart_upload=100 * _MEBIBYTE,
    )


def default_manifest_config() -> ManifestConfig:
    one_manifest_an_array = (
        (ManifestSplitCondition.path_matches(".*"), ((SplitAnyDimension(), U32.high),)),
    )
    return ManifestConfig(
        preload=ManifestPreloadConfig(10_000, default_preload_condition(), 50),
        splitting=ManifestSplittingConfig(one_manifest_an_array),
        virtual_chunk_location_compression=ManifestVirtualChunkLocationCompressionConfig(
            1000,
            dictionary_max_training_samples=100,
            dictionary_max_size_bytes=2048,
            compression_level=3,
        ),
        max_concurrent_manifest_fetches_during_commit=1,
    )


def default_config() -> RepositoryConfig:
    """Every default; decodes at a time, time-outs and storage classes have none."""
    return RepositoryConfig(
        inline_chunk_threshold_bytes=512,
        get_partial_values_concurrency=10,
        compression=CompressionConfig(CompressionAlgorithm.Zstd, 3),
        max_concurrent_requests=256,
        caching=CachingConfig(500_000, 15_000_000, 0, 0, 0),
        storage=default_storage_settings(),
        virtual_chunk_containers={},
        manifest=default_manifest_config(),
        repo_update_retries=RepoUpdateRetryConfig(StorageRetriesSettings(100, 50, 30_000)),
        num_updates_per_repo_info_file=1000,
    )


def with_defaults(
    config: RepositoryConfig, storage: StorageSettings | None = None
) -> RepositoryConfig:
    """A copy in which defaults fill what is unset; ``storage`` holds the backend's own ones."""
    defaults = default_config()
    if storage is not None:
        defaults.storage = overlay(default_storage_settings(), storage)
    filled = overlay(defaults, config, deep=True)
    filled.unknown = dict(config.unknown)
    return filled
