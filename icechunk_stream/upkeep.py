"""Merges of manifests that are too large for a commit to wait for: made between commits.

What was merged is stored, and known to nobody until a later commit takes it over in place of the
manifests that it was made of. Where none does, it is garbage as of any commit that failed.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.assets import manifest_key
from icechunk_stream.effects import monotonic
from icechunk_stream.errors import IcechunkError
from icechunk_stream.packing import Shelf, new_manifests

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from concurrent.futures import Future

    import numpy as np
    import numpy.typing as npt

    from icechunk_stream.assets import Assets
    from icechunk_stream.format.ids import NodeId
    from icechunk_stream.format.snapshot import ManifestFile
    from icechunk_stream.packing import EncodingRules, Part

# A garbage collector may take what nobody refers to; none sensible takes what is so young.
_TAKEN_OVER_WITHIN = 600.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class LaterMerge:
    """Manifests of one array that should become one, and what gives their references."""

    node: NodeId
    sources: tuple[bytes, ...]
    part: Callable[[], Part]


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A stored manifest that holds an array's references of other ones."""

    sources: tuple[bytes, ...]
    file: ManifestFile
    box: npt.NDArray[np.uint32]
    stored_at: float

    @property
    def is_fresh(self) -> bool:
        return monotonic() - self.stored_at < _TAKEN_OVER_WITHIN


class Upkeep:
    """The merges of one repository: one lot of them is made at a time."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets
        self._merged: dict[NodeId, tuple[Merged, ...]] = {}
        self._running: Future[None] | None = None
        self._lock = threading.Lock()

    def merged(self, node: NodeId, ids: Collection[bytes]) -> list[Merged]:
        """What can take the place of some of an array's manifests; the rest is forgotten."""
        with self._lock:
            known = self._merged.get(node, ())
            kept = tuple(each for each in known if each.is_fresh and set(each.sources) <= set(ids))
            if kept:
                self._merged[node] = kept
            else:
                self._merged.pop(node, None)
        return list(kept)

    def begin(self, merges: Sequence[LaterMerge], rules: EncodingRules) -> None:
        """Merge beside whatever else is done, unless a lot of merges is under way."""
        with self._lock:
            waiting = self._running is not None and not self._running.done()
            new = [merge for merge in merges if not self._is_known(merge)]
            if new and not waiting:
                self._running = self._assets.storage.executor.submit(self._merge, new, rules)

    def finish(self) -> None:
        """Wait for the merges that are under way."""
        running = self._running
        if running is not None:
            running.result()

    def _is_known(self, merge: LaterMerge) -> bool:
        return any(each.sources == merge.sources for each in self._merged.get(merge.node, ()))

    def _merge(self, merges: Sequence[LaterMerge], rules: EncodingRules) -> None:
        try:
            self._store(merges, rules)
        except IcechunkError as error:
            # Nothing depends on a merge: the next commit asks for it again.
            _log.warning("manifests were not merged: %s", error)

    def _store(self, merges: Sequence[LaterMerge], rules: EncodingRules) -> None:
        parts = [merge.part() for merge in merges]
        sources = {id(part): merge.sources for part, merge in zip(parts, merges, strict=True)}
        for new in new_manifests(parts, rules, self._assets.storage, Shelf()):
            assert new.data is not None
            self._assets.storage.put(manifest_key(new.file.id), new.data)
            self._assets.keep_tables(new.file.id, {part.node: part.table for part in new.parts})
            for part in new.parts:
                merged = Merged(sources[id(part)], new.file, part.box(), monotonic())
                self._keep(part.node, merged)

    def _keep(self, node: NodeId, merged: Merged) -> None:
        with self._lock:
            self._merged[node] = (*self._merged.get(node, ()), merged)
