"""Many appends in a row: the slow ones among them, and what they write of manifests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.commit_bases import Copies, Manifests
from bench.commit_refs import ARRAY, BATCH, OURS, PEER, Archive, Layout
from bench.harness import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.harness import Report

    Append = Callable[[Archive], object]

P99_TARGET, MAXIMUM_TARGET, WRITTEN_TARGET = 3, 20, 5.5
PEER_TEXT = (
    "icechunk on a local folder with manifests of the size that the line names; the sides take"
    " turns, a commit each. A tight manifest is what icechunk writes for a batch alone, or for a"
    " tenth of the batches at once, times ten. Virtual references are appended to an archive that"
    " has some, native ones (chunks of 1 kB, put by `set`) to an empty one"
)
_WARM_UP, _SAMPLES = 5, 10
_HEADER = (
    "| what | commits | median ms | p99 over median | maximum over median | manifests put"
    " | kB of them | over tight ones of each batch | over one tight one | references written over"
    " added |\n|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """Appends of a kind of reference, to an archive of a size."""

    name: str
    refs: int
    split: int
    append: Append

    def sides(self, copies: Copies) -> dict[str, Archive]:
        peer = Layout(PEER.module, self.split)
        make = copies.make if self.refs else lambda layout, _: copies.empty(layout)
        return {"ours": make(OURS, self.refs), f"peer, {self.split:,}": make(peer, self.refs)}


@dataclass(frozen=True, slots=True)
class Tight:
    """Bytes of manifests that hold the added references and nothing else."""

    of_batches: float
    of_all: float


def kinds(*, quick: bool) -> list[Kind]:
    base, split = (10_000, 1_000) if quick else (1_000_000, 5_000)
    return [
        Kind("virtual", base, split, Archive.append),
        Kind("native", 0, split, Archive.append_chunks),
    ]


def rows(folder: Path, kind: Kind, spec: int, commits: int) -> Iterator[str]:
    tight = tight_sizes(folder, kind, spec, commits)
    with Copies(folder, spec) as copies:
        sides = kind.sides(copies)
        paths = dict(zip(sides, copies.made, strict=True))
        for _ in range(_WARM_UP):
            for side in sides.values():
                kind.append(side)
        seen = {name: Manifests.of(path) for name, path in paths.items()}
        before = {name: _tip(side) for name, side in sides.items()}
        for number in range(commits):
            for name, side in sides.items():
                kind.append(side)
                seen[name].look()
            if number % 100 == 0:
                say(f"{kind.name}, v{spec}: commit {number} of each side")
        for name, side in sides.items():
            written = references_written(side.repository, before[name]) / (commits * BATCH)
            what = f"{kind.name} on {kind.refs:,}, v{spec}: {name}"
            yield row(what, side.commits[_WARM_UP:], seen[name].sizes, tight, written)


def row(
    what: str, seconds: list[float], sizes: dict[str, int], tight: Tight, written: float
) -> str:
    median, p99 = np.percentile(seconds, [50, 99])
    total = sum(sizes.values())
    cells = (
        what,
        f"{len(seconds):,}",
        f"{1000 * median:.2f}",
        f"**{p99 / median:.2f}**",
        f"**{max(seconds) / median:.1f}**",
        f"{len(sizes):,}",
        f"{total / 1000:,.0f}",
        f"**{total / tight.of_batches:.2f}**",
        f"{total / tight.of_all:.2f}",
        f"{written:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def tight_sizes(folder: Path, kind: Kind, spec: int, commits: int) -> Tight:
    """What the peer writes where an array has these references only."""
    append: Any = kind.append
    with Copies(folder, spec) as copies:
        alone = [
            _size_of(copies, kind, partial(append, count=BATCH), commits * number // _SAMPLES)
            for number in range(_SAMPLES)
        ]
        tenth = commits // _SAMPLES
        together = _size_of(copies, kind, partial(append, count=BATCH * tenth), 0)
    return Tight(commits * sum(alone) / _SAMPLES, commits * together / tenth)


def _size_of(copies: Copies, kind: Kind, append: Append, batch: int) -> int:
    side = copies.empty(PEER)
    side.lengths[ARRAY] = kind.refs + batch * BATCH
    found = Manifests(copies.made[-1] / "manifests", set(), {})
    append(side)
    found.look()
    return sum(found.sizes.values())


def references_written(repository: Any, before: str) -> int:
    """References in the manifests of the snapshots that were made since one."""
    known = {file.id for file in repository.list_manifest_files(before)}
    written: dict[str, int] = {}
    for snapshot in repository.ancestry(branch="main"):
        if snapshot.id == before:
            break
        files = repository.list_manifest_files(snapshot.id)
        written |= {file.id: file.num_chunk_refs for file in files if file.id not in known}
    return sum(written.values())


def _tip(side: Archive) -> str:
    return str(side.repository.lookup_branch("main"))


def run(report: Report, folder: Path) -> None:
    report.lines.append(_HEADER)
    for spec in (1, 2):
        for kind in kinds(quick=report.quick):
            for line in rows(folder, kind, spec, 100 if report.quick else 1_000):
                report.lines.append(line)
                say(line)
    report.note(
        f"Targets for ours: p99 at most {P99_TARGET}, the maximum at most {MAXIMUM_TARGET} times"
        f" the median; manifests put at most {WRITTEN_TARGET} times the tight ones of each batch"
    )
