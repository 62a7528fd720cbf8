"""Detector and solvers on change sets and logs made by hand."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from icechunk_stream.changes import ChangeSet
from icechunk_stream.conflict_kinds import Conflict, ConflictType
from icechunk_stream.conflicts import (
    BasicConflictSolver,
    ConflictDetector,
    Patched,
    Unsolvable,
    VersionSelection,
    find_conflicts,
    gone_nodes,
)
from icechunk_stream.format.chunk_refs import InlineChunk
from icechunk_stream.format.ids import ID8, ID12, INITIAL_SNAPSHOT, NodeId
from icechunk_stream.format.nodes import ArrayNode, Dimension, GroupNode, ManifestRefs, NodeType
from icechunk_stream.format.ref_rows import deletions
from icechunk_stream.format.transaction_log import Move, decode_transaction_log
from icechunk_stream.format.transaction_log_encode import LogContents, encode_transaction_log

if TYPE_CHECKING:
    from icechunk_stream.conflicts import ConflictSolver
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.transaction_log import TransactionLog

CHUNK = InlineChunk(b"\1")
NO_MANIFESTS = ManifestRefs(np.zeros(0, ID12), np.zeros((0, 1, 2), np.uint32))


@dataclass(frozen=True)
class Theirs:
    nodes: dict[str, Node]

    def get(self, path: str) -> Node | None:
        return self.nodes.get(path)


def array(number: int, path: str, *grid: int) -> ArrayNode:
    shape = tuple(Dimension(size, size) for size in grid or (4,))
    return ArrayNode(NodeId(number.to_bytes(8, "big")), path, b"{}", shape, None, NO_MANIFESTS)


def group(number: int, path: str) -> GroupNode:
    return GroupNode(NodeId(number.to_bytes(8, "big")), path, b"{}")


A, B, G, H = array(1, "/a"), array(2, "/g/b"), group(3, "/g"), group(4, "/h")
THEIRS = Theirs({node.path: node for node in (A, B, G, H)})
EMPTY = Theirs({})


def log(**parts: Any) -> TransactionLog:
    """A log as it is read: nodes for the lists, (node, indices) for chunks."""
    lists = {
        name: np.frombuffer(b"".join(node.id.raw for node in nodes), ID8)
        for name, nodes in parts.items()
        if name not in ("chunks", "moves")
    }
    chunks = {
        node.id: np.array(indices, np.uint32).reshape(len(indices), -1)
        for node, indices in parts.get("chunks", ())
    }
    moves = parts.get("moves", ())
    made = LogContents(INITIAL_SNAPSHOT, **lists, updated_chunks=chunks, moved_nodes=moves)
    return decode_transaction_log(encode_transaction_log(made, 2), "transactions/log")


def creating(*nodes: Node) -> ChangeSet:
    changes = ChangeSet()
    for node in nodes:
        changes.create(node)
    return changes


def updating(*nodes: Node) -> ChangeSet:
    changes = ChangeSet()
    for node in nodes:
        changes.update(node)
    return changes


def deleting(*nodes: Node) -> ChangeSet:
    changes = ChangeSet()
    changes.delete(nodes)
    return changes


def writing(node: ArrayNode, *indices: tuple[int, ...]) -> ChangeSet:
    changes = ChangeSet()
    for index in indices:
        changes.set_chunk(node, index, CHUNK)
    return changes


K = ConflictType
CASES = {
    "new node, where they have one": (
        creating(group(9, "/h")),
        log(new_groups=[H]),
        [Conflict(K.NewNodeConflictsWithExistingNode, "/h")],
    ),
    "new node, below an array of theirs": (
        creating(group(9, "/a/x/y")),
        log(new_arrays=[A]),
        [Conflict(K.NewNodeInInvalidGroup, "/a")],
    ),
    "array updated twice": (
        updating(A),
        log(updated_arrays=[A]),
        [Conflict(K.ZarrMetadataDoubleUpdate, "/a")],
    ),
    "group updated twice": (
        updating(G),
        log(updated_groups=[G]),
        [Conflict(K.ZarrMetadataDoubleUpdate, "/g")],
    ),
    "array updated that they deleted": (
        updating(A),
        log(deleted_arrays=[A]),
        [Conflict(K.ZarrMetadataUpdateOfDeletedArray, "/a")],
    ),
    "group updated that they deleted": (
        updating(G),
        log(deleted_groups=[G]),
        [Conflict(K.ZarrMetadataUpdateOfDeletedGroup, "/g")],
    ),
    "chunks of an array that they deleted": (
        writing(A, (0,)),
        log(deleted_arrays=[A]),
        [Conflict(K.ChunksUpdatedInDeletedArray, "/a")],
    ),
    "chunks of an array that they updated": (
        writing(A, (0,)),
        log(updated_arrays=[A]),
        [Conflict(K.ChunksUpdatedInUpdatedArray, "/a")],
    ),
    "chunks written twice": (
        writing(A, (0,), (2,), (3,)),
        log(chunks=[(A, [0, 1, 3])]),
        [Conflict(K.ChunkDoubleUpdate, "/a", [[0], [3]])],
    ),
    "deleted array that they updated": (
        deleting(A),
        log(updated_arrays=[A]),
        [Conflict(K.DeleteOfUpdatedArray, "/a")],
    ),
    "deleted array that they wrote chunks of": (
        deleting(A),
        log(chunks=[(A, [0])]),
        [Conflict(K.DeleteOfUpdatedArray, "/a")],
    ),
    "deleted group that they updated": (
        deleting(G),
        log(updated_groups=[G]),
        [Conflict(K.DeleteOfUpdatedGroup, "/g")],
    ),
    "deleted by both": (deleting(A, G), log(deleted_arrays=[A], deleted_groups=[G]), []),
    "updated array that they wrote chunks of": (updating(A), log(chunks=[(A, [0])]), []),
    "other chunks": (writing(A, (0,)), log(chunks=[(A, [1]), (B, [0])]), []),
    "other nodes": (updating(A), log(updated_arrays=[B], updated_groups=[G]), []),
    "nothing of ours": (ChangeSet(), log(updated_arrays=[A], chunks=[(A, [0])]), []),
}


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_conflict_is_found(name: str) -> None:
    ours, theirs, expected = CASES[name]
    assert find_conflicts(ours, theirs, THEIRS) == expected


def test_any_move_of_theirs_hides_every_other_conflict() -> None:
    moves = [Move("/x", "/y", NodeId(bytes(8)), NodeType.GROUP)]
    theirs = log(moves=moves, updated_arrays=[A])
    expected = [Conflict(K.MoveOperationCannotBeRebased, "")]
    assert find_conflicts(updating(A), theirs, THEIRS) == expected
    assert find_conflicts(ChangeSet(), theirs, THEIRS) == expected


def test_conflicts_come_in_the_order_of_their_kinds() -> None:
    ours = creating(group(9, "/h"), group(10, "/a/x"))
    ours.update(G)
    ours.update(A)
    ours.set_chunk(A, (0,), CHUNK)
    ours.delete([B])
    theirs = log(updated_arrays=[A, B], updated_groups=[G], chunks=[(A, [0])])
    assert [(each.conflict_type, each.path) for each in find_conflicts(ours, theirs, THEIRS)] == [
        (K.NewNodeConflictsWithExistingNode, "/h"),
        (K.NewNodeInInvalidGroup, "/a"),
        (K.ZarrMetadataDoubleUpdate, "/a"),
        (K.ZarrMetadataDoubleUpdate, "/g"),
        (K.ChunksUpdatedInUpdatedArray, "/a"),
        (K.ChunkDoubleUpdate, "/a"),
        (K.DeleteOfUpdatedArray, "/g/b"),
    ]


def test_a_node_that_replaces_ours_meets_only_the_node_of_somebody_else() -> None:
    ours = deleting(A)
    ours.create(array(9, "/a"))
    assert find_conflicts(ours, log(), THEIRS) == []
    assert find_conflicts(ours, log(deleted_arrays=[A]), EMPTY) == []
    recreated = Theirs({"/a": array(10, "/a")})
    assert find_conflicts(ours, log(deleted_arrays=[A]), recreated) == [
        Conflict(K.NewNodeConflictsWithExistingNode, "/a")
    ]


def test_chunks_of_a_new_array_meet_nothing_of_theirs() -> None:
    new = array(9, "/new")
    ours = creating(new)
    ours.set_chunk(new, (0,), CHUNK)
    assert find_conflicts(ours, log(chunks=[(A, [0])]), THEIRS) == []


def test_a_deletion_of_a_chunk_counts_as_a_change_of_it() -> None:
    ours = ChangeSet()
    ours.set_chunk(A, (2,), None)
    assert find_conflicts(ours, log(chunks=[(A, [2])]), THEIRS) == [
        Conflict(K.ChunkDoubleUpdate, "/a", [[2]])
    ]


def test_the_only_chunk_of_an_array_without_dimensions_is_met() -> None:
    scalar = ArrayNode(A.id, "/a", b"{}", (), None, NO_MANIFESTS)
    theirs = LogContents(INITIAL_SNAPSHOT, updated_chunks={A.id: np.zeros((1, 0), np.uint32)})
    read = decode_transaction_log(encode_transaction_log(theirs, 2), "transactions/log")
    assert find_conflicts(writing(scalar, ()), read, THEIRS) == [
        Conflict(K.ChunkDoubleUpdate, "/a", [[]])
    ]


def test_chunks_of_another_rank_are_other_chunks() -> None:
    theirs = log(updated_arrays=[A], chunks=[(A, [(0, 0)])])
    assert find_conflicts(writing(A, (0,)), theirs, THEIRS) == [
        Conflict(K.ChunksUpdatedInUpdatedArray, "/a")
    ]


def test_hundreds_of_thousands_of_chunks_are_compared_by_columns() -> None:
    wide = array(1, "/a", 2**20, 7)
    rows = np.arange(300_000, dtype=np.uint32)
    mine = np.stack([3 * rows, rows % 7], axis=1)
    other = np.stack([3 * rows + 1, rows % 7], axis=1)
    other[[5, 250_000]] = mine[[5, 250_000]]
    ours = ChangeSet()
    ours.set_chunks(wide, deletions(mine))
    theirs = replace(log(), updated_chunks={wide.id: other})
    assert find_conflicts(ours, theirs, THEIRS) == [
        Conflict(K.ChunkDoubleUpdate, "/a", [[15, 5], [750_000, 2]])
    ]


def test_changes_of_nodes_that_are_nowhere_are_conflicts() -> None:
    ours = updating(A, G)
    ours.set_chunk(B, (0,), CHUNK)
    assert list(gone_nodes(ours, THEIRS)) == []
    assert list(gone_nodes(ours, EMPTY)) == [
        Conflict(K.ZarrMetadataUpdateOfDeletedArray, "/a"),
        Conflict(K.ZarrMetadataUpdateOfDeletedGroup, "/g"),
        Conflict(K.ChunksUpdatedInDeletedArray, "/g/b"),
    ]
    assert list(gone_nodes(deleting(A), EMPTY)) == []
    assert list(gone_nodes(creating(A), EMPTY)) == []


def patched(solver: ConflictSolver, ours: ChangeSet, theirs: TransactionLog) -> ChangeSet:
    resolution = solver.solve(ours, theirs, THEIRS)
    assert isinstance(resolution, Patched)
    return resolution.changes


def refused(
    solver: ConflictSolver, ours: ChangeSet, theirs: TransactionLog
) -> tuple[Conflict, ...]:
    resolution = solver.solve(ours, theirs, THEIRS)
    assert isinstance(resolution, Unsolvable)
    return resolution.conflicts


def written(changes: ChangeSet) -> list[list[int]]:
    indices: list[list[int]] = changes.chunks[A.id].run().table.indices.tolist()
    return indices


SOLVABLE: dict[str, dict[str, Any]] = {
    "chunks written twice": {"on_chunk_conflict": VersionSelection.Fail},
    "deleted array that they updated": {"fail_on_delete_of_updated_array": True},
    "deleted array that they wrote chunks of": {"fail_on_delete_of_updated_array": True},
    "deleted group that they updated": {"fail_on_delete_of_updated_group": True},
}


@pytest.mark.parametrize("name", CASES)
def test_the_detector_refuses_every_conflict(name: str) -> None:
    ours, theirs, expected = CASES[name]
    if expected:
        assert refused(ConflictDetector(), ours, theirs) == tuple(expected)
    else:
        assert patched(ConflictDetector(), ours, theirs) is ours


@pytest.mark.parametrize("name", CASES)
def test_the_basic_solver_solves_what_its_options_say(name: str) -> None:
    ours, theirs, expected = CASES[name]
    if expected and name not in SOLVABLE:
        assert refused(BasicConflictSolver(), ours, theirs) == tuple(expected)
        return
    assert patched(BasicConflictSolver(), ours, theirs) is ours
    if name in SOLVABLE:
        assert refused(BasicConflictSolver(**SOLVABLE[name]), ours, theirs) == tuple(expected)


def test_their_chunks_win_only_where_both_wrote_and_only_in_a_copy() -> None:
    ours = writing(A, (0,), (1,), (3,))
    ours.update(G)
    solver = BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs)
    changes = patched(solver, ours, log(chunks=[(A, [1, 2])]))
    assert written(changes) == [[0], [3]]
    assert changes.updated == {G.id: G}
    assert written(ours) == [[0], [1], [3]]


def test_an_array_of_which_no_chunk_of_ours_is_left_still_counts_as_changed() -> None:
    solver = BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs)
    changes = patched(solver, writing(A, (1,)), log(chunks=[(A, [1])]))
    assert written(changes) == []
    assert not changes.is_empty


def test_one_unsolvable_conflict_leaves_everything_as_it_was() -> None:
    ours = writing(A, (1,))
    ours.update(G)
    solver = BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs)
    assert refused(solver, ours, log(chunks=[(A, [1])], updated_groups=[G])) == (
        Conflict(K.ZarrMetadataDoubleUpdate, "/g"),
        Conflict(K.ChunkDoubleUpdate, "/a", [[1]]),
    )
    assert written(ours) == [[1]]


def test_solvers_are_values() -> None:
    solver = BasicConflictSolver(fail_on_delete_of_updated_array=True)
    assert pickle.loads(pickle.dumps(solver)) == solver != BasicConflictSolver()
    assert pickle.loads(pickle.dumps(ConflictDetector())) == ConflictDetector()


def test_a_selection_of_another_type_is_refused() -> None:
    wrong: Any = 1
    with pytest.raises(TypeError, match="on_chunk_conflict=1"):
        BasicConflictSolver(on_chunk_conflict=wrong)
