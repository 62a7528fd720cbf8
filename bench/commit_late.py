"""Late data: a thousand chunks written anew, all over a large array or in an old part of it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.commit_bases import Copies, Manifests
from bench.commit_refs import ARRAY, OURS, PEER, Layout, location, ranges
from bench.harness import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from bench.commit_refs import Archive
    from bench.harness import Report

CHUNKS = 1_000
PEER_TEXT = (
    "icechunk on a local folder, with its default configuration and with manifests of the sizes"
    " that the lines name, each archive written at once; the sides take turns, a commit each."
    " References are set by `set_virtual_refs`"
)
_ROUNDS, _WARM_UP = 10, 2
_NEW_FILES = 10_000_000
_HEADER = (
    "| what | side | commit ms: min, median | ours over this | manifests written | kB of them |\n"
    "|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """Which chunks are late: so many of a range, at random or side by side."""

    name: str
    first: int
    last: int
    in_a_row: bool = False

    def rows(self, seed: int) -> npt.NDArray[np.uint64]:
        random, count = np.random.default_rng(seed), self.last - self.first
        if self.in_a_row:
            chosen = random.integers(count - CHUNKS, endpoint=True) + np.arange(CHUNKS)
        else:
            chosen = np.sort(random.choice(count, CHUNKS, replace=False))
        return chosen.astype(np.uint64) + np.uint64(self.first)


def kinds(refs: int) -> list[Kind]:
    begin = refs // 4 + 37
    return [
        Kind("random ones of all", 0, refs),
        Kind("random ones of an old eighth", begin, begin + refs // 8),
        Kind("old ones side by side, the same", begin, begin + CHUNKS, in_a_row=True),
        Kind("old ones side by side, others each time", 0, refs // 2, in_a_row=True),
    ]


def specs(library: Any, rows: npt.NDArray[np.uint64]) -> list[Any]:
    """The chunks in other files than before."""
    columns = (rows.tolist(), *(each.tolist() for each in ranges(rows)))
    return [
        library.VirtualChunkSpec(
            index=[row], location=location(_NEW_FILES + row), offset=offset, length=length
        )
        for row, offset, length in zip(*columns, strict=True)
    ]


@dataclass(slots=True)
class Side:
    layout: Layout
    archive: Archive
    manifests: Manifests

    def take(self, rows: npt.NDArray[np.uint64]) -> None:
        self.archive.replace(specs(self.layout.library, rows))

    def begin(self) -> None:
        """Forget what was to warm up."""
        self.archive.spent.clear()
        self.manifests.look()
        self.manifests.sizes.clear()

    @property
    def median(self) -> float:
        return 1000 * statistics.median(self.archive.commits)

    @property
    def name(self) -> str:
        if self.layout == OURS:
            return "ours"
        return f"peer, {self.layout.split:,}" if self.layout.split else "peer, default"

    def row(self, kind: Kind, spec: int, ours: float) -> str:
        self.manifests.look()
        rounds = len(self.archive.commits)
        cells = (
            f"{kind.name}, v{spec}",
            self.name,
            f"{1000 * min(self.archive.commits):.1f}, {self.median:.1f}",
            "" if self.layout == OURS else f"**{ours / self.median:.2f}**",
            f"{len(self.manifests.sizes) / rounds:.1f}",
            f"{sum(self.manifests.sizes.values()) / rounds / 1000:,.1f}",
        )
        return f"| {' | '.join(cells)} |"


def lines(
    folder: Path, kind: Kind, spec: int, refs: int, splits: tuple[int, ...], rounds: int
) -> Iterator[str]:
    say(f"{kind.name}, v{spec}")
    layouts = [OURS, PEER, *(Layout(PEER.module, split) for split in splits)]
    with Copies(folder, spec) as copies:
        archives = [copies.make(layout, refs) for layout in layouts]
        sides = [
            Side(layout, archive, Manifests.of(path))
            for layout, archive, path in zip(layouts, archives, copies.made, strict=True)
        ]
        for number in range(_WARM_UP + rounds):
            for side in sides:
                if number == _WARM_UP:
                    side.begin()
                side.take(kind.rows(number))
        yield from (side.row(kind, spec, sides[0].median) for side in sides)


def run(report: Report, folder: Path) -> None:
    refs, rounds = (50_000, 3) if report.quick else (1_000_000, _ROUNDS)
    splits = (1_000, 5_000) if report.quick else (2_500, 5_000, 10_000, 50_000)
    report.lines.append(_HEADER)
    for spec in (1, 2):
        for kind in kinds(refs):
            for line in lines(folder, kind, spec, refs, splits, rounds):
                report.lines.append(line)
                say(line)
    report.note(
        f"{CHUNKS:,} chunks into {refs:,} references of the array `{ARRAY}`. Target: ours is not"
        " slower than the peer with its best splitting, nor than its default"
    )
