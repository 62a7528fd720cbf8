"""Configuration objects to the trees that are stored; unset settings are written as null."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never, cast

from icechunk_stream.config import (
    AzureStore,
    GcsStore,
    HttpStore,
    InMemoryStore,
    LocalFileSystemStore,
    S3CompatibleStore,
    S3Store,
    TigrisStore,
)
from icechunk_stream.config.fields import (
    Choice,
    Flag,
    IntRange,
    Settings,
    Shape,
    Shaped,
    Struct,
    Text,
)
from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format.config_conditions import encode_preload_condition, encode_split_sizes
from icechunk_stream.format.config_node import Tagged
from icechunk_stream.format.flexbuffers_encode import Signed

if TYPE_CHECKING:
    from icechunk_stream.config import AnyObjectStoreConfig, RepositoryConfig, VirtualChunkContainer
    from icechunk_stream.config.conditions import PreloadCondition
    from icechunk_stream.config.fields import Kind
    from icechunk_stream.config.manifests import SplitSizes
    from icechunk_stream.format.config_node import Tree


def encode_config(config: RepositoryConfig) -> dict[str, Tree]:
    try:
        known = _encode_settings(config)
    except RecursionError:
        raise too_deep() from None
    kept = cast("dict[str, Tree]", dict(config.unknown))
    return known | {name: tree for name, tree in kept.items() if name not in known}


def too_deep() -> InvalidInputError:
    return InvalidInputError(
        "the configuration is nested too deeply; list many conditions in one or_conditions"
    )


def _encode_settings(settings: Settings) -> dict[str, Tree]:
    return {
        name: _encode_kind(kind, getattr(settings, name)) for name, kind in settings.KINDS.items()
    }


def _encode_kind(kind: Kind, value: object) -> Tree:
    if value is None:
        return None
    match kind:
        case IntRange(low) if low < 0:
            return Signed(cast("int", value))
        case IntRange() | Flag() | Text():
            return cast("Tree", value)
        case Choice(names):
            return next(name for name, member in names.items() if member is value)
        case Struct():
            return cast("Tree", _encode_settings(cast("Settings", value)))
        case Shaped(shape):
            return _encode_shaped(shape, value)
        case _:
            assert_never(kind)


def _encode_shaped(shape: Shape, value: object) -> Tree:
    match shape:
        case Shape.PRELOAD_CONDITION:
            return encode_preload_condition(cast("PreloadCondition", value))
        case Shape.SPLIT_SIZES:
            return encode_split_sizes(cast("SplitSizes", value))
        case Shape.OBJECT_STORE:
            return _encode_store(cast("AnyObjectStoreConfig", value))
        case Shape.CONTAINERS:
            containers = cast("dict[str, VirtualChunkContainer]", value)
            return {name: _tree(each) for name, each in containers.items()}
        case _:
            assert_never(shape)


def _encode_store(store: AnyObjectStoreConfig) -> Tree:
    match store:
        case InMemoryStore():
            return "in_memory"
        case LocalFileSystemStore(path):
            return Tagged("local_file_system", path)
        case S3Store(options):
            return Tagged("s3", _tree(options))
        case S3CompatibleStore(options):
            return Tagged("s3_compatible", _tree(options))
        case TigrisStore(options):
            return Tagged("tigris", _tree(options))
        case GcsStore() | AzureStore() | HttpStore():
            return _encode_options(store)
        case _:
            assert_never(store)


def _encode_options(store: GcsStore | AzureStore | HttpStore) -> Tree:
    opts: dict[str, Tree] = dict(store.opts)
    match store:
        case GcsStore():
            return Tagged("gcs", opts)
        case AzureStore():
            return Tagged("azure", opts)
        case HttpStore() if store.headers:
            return Tagged("http", {**opts, "headers": dict[str, "Tree"](store.headers)})
        case HttpStore():
            return Tagged("http", opts)
        case _:
            assert_never(store)


def _tree(settings: Settings) -> Tree:
    return cast("Tree", _encode_settings(settings))
