"""The manifests that an array has before a commit, with merges that were made since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from icechunk_stream.format.ids import ID12
from icechunk_stream.format.nodes import ManifestRefs
from icechunk_stream.format.ref_tables import RefTable
from icechunk_stream.manifests.lookup import columns_of
from icechunk_stream.manifests.rebuild import refs_at_most

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.format.nodes import ArrayNode
    from icechunk_stream.format.snapshot import ManifestFile
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.upkeep import Merged, Upkeep


@dataclass(frozen=True, slots=True, eq=False)
class OldManifests:
    """Manifests by number: first the snapshot's that still count, then merges of others.

    ``sizes`` are the numbers of references, or bounds of them: where arrays share a manifest, the
    snapshot tells only how many all of them have in it.
    """

    node: ArrayNode
    base: SnapshotReader
    refs: ManifestRefs
    sizes: npt.NDArray[np.int64]
    stored: npt.NDArray[np.intp]
    added: tuple[ManifestFile, ...]

    @classmethod
    def of(cls, node: ArrayNode, base: SnapshotReader, upkeep: Upkeep) -> Self:
        ids = node.manifests.ids
        merged = upkeep.merged(node.id, {id.tobytes() for id in ids}) if len(ids) > 1 else []
        stored = np.arange(len(ids))
        if merged:
            merged = _apart(merged)
            gone = [source for each in merged for source in each.sources]
            stored = np.flatnonzero(~np.isin(ids.view("S12"), np.array(gone, "S12")))
        refs = ManifestRefs(
            np.concatenate([ids[stored], *(np.frombuffer(m.file.id.raw, ID12) for m in merged)]),
            np.concatenate([node.manifests.extents[stored], *(m.box[None] for m in merged)]),
        )
        added = tuple(each.file for each in merged)
        counts = base.manifest_counts(node, stored)
        counts = np.append(counts, [file.num_chunk_refs for file in added])
        return cls(node, base, refs, refs_at_most(counts, refs.extents), stored, added)

    def table(self, number: int) -> RefTable:
        """All references of the array in a manifest."""
        held = self.base.assets.held_table(self.refs.id(number), self.node.id)
        return held if held is not None else self._read(number)

    def is_near(self, number: int) -> bool:
        """Whether ``table`` answers from memory."""
        id, assets = self.refs.id(number), self.base.assets
        held = assets.held_table(id, self.node.id)
        return held is not None or assets.cached_manifest(id) is not None

    def _read(self, number: int) -> RefTable:
        if number < len(self.stored):
            return RefTable.of(self.base.columns(self.node, int(self.stored[number])))
        file = self.added[number - len(self.stored)]
        return RefTable.of(columns_of(self.base.assets.manifest(file), self.node))


def _apart(merged: Sequence[Merged]) -> list[Merged]:
    """Merges that have no source in common."""
    taken: set[bytes] = set()
    found = []
    for each in merged:
        if taken.isdisjoint(each.sources):
            taken.update(each.sources)
            found.append(each)
    return found
