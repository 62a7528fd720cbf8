"""Settings of manifests: preloading, splitting, compression of virtual locations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, TypeAlias, cast

from icechunk_stream.config.conditions import (
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    PreloadCondition,
    SplitCondition,
    SplitDimCondition,
    as_preload_condition,
    as_split_condition,
    as_split_dim_condition,
)
from icechunk_stream.config.fields import (
    I32,
    U16,
    U32,
    Kind,
    Settings,
    Shape,
    Shaped,
    Struct,
    check_int,
)
from icechunk_stream.errors import InvalidInputError

SplitRule: TypeAlias = tuple[SplitCondition, tuple[tuple[SplitDimCondition, int], ...]]
SplitSizes: TypeAlias = tuple[SplitRule, ...]


@dataclass(slots=True)
class ManifestPreloadConfig(Settings):
    """Which manifests are loaded as a session opens."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {
            "max_total_refs": U32,
            "preload_if": Shaped(Shape.PRELOAD_CONDITION, as_preload_condition),
            "max_arrays_to_scan": U32,
        }
    )

    max_total_refs: int | None = None
    preload_if: PreloadCondition | None = None
    max_arrays_to_scan: int | None = None


def as_split_sizes(value: object, where: str) -> SplitSizes:
    """The rules as nested tuples, in their order: the first that matches an axis decides."""
    return tuple(_as_rule(rule, where) for rule in _pairs(value, where))


def _as_rule(rule: tuple[object, object], where: str) -> SplitRule:
    condition, sizes = rule
    return as_split_condition(condition, where), tuple(
        (as_split_dim_condition(dimension, where), check_int(U32, size, f"a size of {where}"))
        for dimension, size in _pairs(sizes, where)
    )


def _pairs(value: object, where: str) -> list[tuple[object, object]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise InvalidInputError(f"{where} must be a sequence of pairs, not {value!r}")
    pairs = [tuple(pair) if isinstance(pair, tuple | list) else () for pair in value]
    if any(len(pair) != len(("condition", "sizes")) for pair in pairs):
        raise InvalidInputError(f"{where} must be a sequence of pairs")
    return cast("list[tuple[object, object]]", pairs)


@dataclass(slots=True)
class ManifestSplittingConfig(Settings):
    """How the references of an array are spread over manifests."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {"split_sizes": Shaped(Shape.SPLIT_SIZES, as_split_sizes)}
    )

    split_sizes: SplitSizes | None = None

    @staticmethod
    def from_dict(
        split_sizes: Mapping[ManifestSplitCondition, Mapping[ManifestSplitDimCondition, int]],
    ) -> ManifestSplittingConfig:
        return ManifestSplittingConfig(as_split_sizes(split_sizes, "split_sizes"))

    def to_dict(self) -> dict[SplitCondition, dict[SplitDimCondition, int]]:
        return {condition: dict(sizes) for condition, sizes in self.split_sizes or ()}


@dataclass(slots=True)
class ManifestVirtualChunkLocationCompressionConfig(Settings):
    """When and how the URLs of virtual chunks are compressed."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {
            "min_num_chunks": U16,
            "dictionary_max_training_samples": U16,
            "dictionary_max_size_bytes": U32,
            "compression_level": I32,
        }
    )

    min_num_chunks: int | None = None
    dictionary_max_training_samples: int | None = field(default=None, kw_only=True)
    dictionary_max_size_bytes: int | None = field(default=None, kw_only=True)
    compression_level: int | None = field(default=None, kw_only=True)


@dataclass(slots=True)
class ManifestConfig(Settings):
    """How manifests are preloaded, split and written."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {
            "preload": Struct(ManifestPreloadConfig, whole=True),
            "splitting": Struct(ManifestSplittingConfig, whole=True),
            "virtual_chunk_location_compression": Struct(
                ManifestVirtualChunkLocationCompressionConfig
            ),
            "max_concurrent_manifest_fetches_during_commit": U16,
        }
    )

    preload: ManifestPreloadConfig | None = None
    splitting: ManifestSplittingConfig | None = None
    virtual_chunk_location_compression: ManifestVirtualChunkLocationCompressionConfig | None = None
    max_concurrent_manifest_fetches_during_commit: int | None = None
