"""The snapshot that has what was made in place of the manifests that it was made of."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from icechunk_stream.building import Tree
from icechunk_stream.errors import InternalError
from icechunk_stream.format.boxes import overlap
from icechunk_stream.format.ids import ID12
from icechunk_stream.format.nodes import ArrayNode, ManifestRefs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from icechunk_stream.compacting.making import Made
    from icechunk_stream.compacting.plans import Job, JobKey, Piece
    from icechunk_stream.format.ids import NodeId
    from icechunk_stream.format.snapshot import ManifestFile, Snapshot

Replaced: TypeAlias = "tuple[Piece, tuple[Made, ...]]"


def tree_with(
    base: Snapshot, jobs: Iterable[Job], made: Mapping[JobKey, tuple[tuple[Made, ...], ...]]
) -> Tree:
    """The base with what was made; what was not stays as it is."""
    by_array: dict[NodeId, list[Replaced]] = defaultdict(list)
    partly: set[NodeId] = set()
    for job in jobs:
        found = made.get(job.key)
        for number, piece in enumerate(job.pieces):
            if found is not None:
                by_array[piece.node].append((piece, found[number]))
            elif piece.cell is not None:
                # Its manifests are needed for this cell: they cannot go for another one.
                partly.add(piece.node)
    arrays = [each for node, each in by_array.items() if node not in partly]
    files = {new.file.id: new.file for array in arrays for _, all_ in array for new in all_}
    return Tree(base, tuple(map(_array, arrays)), (), tuple(files.values()), (), ())


def files_of(tree: Tree) -> list[ManifestFile]:
    """The manifests that the tree's snapshot lists."""
    changed = {node.id: node for node in tree.nodes}
    new = {file.id: file for file in tree.files}
    used = {
        id.tobytes()
        for node in tree.base.nodes
        if isinstance(now := changed.get(node.id, node), ArrayNode)
        for id in now.manifests.ids
    }
    files = {file.id: file for file in tree.base.manifest_files} | new
    return [file for file in files.values() if file.id.raw in used]


def _array(replaced: Sequence[Replaced]) -> ArrayNode:
    array = replaced[0][0].array
    old = array.node.manifests
    gone = [number for piece, _ in replaced for number in piece.numbers]
    kept = np.setdiff1d(np.arange(len(old)), gone)
    new = [made for _, all_ in replaced for made in all_]
    ids = np.frombuffer(b"".join(made.file.id.raw for made in new), ID12)
    extents = np.concatenate([old.extents[kept], np.array([made.box for made in new])])
    if overlap(extents):
        raise InternalError(f"new extents of {array.node.path} overlap; nothing was committed")
    order = array.grid.in_order(extents[:, :, 0])
    refs = ManifestRefs(np.concatenate([old.ids[kept], ids])[order], extents[order])
    return replace(array.node, manifests=refs)
