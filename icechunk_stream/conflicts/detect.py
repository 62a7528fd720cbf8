"""Which changes of a session do not go with a commit of someone else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from icechunk_stream.conflict_kinds import Conflict, ConflictType
from icechunk_stream.format.ids import NodeId
from icechunk_stream.format.nodes import ArrayNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.changes import ChangeSet, ChunkChanges
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.transaction_log import Coordinates, Ids, TransactionLog


class NodesByPath(Protocol):
    """Nodes of the snapshot that a commit made."""

    def get(self, path: str) -> Node | None: ...


def find_conflicts(ours: ChangeSet, log: TransactionLog, theirs: NodesByPath) -> list[Conflict]:
    """Every conflict of our changes with one log, in a fixed order of kinds."""
    if log.moved_nodes:
        return [Conflict(ConflictType.MoveOperationCannotBeRebased, "")]
    return [
        *_taken_places(ours, theirs),
        *_places_in_arrays(ours, theirs),
        *_updates_of_updated(ours, log),
        *_updates_of_deleted(ours, log),
        *_chunks_of_deleted(ours, log),
        *_chunks_of_updated(ours, log),
        *_chunks_of_both(ours, log),
        *_deletes_of_updated(ours, log, theirs),
    ]


def chunks_of_both(ours: ChangeSet, log: TransactionLog) -> Iterator[tuple[NodeId, Coordinates]]:
    """Chunks that were changed on both sides, by array."""
    for id, changes in list(ours.chunks.items()):
        changed = log.updated_chunks.get(id)
        if changed is not None and len(both := _shared(changes, changed)):
            yield id, both


def gone_nodes(ours: ChangeSet, theirs: NodesByPath) -> Iterator[Conflict]:
    """Changes of nodes and chunks that have no place there, whatever became of it."""
    for node in list(ours.updated.values()):
        if not _holds(theirs, node.path, node.id):
            yield Conflict(_update_of_deleted(node), node.path)
    new = {node.id for node in list(ours.created.values())}
    for id, changes in list(ours.chunks.items()):
        if id in new:
            continue
        found = theirs.get(changes.path)
        if not isinstance(found, ArrayNode) or found.id != id:
            yield Conflict(ConflictType.ChunksUpdatedInDeletedArray, changes.path)
        elif id not in ours.updated and not _has_place(found, changes):
            yield Conflict(ConflictType.ChunksUpdatedInUpdatedArray, changes.path)


def _taken_places(ours: ChangeSet, theirs: NodesByPath) -> Iterator[Conflict]:
    """A node that takes the place of one that we deleted meets it in their snapshot."""
    replaced = {node.path: node.id for node in list(ours.deleted.values())}
    for path in list(ours.created):
        found = theirs.get(path)
        if found is not None and found.id != replaced.get(path):
            yield Conflict(ConflictType.NewNodeConflictsWithExistingNode, path)


def _places_in_arrays(ours: ChangeSet, theirs: NodesByPath) -> Iterator[Conflict]:
    """The path of such a conflict is that of the array."""
    arrays: dict[str, bool] = {}
    for path in list(ours.created):
        for above in _ancestors(path):
            if above not in arrays:
                arrays[above] = isinstance(theirs.get(above), ArrayNode)
            if arrays[above]:
                yield Conflict(ConflictType.NewNodeInInvalidGroup, above)


def _updates_of_updated(ours: ChangeSet, log: TransactionLog) -> Iterator[Conflict]:
    for node in _hit(ours, log.updated_arrays, log.updated_groups):
        yield Conflict(ConflictType.ZarrMetadataDoubleUpdate, node.path)


def _updates_of_deleted(ours: ChangeSet, log: TransactionLog) -> Iterator[Conflict]:
    for node in _hit(ours, log.deleted_arrays, log.deleted_groups):
        yield Conflict(_update_of_deleted(node), node.path)


def _chunks_of_deleted(ours: ChangeSet, log: TransactionLog) -> Iterator[Conflict]:
    deleted = _set_of(log.deleted_arrays)
    for id, changes in list(ours.chunks.items()):
        if id.raw in deleted:
            yield Conflict(ConflictType.ChunksUpdatedInDeletedArray, changes.path)


def _chunks_of_updated(ours: ChangeSet, log: TransactionLog) -> Iterator[Conflict]:
    updated = _set_of(log.updated_arrays)
    for id, changes in list(ours.chunks.items()):
        if id.raw in updated:
            yield Conflict(ConflictType.ChunksUpdatedInUpdatedArray, changes.path)


def _chunks_of_both(ours: ChangeSet, log: TransactionLog) -> Iterator[Conflict]:
    for id, both in chunks_of_both(ours, log):
        yield Conflict(ConflictType.ChunkDoubleUpdate, ours.chunks[id].path, both.tolist())


def _deletes_of_updated(
    ours: ChangeSet, log: TransactionLog, theirs: NodesByPath
) -> Iterator[Conflict]:
    """The node that counts is the one that their snapshot has at the path."""
    updated = _set_of(log.updated_arrays) | {id.raw for id in log.updated_chunks}
    groups = _set_of(log.updated_groups)
    if not (updated or groups):
        return
    deleted = list(ours.deleted.values())
    for gone in sorted(deleted, key=lambda node: (not node.is_array, node.path)):
        found = theirs.get(gone.path)
        if found is None:
            continue
        if gone.is_array and found.id.raw in updated:
            yield Conflict(ConflictType.DeleteOfUpdatedArray, gone.path)
        elif not gone.is_array and found.id.raw in groups:
            yield Conflict(ConflictType.DeleteOfUpdatedGroup, gone.path)


def _update_of_deleted(node: Node) -> ConflictType:
    if isinstance(node, ArrayNode):
        return ConflictType.ZarrMetadataUpdateOfDeletedArray
    return ConflictType.ZarrMetadataUpdateOfDeletedGroup


def _hit(ours: ChangeSet, arrays: Ids, groups: Ids) -> Iterator[Node]:
    """Nodes that we updated and that are in their lists, arrays first."""
    if not ours.updated:
        return
    for ids in (arrays, groups):
        for id in ids.tolist():
            node = ours.updated.get(NodeId(id))
            if node is not None:
                yield node


def _has_place(array: ArrayNode, changes: ChunkChanges) -> bool:
    """Whether all changed chunks are in the grid of an array."""
    indices = changes.run().table.indices
    if len(array.grid) != changes.rank or not len(indices):
        return len(array.grid) == changes.rank
    highest = indices.max(axis=0).tolist()
    return all(top < count for top, count in zip(highest, array.grid, strict=True))


def _shared(changes: ChunkChanges, changed: Coordinates) -> Coordinates:
    if not len(changed) or changed.shape[1] != changes.rank:
        return changed[:0]
    return changed[changes.run().holds(changed)]


def _holds(theirs: NodesByPath, path: str, id: NodeId) -> bool:
    found = theirs.get(path)
    return found is not None and found.id == id


def _ancestors(path: str) -> Iterator[str]:
    """Paths above one, the nearest first, without the root."""
    above = path.rpartition("/")[0]
    while above:
        yield above
        above = above.rpartition("/")[0]


def _set_of(ids: Ids) -> set[bytes]:
    return set(ids.tolist())
