"""A library's configuration objects as plain values."""

from __future__ import annotations

from enum import Enum
from typing import Any

# Fields by class: the compiled libraries give no other way to know them.
_FIELDS: dict[str, tuple[str, ...]] = {
    "RepositoryConfig": (
        "inline_chunk_threshold_bytes",
        "get_partial_values_concurrency",
        "compression",
        "max_concurrent_requests",
        "max_concurrent_decodes",
        "caching",
        "storage",
        "virtual_chunk_containers",
        "manifest",
        "repo_update_retries",
        "num_updates_per_repo_info_file",
    ),
    "CompressionConfig": ("algorithm", "level"),
    "CachingConfig": (
        "num_snapshot_nodes",
        "num_chunk_refs",
        "num_transaction_changes",
        "num_bytes_attributes",
        "num_bytes_chunks",
    ),
    "StorageSettings": (
        "concurrency",
        "retries",
        "timeouts",
        "unsafe_use_conditional_create",
        "unsafe_use_conditional_update",
        "unsafe_use_metadata",
        "storage_class",
        "metadata_storage_class",
        "chunks_storage_class",
        "minimum_size_for_multipart_upload",
    ),
    "StorageConcurrencySettings": (
        "max_concurrent_requests_for_object",
        "ideal_concurrent_request_size",
    ),
    "StorageRetriesSettings": ("max_tries", "initial_backoff_ms", "max_backoff_ms"),
    "StorageTimeoutSettings": (
        "connect_timeout_ms",
        "read_timeout_ms",
        "operation_timeout_ms",
        "operation_attempt_timeout_ms",
    ),
    "VirtualChunkContainer": ("name", "url_prefix", "store"),
    "S3Options": (
        "region",
        "endpoint_url",
        "anonymous",
        "allow_http",
        "force_path_style",
        "network_stream_timeout_seconds",
        "requester_pays",
        "checksum_algorithm",
    ),
    "ManifestConfig": (
        "preload",
        "splitting",
        "virtual_chunk_location_compression",
        "max_concurrent_manifest_fetches_during_commit",
    ),
    "ManifestPreloadConfig": ("max_total_refs", "preload_if", "max_arrays_to_scan"),
    "ManifestSplittingConfig": ("split_sizes",),
    "ManifestVirtualChunkLocationCompressionConfig": (
        "min_num_chunks",
        "dictionary_max_training_samples",
        "dictionary_max_size_bytes",
        "compression_level",
    ),
    "RepoUpdateRetryConfig": ("default",),
}

CONFIG_KEYS = frozenset(name for fields in _FIELDS.values() for name in fields)


def config_tree(value: Any) -> Any:
    """Plain values of a configuration object, at any depth."""
    if isinstance(value, Enum):
        return value.name.lower()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [config_tree(item) for item in value]
    if isinstance(value, dict):
        return {key: config_tree(item) for key, item in value.items()}
    return _object_tree(value)


def restricted(effective: Any, stored: Any) -> Any:
    """The settings in force, as far as the stored configuration sets them."""
    if not isinstance(stored, dict) or not isinstance(effective, dict):
        return effective
    return {
        key: restricted(effective[key], value) for key, value in stored.items() if value is not None
    }


def _object_tree(value: Any) -> Any:
    fields = _FIELDS.get(type(value).__name__)
    if fields is not None:
        return {name: config_tree(getattr(value, name)) for name in fields if hasattr(value, name)}
    if hasattr(value, "__match_args__"):
        return _variant_tree(value)
    return str(value).rsplit(".", 1)[-1].lower()  # a compiled enum has no other name


def _variant_tree(value: Any) -> list[Any]:
    """A variant of a union: its name and its values, in order. The libraries decorate the names."""
    name = type(value).__name__.rsplit("_", 1)[-1].removeprefix("Preload").removeprefix("Split")
    name = name.removesuffix("Store").removesuffix("Dimension")
    return [name, *(config_tree(getattr(value, arg)) for arg in value.__match_args__)]
