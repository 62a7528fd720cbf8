"""The configuration inside of the ``repo`` object: one FlexBuffers document."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from icechunk_stream.format.config_conditions import encode_split_sizes
from icechunk_stream.format.config_encode import encode_config, too_deep
from icechunk_stream.format.config_node import Node, Plain, Tagged, resolve
from icechunk_stream.format.config_tree import decode_config
from icechunk_stream.format.flexbuffers import decode_flexbuffer, encode_flexbuffer

if TYPE_CHECKING:
    from icechunk_stream.config import RepositoryConfig, SplitSizes
    from icechunk_stream.format.config_node import Tree
    from icechunk_stream.format.json_value import Json

Bytes: TypeAlias = "bytes | bytearray | memoryview"

# A condition inside of another one takes two levels here, a map and a list.
MAX_DEPTH = 300


def decode_config_flexbuffer(data: Bytes, key: str) -> RepositoryConfig:
    """The stored configuration; raises ``FormatError`` that names ``key``."""
    return decode_config(config_flexbuffer_root(data, key))


def encode_config_flexbuffer(config: RepositoryConfig) -> bytes:
    """The configuration as the reference library reads it, and as it would write it."""
    return config_flexbuffer(encode_config(config))


def config_flexbuffer_root(data: Bytes, key: str) -> Node:
    """The stored document, whatever it holds; raises ``FormatError`` that names ``key``."""
    tree = cast("Tree", decode_flexbuffer(data, where=key, max_depth=MAX_DEPTH))
    return Node(tree, key, tagged=False)


def config_flexbuffer(tree: dict[str, Tree]) -> bytes:
    """The bytes of a document."""
    return encode_flexbuffer(_plain(tree, MAX_DEPTH))


def plain_split_sizes(rules: SplitSizes) -> Json:
    """Splitting rules as plain lists and maps, as the reference has them in metadata."""
    return _plain(encode_split_sizes(rules), MAX_DEPTH)


def _plain(tree: Tree, depth: int) -> Json:
    if depth < 0:
        raise too_deep()
    match tree:
        case Tagged(variant, value):
            return {variant: _plain(value, depth - 1)}
        case Plain():
            return resolve(tree)
        case dict():
            return {name: _plain(value, depth - 1) for name, value in tree.items()}
        case list():
            return [_plain(item, depth - 1) for item in tree]
        case _:
            return tree
