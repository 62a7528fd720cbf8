"""The configuration of a repository, and how two of them are merged."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, TypeVar

from icechunk_stream.config.containers import validate_container
from icechunk_stream.config.fields import (
    U16,
    Kind,
    Settings,
    Shape,
    Shaped,
    Struct,
    Text,
    check_instance,
    describe,
)
from icechunk_stream.config.manifests import ManifestConfig
from icechunk_stream.config.object_stores import VirtualChunkContainer, as_containers
from icechunk_stream.config.redact import redact_url
from icechunk_stream.config.settings import (
    CachingConfig,
    CompressionConfig,
    RepoUpdateRetryConfig,
    StorageSettings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

S = TypeVar("S", bound=Settings)


@dataclass(slots=True, repr=False)
class RepositoryConfig(Settings):
    """The settings of a repository; None is unset, which a default or a stored value fills.

    ``unknown`` holds the top-level settings of a newer library, so that rewriting a stored
    configuration keeps them.
    """

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {
            "inline_chunk_threshold_bytes": U16,
            "get_partial_values_concurrency": U16,
            "compression": Struct(CompressionConfig),
            "max_concurrent_requests": U16,
            "max_concurrent_decodes": U16,
            "caching": Struct(CachingConfig),
            "storage": Struct(StorageSettings),
            "virtual_chunk_containers": Shaped(Shape.CONTAINERS, as_containers),
            "manifest": Struct(ManifestConfig),
            "previous_file": Text(),
            "repo_update_retries": Struct(RepoUpdateRetryConfig),
            "num_updates_per_repo_info_file": U16,
        }
    )

    inline_chunk_threshold_bytes: int | None = None
    get_partial_values_concurrency: int | None = None
    compression: CompressionConfig | None = None
    max_concurrent_requests: int | None = None
    caching: CachingConfig | None = None
    storage: StorageSettings | None = None
    virtual_chunk_containers: dict[str, VirtualChunkContainer] | None = None
    manifest: ManifestConfig | None = None
    repo_update_retries: RepoUpdateRetryConfig | None = None
    num_updates_per_repo_info_file: int | None = None
    max_concurrent_decodes: int | None = None
    previous_file: str | None = field(default=None, kw_only=True)
    unknown: Mapping[str, object] = field(default_factory=dict, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        for container in (self.virtual_chunk_containers or {}).values():
            validate_container(container)

    def __repr__(self) -> str:
        containers = self.virtual_chunk_containers
        if containers is not None:
            containers = {redact_url(key): each for key, each in containers.items()}
        return describe(self, virtual_chunk_containers=containers)

    @staticmethod
    def default() -> RepositoryConfig:
        return RepositoryConfig()

    def get_virtual_chunk_container(self, name: str) -> VirtualChunkContainer | None:
        """The container under this URL prefix, or with this name."""
        containers = self.virtual_chunk_containers or {}
        if name in containers:
            return containers[name]
        return next((each for each in containers.values() if each.name == name), None)

    def set_virtual_chunk_container(self, cont: VirtualChunkContainer) -> None:
        """Add a container, in place of one with the same name or URL prefix."""
        validate_container(check_instance(VirtualChunkContainer, cont, "cont"))
        kept = {
            key: each
            for key, each in (self.virtual_chunk_containers or {}).items()
            if cont.name is None or each.name != cont.name
        }
        self.virtual_chunk_containers = {**kept, cont.url_prefix: cont}

    def clear_virtual_chunk_containers(self) -> None:
        self.virtual_chunk_containers = {}

    def merge(self, other: RepositoryConfig) -> RepositoryConfig:
        """A new configuration: what ``other`` sets wins, field by field.

        Containers, preloading and splitting are taken as a whole from ``other`` if it sets them.
        """
        merged = overlay(self, check_instance(RepositoryConfig, other, "other"))
        merged.unknown = {**self.unknown, **other.unknown}
        return merged


def overlay(base: S, top: S, *, deep: bool = False) -> S:
    """A copy of ``base`` with what ``top`` sets; ``deep`` also fills gaps of whole structs."""
    merged = copy.deepcopy(base)
    for name, kind in base.KINDS.items():
        value = getattr(top, name)
        if value is not None:
            below = getattr(base, name)
            setattr(merged, name, _overlay_value(kind, below, value, deep=deep))
    return merged


def _overlay_value(kind: Kind, below: object, value: object, *, deep: bool) -> object:
    if isinstance(kind, Struct) and isinstance(below, Settings) and (deep or not kind.whole):
        return overlay(below, check_instance(type(below), value, "merge"), deep=deep)
    return copy.deepcopy(value)
