"""Chunks of one array that were set or deleted since the base snapshot."""

from __future__ import annotations

import threading
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING

from icechunk_stream.changes.runs import Run
from icechunk_stream.format.ref_rows import deletions, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from icechunk_stream.format.chunk_refs import ChunkPayload
    from icechunk_stream.format.ref_tables import RefTable

# Changes made one by one that wait as Python objects before they become columns.
_TAIL = 4096
_versions = count()


class Unchanged(Enum):
    """A chunk is as the base snapshot has it."""

    UNCHANGED = "unchanged"


class ChunkChanges:
    """The last change of every chunk: a bounded tail of single ones, behind sorted columns.

    ``version`` is another one, in this process, after every change. Safe to share between threads.
    """

    def __init__(self, path: str, rank: int) -> None:
        self.path = path
        self.rank = rank
        self.version = next(_versions)
        self._tail: dict[tuple[int, ...], ChunkPayload | None] = {}
        self._runs: tuple[Run, ...] = ()
        self._lock = threading.RLock()

    def set(self, index: Sequence[int], payload: ChunkPayload | None) -> None:
        """Set a chunk; None deletes it."""
        with self._lock:
            self.version = next(_versions)
            self._tail[tuple(index)] = payload
            if len(self._tail) >= _TAIL:
                self._spill()

    def set_many(self, table: RefTable) -> None:
        """Set or delete many chunks; of rows with one index the last one counts."""
        run = Run.of([table])
        with self._lock:
            self.version = next(_versions)
            self._spill()
            self._add(run)

    def get(self, index: Sequence[int]) -> ChunkPayload | Unchanged | None:
        """The payload of a chunk that was set, or None for one that was deleted."""
        key = tuple(index)
        tail, runs = self._tail, self._runs
        if key in tail:
            return tail[key]
        for run in reversed(runs):
            row = run.find(key)
            if row is not None:
                return run.payload(row)
        return Unchanged.UNCHANGED

    def run(self) -> Run:
        """All changes as one run."""
        with self._lock:
            self._spill()
            if len(self._runs) != 1:
                tables = [run.table for run in self._runs] or [table_of(self.rank, ())]
                self._runs = (Run.of(tables),)
            return self._runs[0]

    def forget(self, indices: npt.NDArray[np.uint32]) -> None:
        """Drop the changes of some chunks."""
        with self._lock:
            self.version = next(_versions)
            run = self.run()
            self._runs = (run.without(Run.of([deletions(indices)]).holds(run.table.indices)),)

    def copy(self) -> ChunkChanges:
        """Changes that can go another way from here."""
        twin = ChunkChanges(self.path, self.rank)
        twin.version, twin._runs = self.version, (self.run(),)
        return twin

    def _spill(self) -> None:
        """Readers look in the tail first: it goes only once its rows are in a run."""
        if self._tail:
            self._add(Run.of([table_of(self.rank, self._tail.items())]))
            self._tail = {}

    def _add(self, run: Run) -> None:
        """Like sizes merge, so that a row is copied few times and few runs are searched."""
        runs = (*self._runs, run)
        while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
            merged = Run.of([runs[-2].table, runs[-1].table])
            runs = (*runs[:-2], merged)
        self._runs = runs
