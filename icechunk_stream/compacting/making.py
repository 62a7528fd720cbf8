"""Manifests made of others: read, joined, cut and stored, a few of them at a time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from icechunk_stream.assets import manifest_key
from icechunk_stream.compacting.plans import Limits
from icechunk_stream.compacting.survey import Share
from icechunk_stream.format.ref_rows import chosen_rows, joined
from icechunk_stream.format.ref_tables import RefTable
from icechunk_stream.manifests.rebuild import extents_of
from icechunk_stream.manifests.regrouping import cut
from icechunk_stream.packing import Part, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from icechunk_stream.assets import Assets
    from icechunk_stream.compacting.plans import Job, JobKey, Piece
    from icechunk_stream.format.ids import ManifestId
    from icechunk_stream.format.snapshot import ManifestFile
    from icechunk_stream.packing import EncodingRules

Tables: TypeAlias = "Mapping[tuple[bytes, ...], RefTable]"

# Manifests that are encoded and stored at once: each takes some of the memory that a job is given.
_TOGETHER = 4


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A stored manifest, and the box of what it holds of one array."""

    file: ManifestFile
    box: npt.NDArray[np.uint32]


class Maker:
    """Does the jobs of plans; what is stored is not made again."""

    def __init__(
        self, assets: Assets, rules: EncodingRules, report: Callable[[Sequence[Job]], None]
    ) -> None:
        self._assets = assets
        self._rules = rules
        self._limits = Limits.of(rules.policy)
        self._report = report
        self.made: dict[JobKey, tuple[tuple[Made, ...], ...]] = {}

    def files(self) -> list[ManifestFile]:
        """All manifests that were stored."""
        made = (each for pieces in self.made.values() for piece in pieces for each in piece)
        return list({each.file.id: each.file for each in made}.values())

    def changes(self, job: Job) -> bool:
        """Whether a job that was done made anything."""
        return self.made.get(job.key) != ()

    def make(self, jobs: Iterable[Job]) -> None:
        """Store what jobs make: the manifests of each piece."""
        todo = [job for job in jobs if job.key not in self.made]
        for wave in _waves(todo, self._limits.at_once):
            tables = self._tables(wave)
            calls = [partial(self._make, job, tables) for job in wave]
            for first in range(0, len(calls), _TOGETHER):
                self._assets.storage.together(calls[first : first + _TOGETHER])
            self._report(wave)

    def _tables(self, wave: Iterable[Job]) -> Tables:
        """The references of all manifests that some jobs need, each read once."""
        by_id: dict[ManifestId, dict[tuple[bytes, ...], Share]] = defaultdict(dict)
        for share in _shares(wave):
            by_id[share.id][share.key] = share
        calls = [partial(self._read, list(shares.values())) for shares in by_id.values()]
        found = self._assets.storage.together(calls)
        return {key: table for tables in found for key, table in tables.items()}

    def _read(self, shares: Sequence[Share]) -> dict[tuple[bytes, ...], RefTable]:
        columns = Share.columns_in(shares, self._assets)
        return {share.key: RefTable.of(each) for share, each in zip(shares, columns, strict=True)}

    def _make(self, job: Job, tables: Tables) -> None:
        if len(job.pieces) == 1:
            (piece,) = job.pieces
            table = _table(piece, tables)
            rows = cut(table.indices, self._limits.full)
            if len(rows) == 1 and piece.is_all_of_one:
                # Large, but no straight cut parts it well: it stays.
                self.made[job.key] = ()
                return
            parts = [Part((), piece.node, chosen_rows(table, each)) for each in rows]
            self.made[job.key] = (tuple(self._store([part])[0] for part in parts),)
        else:
            whole = [Part((), piece.node, _table(piece, tables)) for piece in job.pieces]
            self.made[job.key] = tuple((made,) for made in self._store(whole))

    def _store(self, parts: Sequence[Part]) -> list[Made]:
        new = encoded(parts, self._rules)
        assert new.data is not None
        self._assets.storage.put(manifest_key(new.file.id), new.data)
        return [Made(new.file, extents_of(part.table)) for part in parts]


def _waves(jobs: Iterable[Job], most: int) -> Iterator[list[Job]]:
    """Jobs whose manifests are read together, of so many references if one has not more alone."""
    wave: list[Job] = []
    held: set[tuple[bytes, ...]] = set()
    refs = 0
    for job in jobs:
        wanted = _sizes(job)
        more = sum(size for key, size in wanted.items() if key not in held)
        if wave and more and refs + more > most:
            yield wave
            wave, held, refs, more = [], set(), 0, sum(wanted.values())
        wave.append(job)
        held.update(wanted)
        refs += more
    if wave:
        yield wave


def _sizes(job: Job) -> dict[tuple[bytes, ...], int]:
    return {
        share.key: int(piece.array.sizes[share.number])
        for piece in job.pieces
        for share in piece.shares()
    }


def _shares(jobs: Iterable[Job]) -> Iterator[Share]:
    return (share for job in jobs for piece in job.pieces for share in piece.shares())


def _table(piece: Piece, tables: Tables) -> RefTable:
    """The references of a piece, of its cell alone if it has one."""
    found = [tables[share.key] for share in piece.shares()]
    if piece.cell is not None:
        found = [_inside(table, piece) for table in found]
    return joined([table for table in found if len(table)])


def _inside(table: RefTable, piece: Piece) -> RefTable:
    kept = (table.indices // piece.array.grid.sizes == np.array(piece.cell)).all(axis=1)
    return chosen_rows(table, kept)
