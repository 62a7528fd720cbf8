"""The nodes and manifests of one commit, made of a base snapshot and the changes on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icechunk_stream.errors import ConflictError
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.laying_out import Change, lay_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from icechunk_stream.changes import ChangeSet
    from icechunk_stream.format.nodes import ManifestRefs, Node
    from icechunk_stream.format.snapshot import ManifestFile, Snapshot
    from icechunk_stream.laying_out import Yard
    from icechunk_stream.packing import NewManifest
    from icechunk_stream.upkeep import LaterMerge


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """The next snapshot: its base, what it has beside that or otherwise, and what it lacks."""

    base: Snapshot
    nodes: tuple[Node, ...]
    gone: tuple[str, ...]
    files: tuple[ManifestFile, ...]
    new: tuple[NewManifest, ...]
    later: tuple[LaterMerge, ...]


def build_tree(changes: ChangeSet, yard: Yard) -> Tree:
    """Apply changes to a snapshot; of its manifests only those that have to change are read."""
    base = yard.base.snapshot
    nodes, gone = _changed_nodes(base, changes)
    _check_all_placed(nodes, changes)
    layout = lay_out(_changes(nodes, changes), yard)
    after = tuple(_with_refs(node, layout.refs) for _, node in nodes)
    files = {file.id: file for file in layout.files}
    return Tree(base, after, tuple(gone), tuple(files.values()), layout.new, layout.later)


def _changed_nodes(base: Snapshot, changes: ChangeSet) -> tuple[list[tuple[Node, Node]], list[str]]:
    """New and changed nodes, each as it was and as it will be, with its old manifests.

    Then the paths of the base where what was there is no more.
    """
    rows = base.nodes.rows_of({**changes.deleted, **changes.updated, **changes.chunks})
    nodes: list[tuple[Node, Node]] = [(node, node) for node in changes.created.values()]
    gone = []
    for id, row in rows.items():
        node = base.nodes.node(row)
        now = changes.updated.get(id, node)
        if isinstance(now, ArrayNode) and isinstance(node, ArrayNode):
            now = replace(now, manifests=node.manifests)
        if id in changes.deleted:
            gone.append(node.path)
        else:
            nodes.append((node, now))
    return nodes, gone


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
