"""A snapshot as a session sees it: with what it changed and has not committed."""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.changes import Unchanged
from icechunk_stream.format.boxes import inside
from icechunk_stream.format.chunk_refs import kind_of
from icechunk_stream.format.paths import is_child
from icechunk_stream.format.ref_rows import DELETED, chosen_rows
from icechunk_stream.format.ref_tables import RefTable
from icechunk_stream.format.ref_view import TableView
from icechunk_stream.reading import SnapshotReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from icechunk_stream.changes import ChangeSet
    from icechunk_stream.changes.runs import Run
    from icechunk_stream.format.chunk_refs import ChunkPayload, RefColumns, RefKind
    from icechunk_stream.format.nodes import ArrayNode, Node
    from icechunk_stream.format.ref_view import RefView
    from icechunk_stream.reading import Far, NodesByPath


class OverlayNodes:
    """Nodes of a snapshot and of the changes on it, in the order of their paths' bytes."""

    def __init__(self, base: NodesByPath, changes: ChangeSet) -> None:
        self._base = base
        self._changes = changes

    def __iter__(self) -> Iterator[Node]:
        return iter(self.below("/"))

    def get(self, path: str) -> Node | None:
        created = self._changes.created.get(path)
        return self._now(self._base.get(path)) if created is None else created

    def below(self, path: str) -> Iterator[Node]:
        """The node at the path, if any, and all nodes under it."""
        prefix = path if path == "/" else path + "/"
        created = list(self._changes.created.values())
        new = [node for node in created if node.path == path or node.path.startswith(prefix)]
        return self._merged(self._base.below(path), new)

    def children(self, path: str) -> Iterator[Node]:
        """The nodes directly below the path."""
        created = list(self._changes.created.values())
        new = [node for node in created if is_child(node.path, path)]
        return self._merged(self._base.children(path), new)

    def _merged(self, stored: Iterable[Node], new: list[Node]) -> Iterator[Node]:
        kept = (node for node in map(self._now, stored) if node is not None)
        return merge(kept, sorted(new, key=_in_order), key=_in_order) if new else kept

    def _now(self, node: Node | None) -> Node | None:
        """What became of a node of the snapshot."""
        if node is None or node.id in self._changes.deleted:
            return None
        return self._changes.updated.get(node.id, node)


def _in_order(node: Node) -> bytes:
    return node.path.encode()


class OverlayReader(SnapshotReader):
    """Everything that a snapshot and the changes on it hold, by path and chunk index."""

    def __init__(self, base: SnapshotReader, changes: ChangeSet) -> None:
        super().__init__(base.assets, base.snapshot, base.containers)
        self._changes = changes
        self._base = base
        self._nodes = OverlayNodes(base.nodes, changes)

    @property
    def nodes(self) -> NodesByPath:
        return self._nodes

    def payload(self, node: ArrayNode, index: Sequence[int]) -> ChunkPayload | None:
        changed = self._changed(node, index)
        if changed is not Unchanged.UNCHANGED:
            return changed
        return self._base.payload(self._stored(node), index)

    def kind(self, node: ArrayNode, index: Sequence[int]) -> RefKind | None:
        changed = self._changed(node, index)
        if changed is not Unchanged.UNCHANGED:
            return None if changed is None else kind_of(changed)
        return self._base.kind(self._stored(node), index)

    def near_payload(self, node: ArrayNode, index: Sequence[int]) -> ChunkPayload | Far | None:
        changed = self._changed(node, index)
        if changed is not Unchanged.UNCHANGED:
            return changed
        return self._base.near_payload(self._stored(node), index)

    def all_columns(self, node: ArrayNode) -> Iterator[RefView]:
        changes = self._changes.chunks.get(node.id)
        run = None if changes is None else changes.run()
        stored = self._stored(node)
        for number in range(len(stored.manifests)):
            yield _without(self._base.columns(stored, number), run, node)
        if run is not None and len(run):
            table = run.table
            # An array that shrank keeps what was written before: it may grow again.
            kept = (table.kinds != DELETED) & inside(table.indices, node.grid)
            yield TableView(chosen_rows(table, kept))

    def _changed(self, node: ArrayNode, index: Sequence[int]) -> ChunkPayload | Unchanged | None:
        if not node.has_chunk(index):
            return None
        changes = self._changes.chunks.get(node.id)
        return Unchanged.UNCHANGED if changes is None else changes.get(index)

    def _stored(self, node: ArrayNode) -> ArrayNode:
        """The array with the manifests and the grid that the snapshot gives it."""
        if node.id not in self._changes.updated:
            return node
        return self._base.array(node.path)


def _without(columns: RefColumns, run: Run | None, node: ArrayNode) -> RefView:
    """Stored references that were not changed and that a smaller grid still has."""
    fits = all(bound <= size for bound, size in zip(columns.space.bounds, node.grid, strict=True))
    if fits and run is None:
        return columns
    indices = columns.indices()
    kept = inside(indices, node.grid)
    if run is not None:
        kept &= ~run.holds(indices)
    return columns if kept.all() else TableView(RefTable.of(columns, np.flatnonzero(kept)))
