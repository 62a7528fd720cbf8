"""Splitting rules put into a stored configuration; all else stays as it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.format.config_conditions import encode_split_sizes

if TYPE_CHECKING:
    from icechunk_stream.config import SplitSizes
    from icechunk_stream.format.config_node import Node, Tree

_FETCHES = "max_concurrent_manifest_fetches_during_commit"
# Unset, the reference fetches the manifests of a cell one after the other.
_FETCHES_AT_ONCE = 16


def with_split_rules(root: Node, rules: SplitSizes) -> dict[str, Tree]:
    """The document with these rules before those that it has."""
    document = _entries(root)
    manifest = _entries(document.get("manifest"))
    splitting = _entries(manifest.get("splitting"))
    sizes = splitting.get("split_sizes")
    there = [] if sizes is None or sizes.is_null else [rule.value for rule in sizes.items()]
    encoded = [*_rules(rules), *there]
    return _values(document) | {
        "manifest": _values(manifest)
        | _fetches(manifest.get(_FETCHES))
        | {"splitting": _values(splitting) | {"split_sizes": encoded}}
    }


def _rules(rules: SplitSizes) -> list[Tree]:
    encoded = encode_split_sizes(rules)
    assert isinstance(encoded, list)
    return encoded


def _fetches(stored: Node | None) -> dict[str, Tree]:
    return {_FETCHES: _FETCHES_AT_ONCE} if stored is None or stored.is_null else {}


def _entries(node: Node | None) -> dict[str, Node]:
    return {} if node is None or node.is_null else node.entries()


def _values(entries: dict[str, Node]) -> dict[str, Tree]:
    return {name: node.value for name, node in entries.items()}
