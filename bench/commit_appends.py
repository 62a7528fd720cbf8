"""Appends of a hundred chunks to archives of any size, on local disk: the commit alone."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.commit_bases import Copies
from bench.commit_plot import plot
from bench.commit_refs import BATCH, OURS, PEER, Layout
from bench.harness import Report, say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.commit_refs import Archive

GROWTH_TARGET, PEER_TARGET = 1.3, 2.0
PEER_TEXT = (
    "icechunk on a local folder, one repository kept open, a session for each batch. Best"
    " splitting: for each size the quickest of the configurations that its line names, each met"
    " with its last manifest half full (those of 10,000,000 references were laid out by us as it"
    " lays them out, since that takes seconds). Default: all references of an array in one"
    " manifest, few commits where these take seconds. Ours has its default configuration, which"
    " the repository does not speak of. A batch of either side sets 100 virtual references by"
    " `set_virtual_refs_arr` and the array's new shape by `set`; sides take turns, a commit"
    " each, in another order each round"
)
# About where writing many manifests costs as much as rewriting a large one.
SPLITS = {
    10_000: (250, 500, 1_000),
    100_000: (1_000, 2_000, 5_000),
    1_000_000: (2_500, 5_000, 10_000),
    10_000_000: (10_000, 20_000),
}
_DEFAULT_COMMITS = {10_000: 20, 100_000: 20, 1_000_000: 5, 10_000_000: 2}
_COMMITS, _WARM_UP = 40, 3


@dataclass(frozen=True, slots=True)
class Point:
    """Median milliseconds of commits at a size; sides by their splitting."""

    spec: int
    refs: int
    ours: float
    durable: float
    whole: float
    best: dict[int, float]
    best_whole: float
    default: float

    @property
    def split(self) -> int:
        return min(self.best, key=self.best.__getitem__)

    @property
    def peer(self) -> float:
        return self.best[self.split]

    def row(self) -> str:
        tried = ", ".join(f"{split:,}: {ms:.1f}" for split, ms in self.best.items())
        cells = (
            f"{self.refs:,}, v{self.spec}",
            f"{self.ours:.2f}",
            f"{self.durable:.2f}",
            f"{self.peer:.2f} ({tried})",
            f"**{self.ours / self.peer:.2f}**",
            f"{PEER_TARGET:g}",
            f"{self.default:,.1f}",
            f"{self.whole:.1f}, {self.best_whole:.1f}",
        )
        return f"| {' | '.join(cells)} |"


_HEADER = (
    "| refs | ours, os: ms | ours, fsync: ms | peer, best splitting: ms (tried) | ours over best"
    " | at most | peer, default: ms | session, set and commit: ours, best |\n"
    "|---|---|---|---|---|---|---|---|"
)


def half_full(refs: int, split: int, commits: int) -> int:
    """References to begin with, so that commits begin and end around half a manifest."""
    before = max(0, split // 2 - commits * BATCH // 2)
    return refs + before - before % BATCH


def measured(folder: Path, spec: int, refs: int, splits: tuple[int, ...], commits: int) -> Point:
    """All sides but the peer's default in turn, and that one alone: it may need gigabytes."""
    with Copies(folder, spec) as copies:
        sides = {"os": copies.make(OURS, refs), "fsync": copies.make(OURS, refs, "fsync")}
        for split in splits:
            before = half_full(refs, split, commits)
            sides[str(split)] = copies.make(Layout(PEER.module, split), before)
        shuffled = random.Random(0)
        for number in range(commits + _WARM_UP):
            for side in shuffled.sample(list(sides.values()), len(sides)):
                side.append()
            if number % 10 == 0:
                say(f"v{spec}, {refs:,} refs: commit {number} of each side")
    best = {split: _median(sides[str(split)]) for split in splits}
    quickest = str(min(best, key=best.__getitem__))
    return Point(
        spec,
        refs,
        ours=_median(sides["os"]),
        durable=_median(sides["fsync"]),
        whole=_median_whole(sides["os"]),
        best=best,
        best_whole=_median_whole(sides[quickest]),
        default=_default(folder, spec, refs, min(commits, _DEFAULT_COMMITS.get(refs, commits))),
    )


def _default(folder: Path, spec: int, refs: int, commits: int) -> float:
    say(f"v{spec}, {refs:,} refs: the peer's default")
    with Copies(folder, spec) as copies:
        side = copies.make(PEER, refs)
        return 1000 * statistics.median(side.append().commit for _ in range(commits))


def growth(folder: Path, spec: int, sizes: tuple[int, int], commits: int) -> tuple[float, float]:
    """Milliseconds of ours at two sizes, measured in turn: a file system has good and bad hours."""
    with Copies(folder, spec) as copies:
        small, large = (copies.make(OURS, refs) for refs in sizes)
        shuffled = random.Random(0)
        for _ in range(commits + _WARM_UP):
            for side in shuffled.sample((small, large), 2):
                side.append()
    return _median(small), _median(large)


def _median(side: Archive) -> float:
    return 1000 * statistics.median(side.commits[_WARM_UP:])


def _median_whole(side: Archive) -> float:
    return 1000 * statistics.median(spent.whole for spent in side.spent[_WARM_UP:])


def points(folder: Path, *, quick: bool) -> Iterator[Point]:
    sizes = {1_000: (250,), 10_000: (250, 1_000), 100_000: (1_000, 5_000)} if quick else SPLITS
    for spec in (1, 2):
        for refs, splits in sizes.items():
            yield measured(folder, spec, refs, splits, 10 if quick else _COMMITS)


def run(report: Report, folder: Path) -> None:
    found = []
    report.lines.append(_HEADER)
    for point in points(folder, quick=report.quick):
        found.append(point)
        report.lines.append(point.row())
        say(point.row())
    sizes = found[0].refs, max(point.refs for point in found)
    for spec in (1, 2):
        small, large = growth(folder, spec, sizes, 10 if report.quick else _COMMITS)
        report.note(
            f"v{spec}: ours at {sizes[1]:,} references takes **{large / small:.2f}** times as long"
            f" as at {sizes[0]:,} (at most {GROWTH_TARGET:g}): {large:.2f} and {small:.2f} ms, the"
            " two in turn"
        )
    plot(found, quick=report.quick)
