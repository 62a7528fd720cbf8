"""The manifests of one commit: which stay, and which are new, for every array that it changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from icechunk_stream.errors import InternalError
from icechunk_stream.format.boxes import overlap
from icechunk_stream.format.ids import ID12
from icechunk_stream.format.nodes import ManifestRefs
from icechunk_stream.manifests.policy import Tiered
from icechunk_stream.manifests.rebuild import Grid, plan
from icechunk_stream.manifests.splitting import cell_sizes
from icechunk_stream.manifests.tiered import tiered_plan
from icechunk_stream.old_manifests import OldManifests
from icechunk_stream.packing import new_manifests
from icechunk_stream.parts import CellParts, Parts, TieredParts, merged
from icechunk_stream.upkeep import LaterMerge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from icechunk_stream.changes.runs import Run
    from icechunk_stream.format.nodes import ArrayNode
    from icechunk_stream.format.snapshot import ManifestFile
    from icechunk_stream.manifests.tiered import Merge
    from icechunk_stream.packing import EncodingRules, NewManifest, Part, PartKey, Shelf
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.upkeep import Upkeep

T = TypeVar("T")

# What a merge costs beside its references, in references.
_MERGE = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """An array as the base snapshot has it, as it will be, and its changed chunks.

    ``version`` is another one after every change of chunks.
    """

    stored: ArrayNode
    node: ArrayNode
    run: Run | None
    version: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Manifests of changed arrays by node id; ``files`` are those that the base lacks."""

    refs: Mapping[bytes, ManifestRefs]
    new: tuple[NewManifest, ...]
    files: tuple[ManifestFile, ...]
    later: tuple[LaterMerge, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Yard:
    """What manifests are made with: the base, the rules, and what is stored already."""

    base: SnapshotReader
    rules: EncodingRules
    shelf: Shelf
    upkeep: Upkeep


def lay_out(changes: Iterable[Change], yard: Yard) -> Layout:
    """The manifests of all changed arrays; small ones of several arrays share an object."""
    known = _Known()
    jobs = [_job(change, yard, known) for change in changes]
    now, later = _merges([job.parts.merges for job in jobs], yard.rules)
    _fetch(yard.base, jobs, now)
    parts = [
        [*job.parts.made(), *(merged(job.parts.old, merge) for merge in mine)]
        for job, mine in zip(jobs, now, strict=True)
    ]
    every = [part for mine in parts for part in mine]
    new = new_manifests(every, yard.rules, yard.base.assets.storage, yard.shelf)
    files = {part.key: each.file for each in new for part in each.parts}
    refs = {
        job.node.id.raw: _in_order(job, merges, mine, files, known)
        for job, merges, mine in zip(jobs, now, parts, strict=True)
    }
    added = [file for job in jobs for file in job.parts.old.added]
    return Layout(
        refs,
        tuple(new),
        (*(each.file for each in new), *added),
        tuple(
            _later(job, each) for job, merges in zip(jobs, later, strict=True) for each in merges
        ),
    )


class _Known:
    """What was found for other arrays of the commit: most have equal grids and equal changes."""

    def __init__(self) -> None:
        self._found: dict[object, Any] = {}

    def get(self, columns: Sequence[npt.NDArray[Any]], find: Callable[[], T]) -> T:
        key = tuple((column.shape, column.tobytes()) for column in columns)
        if key not in self._found:
            self._found[key] = find()
        found: T = self._found[key]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """An array whose manifests have to be laid out again."""

    node: ArrayNode
    grid: Grid
    parts: Parts


def _job(change: Change, yard: Yard, known: _Known) -> _Job:
    run = change.run
    grid = Grid.of(change.node.grid, cell_sizes(yard.rules.splitting, change.node))
    old = OldManifests.of(change.stored, yard.base, yard.upkeep)
    state = (change.node.id, change.version, change.node.grid, tuple(grid.sizes.tolist()))
    policy = yard.rules.policy
    if isinstance(policy, Tiered):
        rows = () if run is None else (run.table.indices, run.table.kinds)
        tiers = known.get(
            (old.refs.extents, old.sizes, grid.chunks, grid.sizes, *rows),
            lambda: tiered_plan(old.refs, old.sizes, run, grid, policy),
        )
        if tiers is not None:
            return _Job(change.node, grid, TieredParts(old, grid, run, state, tiers, policy))
    cells = plan(old.refs, run, grid)
    return _Job(change.node, grid, CellParts(old, run, state, cells))


def _merges(
    wanted: Sequence[Sequence[Merge]], rules: EncodingRules
) -> tuple[list[list[Merge]], list[list[Merge]]]:
    """Merges to make now, and those that can wait until after the commit, for each array."""
    quick = rules.policy.quick_refs if isinstance(rules.policy, Tiered) else 0
    cost = sum(merge.size + _MERGE for mine in wanted for merge in mine if not merge.is_due)
    now = [[merge for merge in mine if merge.is_due or cost <= quick] for mine in wanted]
    later = [[merge for merge in mine if not merge.is_due and cost > quick] for mine in wanted]
    return now, later


def _fetch(base: SnapshotReader, jobs: Sequence[_Job], now: Sequence[Sequence[Merge]]) -> None:
    """Load what is not in memory of the manifests to read, all at once."""
    calls = [
        partial(job.parts.old.table, number)
        for job, merges in zip(jobs, now, strict=True)
        for number in (*job.parts.reads(), *(each for merge in merges for each in merge.numbers))
        if not job.parts.old.is_near(number)
    ]
    base.assets.storage.together(calls)


def _later(job: _Job, merge: Merge) -> LaterMerge:
    sources = tuple(job.parts.old.refs.ids[number].tobytes() for number in merge.numbers)
    return LaterMerge(job.node.id, sources, partial(merged, job.parts.old, merge))


def _in_order(
    job: _Job,
    merges: Sequence[Merge],
    made: Sequence[Part],
    files: Mapping[PartKey, ManifestFile],
    known: _Known,
) -> ManifestRefs:
    """The array's manifests, kept and new, cell after cell."""
    old, kept = job.parts.old.refs, job.parts.kept
    if merges:
        kept = np.setdiff1d(kept, [number for merge in merges for number in merge.numbers])
    new = np.frombuffer(b"".join(files[part.key].id.raw for part in made), ID12)
    boxes = np.array([part.box() for part in made], np.uint32)
    shape = (len(made), len(job.node.shape), 2)
    extents = np.concatenate([old.extents[kept], boxes.reshape(shape)])
    order = known.get((extents, job.grid.chunks, job.grid.sizes), lambda: _order(extents, job))
    return ManifestRefs(np.concatenate([old.ids[kept], new])[order], extents[order])


def _order(extents: npt.NDArray[np.uint32], job: _Job) -> npt.NDArray[np.intp]:
    """Cell by cell, and in each by the first corner."""
    if len(extents) > 1 and overlap(extents):
        raise InternalError(f"new extents of {job.node.path} overlap; nothing was committed")
    return job.grid.in_order(extents[:, :, 0])
