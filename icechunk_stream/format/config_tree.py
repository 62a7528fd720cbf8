"""Stored trees of settings to configuration objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, assert_never

from icechunk_stream.config import (
    AzureStore,
    GcsStore,
    HttpStore,
    InMemoryStore,
    LocalFileSystemStore,
    RepositoryConfig,
    S3CompatibleStore,
    S3Options,
    S3Store,
    TigrisStore,
    VirtualChunkContainer,
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
from icechunk_stream.format.config_conditions import decode_preload_condition, decode_split_sizes

if TYPE_CHECKING:
    from icechunk_stream.config import AnyObjectStoreConfig
    from icechunk_stream.config.fields import Kind
    from icechunk_stream.format.config_node import Node

S = TypeVar("S", bound=Settings)

_S3_STORES: dict[str, type[S3Store | S3CompatibleStore | TigrisStore]] = {
    "s3": S3Store,
    "s3_compatible": S3CompatibleStore,
    "tigris": TigrisStore,
}
_HEADERS = "headers"


def decode_config(root: Node) -> RepositoryConfig:
    """The configuration; unknown settings of the top level are kept as they are."""
    try:
        config = _decode_settings(RepositoryConfig, root)
    except InvalidInputError as error:
        raise root.error(str(error)) from None
    except RecursionError:
        raise root.error("is nested too deeply") from None
    known = RepositoryConfig.KINDS
    config.unknown = {
        name: node.value for name, node in root.entries().items() if name not in known
    }
    return config


def _decode_settings(cls: type[S], node: Node) -> S:
    entries = node.entries()
    values = {
        name: _decode_kind(kind, entries[name])
        for name, kind in cls.KINDS.items()
        if name in entries and not entries[name].is_null
    }
    # Stored containers may be older than the rules for new ones, which the constructor applies.
    late = {name: values.pop(name) for name in ("virtual_chunk_containers",) if name in values}
    settings = cls(**values)
    for name, value in late.items():
        setattr(settings, name, value)
    return settings


def _decode_kind(kind: Kind, node: Node) -> object:
    match kind:
        case IntRange():
            return node.integer(kind)
        case Flag():
            return node.flag()
        case Text():
            return node.text()
        case Choice():
            return _decode_choice(kind, node)
        case Struct(cls):
            return _decode_settings(cls, node)
        case Shaped(shape):
            return _decode_shaped(shape, node)
        case _:
            assert_never(kind)


def _decode_choice(kind: Choice, node: Node) -> object:
    variant, held = node.variant()
    if variant not in kind.names or not held.is_null:
        raise node.error(f"has the unknown variant {variant!r}")
    return kind.names[variant]


def _decode_shaped(shape: Shape, node: Node) -> object:
    match shape:
        case Shape.PRELOAD_CONDITION:
            return decode_preload_condition(node)
        case Shape.SPLIT_SIZES:
            return decode_split_sizes(node)
        case Shape.OBJECT_STORE:
            return _decode_store(node)
        case Shape.CONTAINERS:
            return {name: _decode_container(entry) for name, entry in node.entries().items()}
        case _:
            assert_never(shape)


def _decode_container(node: Node) -> VirtualChunkContainer:
    for name in ("url_prefix", "store"):
        if node.field(name).is_null:
            raise node.error(f"has no {name!r}")
    return _decode_settings(VirtualChunkContainer, node)


def _decode_store(node: Node) -> AnyObjectStoreConfig:
    variant, held = node.variant()
    if variant in _S3_STORES:
        return _S3_STORES[variant](_decode_s3_options(held))
    match variant:
        case "in_memory" if held.is_null:
            return InMemoryStore()
        case "local_file_system":
            return LocalFileSystemStore(held.text())
        case "http":
            return _decode_http(held)
        case "gcs":
            return GcsStore(_decode_texts(held))
        case "azure":
            return AzureStore(_decode_texts(held))
        case _:
            raise node.error(f"has the unknown variant {variant!r}")


def _decode_s3_options(node: Node) -> S3Options:
    for name in ("anonymous", "allow_http"):
        node.field(name).flag()
    return _decode_settings(S3Options, node)


def _decode_http(node: Node) -> HttpStore:
    entries = node.entries()
    headers = entries.pop(_HEADERS, None)
    opts = {name: entry.text() for name, entry in entries.items()}
    return HttpStore(opts, None if headers is None else _decode_texts(headers))


def _decode_texts(node: Node) -> dict[str, str]:
    return {name: entry.text() for name, entry in node.entries().items()}
