"""Everything that a session changed and has not committed: net changes, not a journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.changes.chunk_changes import ChunkChanges
from icechunk_stream.format.nodes import ArrayNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from icechunk_stream.format.chunk_refs import ChunkPayload
    from icechunk_stream.format.ids import NodeId
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.ref_tables import RefTable


@dataclass(frozen=True, slots=True)
class DeletedNode:
    """A node of the base snapshot that is gone."""

    id: NodeId
    path: str
    is_array: bool


class ChangeSet:
    """Net changes against a base snapshot.

    ``created`` holds nodes by path, with what became of them since; ``updated`` holds nodes of the
    base by id as they are now (their ``manifests`` say nothing), ``deleted`` those that are gone.
    ``chunks`` holds changed chunks by array, of created arrays too.
    """

    def __init__(self) -> None:
        self.created: dict[str, Node] = {}
        self.updated: dict[NodeId, Node] = {}
        self.deleted: dict[NodeId, DeletedNode] = {}
        self.chunks: dict[NodeId, ChunkChanges] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.created or self.updated or self.deleted or self.chunks)

    def create(self, node: Node) -> None:
        """Add a node at a path where none is."""
        self.created[node.path] = node

    def update(self, node: Node) -> None:
        """Give a node, told by its id, another document."""
        made = self.created.get(node.path)
        if made is not None and made.id == node.id:
            self.created[node.path] = node
        else:
            self.updated[node.id] = node

    def delete(self, nodes: Iterable[Node]) -> None:
        """Take nodes away, and with them every other change of them."""
        for node in nodes:
            self.chunks.pop(node.id, None)
            self.updated.pop(node.id, None)
            made = self.created.get(node.path)
            if made is not None and made.id == node.id:
                del self.created[node.path]
            else:
                is_array = isinstance(node, ArrayNode)
                self.deleted[node.id] = DeletedNode(node.id, node.path, is_array)

    def set_chunk(
        self, node: ArrayNode, index: Sequence[int], payload: ChunkPayload | None
    ) -> None:
        """Set a chunk; None deletes it."""
        self._chunks_of(node).set(index, payload)

    def set_chunks(self, node: ArrayNode, table: RefTable) -> None:
        """Set or delete many chunks."""
        if len(table):
            self._chunks_of(node).set_many(table)

    def changed_paths(self) -> list[tuple[NodeId, str]]:
        """Nodes with other documents or chunks than before."""
        updated = [(node.id, node.path) for node in list(self.updated.values())]
        return updated + [(id, chunks.path) for id, chunks in list(self.chunks.items())]

    def copy(self) -> ChangeSet:
        """A change set that can go another way from here."""
        twin = ChangeSet()
        twin.created, twin.updated = dict(self.created), dict(self.updated)
        twin.deleted = dict(self.deleted)
        twin.chunks = {id: changes.copy() for id, changes in self.chunks.items()}
        return twin

    def _chunks_of(self, node: ArrayNode) -> ChunkChanges:
        changes = self.chunks.get(node.id)
        if changes is None:
            changes = self.chunks[node.id] = ChunkChanges(node.path, len(node.shape))
        return changes
