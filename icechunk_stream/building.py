"""The nodes and manifests of one commit, made of a base snapshot and the changes on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.errors import ConflictError
from icechunk_stream.format.ids import ID12, ManifestId
from icechunk_stream.format.nodes import ArrayNode, ManifestRefs
from icechunk_stream.laying_out import Change, lay_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from icechunk_stream.changes import ChangeSet
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.snapshot import ManifestFile, Snapshot
    from icechunk_stream.laying_out import Yard
    from icechunk_stream.packing import NewManifest
    from icechunk_stream.upkeep import LaterMerge


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """All nodes of the next snapshot, and the manifests that they use."""

    nodes: tuple[Node, ...]
    files: tuple[ManifestFile, ...]
    new: tuple[NewManifest, ...]
    later: tuple[LaterMerge, ...]


def build_tree(changes: ChangeSet, yard: Yard) -> Tree:
    """Apply changes to a snapshot; of its manifests only those that have to change are read."""
    base = yard.base
    nodes = list(_next_nodes(base.snapshot, changes))
    _check_all_placed(nodes, changes)
    layout = lay_out(_changes(nodes, changes), yard)
    after = tuple(_with_refs(node, layout.refs) for _, node in nodes)
    return Tree(after, _files(base.snapshot, after, layout.files), layout.new, layout.later)


def _next_nodes(base: Snapshot, changes: ChangeSet) -> Iterator[tuple[Node, Node]]:
    """Nodes of the next snapshot, each as it was and as it will be, with its old manifests."""
    for node in base.nodes:
        if node.id not in changes.deleted:
            now = changes.updated.get(node.id, node)
            if isinstance(now, ArrayNode) and isinstance(node, ArrayNode):
                now = replace(now, manifests=node.manifests)
            yield node, now
    for node in changes.created.values():
        yield node, node


def _check_all_placed(nodes: Sequence[tuple[Node, Node]], changes: ChangeSet) -> None:
    """Changes of a node that is in no snapshot would be dropped in silence."""
    present = {node.id for _, node in nodes}
    for id, path in changes.changed_paths():
        if id not in present:
            message = f"{path} was changed here and is gone: discard the changes, and begin again"
            raise ConflictError(message=message)


def _changes(nodes: Iterable[tuple[Node, Node]], changes: ChangeSet) -> Iterator[Change]:
    """Arrays whose manifests may change."""
    for stored, node in nodes:
        if not (isinstance(stored, ArrayNode) and isinstance(node, ArrayNode)):
            continue
        chunks = changes.chunks.get(node.id)
        if chunks is not None:
            yield Change(stored, node, chunks.run(), chunks.version)
        elif node.id in changes.updated:
            yield Change(stored, node, None, None)


def _with_refs(node: Node, refs: Mapping[bytes, ManifestRefs]) -> Node:
    found = refs.get(node.id.raw)
    if found is None or not isinstance(node, ArrayNode):
        return node
    return replace(node, manifests=found)


def _files(
    base: Snapshot, nodes: Iterable[Node], new: Iterable[ManifestFile]
) -> tuple[ManifestFile, ...]:
    """The manifests that nodes use, each once."""
    known = {**base.manifest_files, **{file.id: file for file in new}}
    arrays = [node.manifests.ids for node in nodes if isinstance(node, ArrayNode)]
    used = set(np.concatenate([np.zeros(0, ID12), *arrays]).tolist())
    return tuple(known[id] for id in map(ManifestId, used) if id in known)
