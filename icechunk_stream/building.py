"""The nodes and manifests of one commit, made of a base snapshot and the changes on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.effects import random_bytes
from icechunk_stream.errors import ConflictError, InternalError
from icechunk_stream.format.boxes import overlap
from icechunk_stream.format.ids import ID12, OBJECT_ID_SIZE, ManifestId
from icechunk_stream.format.manifest_encode import encode_manifest
from icechunk_stream.format.nodes import ArrayNode, ManifestRefs
from icechunk_stream.format.snapshot import ManifestFile
from icechunk_stream.manifests.rebuild import Grid, extents_of, pieces, plan
from icechunk_stream.manifests.splitting import cell_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from icechunk_stream.changes import ChangeSet
    from icechunk_stream.changes.runs import Run
    from icechunk_stream.config import SplitSizes
    from icechunk_stream.format.chunk_refs import RefColumns
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.snapshot import Snapshot
    from icechunk_stream.manifests.rebuild import Piece, Plan
    from icechunk_stream.reading import SnapshotReader

# Array, state of its changes, grid, cell, and the manifests that a new one was made of.
PieceKey = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class EncodingRules:
    """How objects are laid out and encoded."""

    spec_version: int
    level: int
    splitting: SplitSizes


@dataclass(frozen=True, slots=True, eq=False)
class NewManifest:
    """A manifest of this commit; ``data`` is None for one that an earlier attempt stored."""

    key: PieceKey
    file: ManifestFile
    extents: npt.NDArray[np.uint32]
    data: bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """All nodes of the next snapshot, and the manifests that they use."""

    nodes: tuple[Node, ...]
    files: tuple[ManifestFile, ...]
    new: tuple[NewManifest, ...]


@dataclass(slots=True)
class Shelf:
    """Manifests that attempts of one session have stored, to be used again by the next attempt."""

    stored: dict[PieceKey, NewManifest] = field(default_factory=dict)

    def keep(self, manifest: NewManifest) -> None:
        self.stored[manifest.key] = replace(manifest, data=None)


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """An array whose manifests have to be laid out again; ``stored`` is how the base has it."""

    stored: ArrayNode
    node: ArrayNode
    run: Run | None
    plan: Plan
    key: PieceKey


def build_tree(
    base: SnapshotReader, changes: ChangeSet, rules: EncodingRules, shelf: Shelf
) -> Tree:
    """Apply changes to a snapshot; manifests that have to be parted are read."""
    nodes = list(_next_nodes(base.snapshot, changes))
    _check_all_placed(nodes, changes)
    jobs = [
        _job(stored, node, changes, rules)
        for stored, node in nodes
        if isinstance(node, ArrayNode) and _needs_manifests(node, changes)
    ]
    _fetch(base, jobs)
    new: list[NewManifest] = []
    refs: dict[bytes, ManifestRefs] = {}
    for job in jobs:
        made = [_manifest(job, piece, rules, shelf) for piece in _pieces(base, job)]
        new.extend(manifest for _, manifest in made)
        refs[job.node.id.raw] = _in_order(job, made)
    after = tuple(_with_refs(node, refs) for _, node in nodes)
    return Tree(after, _files(base.snapshot, after, new), tuple(new))


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


def _needs_manifests(node: ArrayNode, changes: ChangeSet) -> bool:
    return node.id in changes.chunks or node.id in changes.updated


def _job(stored: Node, node: ArrayNode, changes: ChangeSet, rules: EncodingRules) -> _Job:
    assert isinstance(stored, ArrayNode)
    changed = changes.chunks.get(node.id)
    run = None if changed is None else changed.run()
    grid = Grid.of(node.grid, cell_sizes(rules.splitting, node))
    version = None if changed is None else changed.version
    key = (node.id, version, node.grid, tuple(grid.sizes.tolist()))
    return _Job(stored, node, run, plan(node.manifests, run, grid), key)


def _fetch(base: SnapshotReader, jobs: Iterable[_Job]) -> None:
    """Load what is not in memory of the manifests to part, all at once."""
    calls = [
        _loader(base, job.stored, number)
        for job in jobs
        for number in job.plan.read.tolist()
        if base.assets.cached_manifest(job.stored.manifests.id(number)) is None
    ]
    base.assets.storage.together(calls)


def _loader(base: SnapshotReader, node: ArrayNode, number: int) -> Callable[[], RefColumns]:
    return lambda: base.columns(node, number)


def _pieces(base: SnapshotReader, job: _Job) -> list[Piece]:
    loaded = {number: base.columns(job.stored, number) for number in job.plan.read.tolist()}
    return pieces(job.plan, loaded, job.run)


def _manifest(
    job: _Job, piece: Piece, rules: EncodingRules, shelf: Shelf
) -> tuple[int | bytes, NewManifest]:
    """A new manifest of one cell, or the equal one that an attempt before this one stored."""
    sources = (job.stored.manifests.id(number) for number in piece.sources if number >= 0)
    key = (*job.key, piece.cell, *sources)
    known = shelf.stored.get(key)
    if known is not None:
        return piece.cell, known
    id = ManifestId(random_bytes(OBJECT_ID_SIZE))
    data = encode_manifest(id, {job.node.id: piece.table}, rules.spec_version, rules.level)
    file = ManifestFile(id, len(data), len(piece.table))
    return piece.cell, NewManifest(key, file, extents_of(piece.table), data)


def _in_order(job: _Job, made: Sequence[tuple[int | bytes, NewManifest]]) -> ManifestRefs:
    """The array's manifests, kept and new, cell after cell."""
    old = job.stored.manifests
    kept = zip(job.plan.kept_cells.tolist(), job.plan.kept.tolist(), strict=True)
    entries = [(cell, old.ids[number].tobytes(), old.extents[number]) for cell, number in kept]
    entries += [(cell, new.file.id.raw, new.extents) for cell, new in made]
    entries.sort(key=lambda entry: entry[0])
    ids = np.frombuffer(b"".join(id for _, id, _ in entries), ID12)
    rank = len(job.node.shape)
    extents = np.array([box for *_, box in entries], np.uint32).reshape(len(ids), rank, 2)
    if len(ids) > 1 and overlap(extents):
        raise InternalError(f"new extents of {job.node.path} overlap; nothing was committed")
    return ManifestRefs(ids, extents)


def _with_refs(node: Node, refs: Mapping[bytes, ManifestRefs]) -> Node:
    found = refs.get(node.id.raw)
    if found is None or not isinstance(node, ArrayNode):
        return node
    return replace(node, manifests=found)


def _files(
    base: Snapshot, nodes: Iterable[Node], new: Iterable[NewManifest]
) -> tuple[ManifestFile, ...]:
    """The manifests that nodes use, each once."""
    known = {**base.manifest_files, **{made.file.id: made.file for made in new}}
    arrays = [node.manifests.ids for node in nodes if isinstance(node, ArrayNode)]
    used = set(np.concatenate([np.zeros(0, ID12), *arrays]).tolist())
    return tuple(known[id] for id in map(ManifestId, used) if id in known)
