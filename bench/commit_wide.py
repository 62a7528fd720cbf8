"""Archives of many arrays: commits to a few of them, and to all."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.commit_bases import Copies, base, names_of, objects_in
from bench.commit_far import far
from bench.commit_refs import OURS, PEER, Layout
from bench.harness import say
from bench.sink_places import LATENCY_MS, Put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.commit_far import Far
    from bench.commit_refs import Archive
    from bench.harness import Report

FEW_TARGET, OBJECTS_TARGET, FAR_TARGET = 1.5, 4, 20
PEER_TEXT = (
    "icechunk with its default configuration and with manifests of the sizes that the lines name,"
    f" on a local folder and on versitygw behind toxiproxy with {LATENCY_MS} ms, one repository"
    " kept open. Every array grows by 10 virtual references a commit. Objects are new or replaced"
    " files after a commit on a local folder, without the copy of `repo` that v2 keeps"
)
_GROWTH, _FEW = 10, 3
_HEADER = (
    "| what | side | commit ms: min, median | over ours | objects put | kB |\n"
    "|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How many arrays of how many references, and commits of each side."""

    arrays: int
    refs: int
    splits: tuple[int, ...]
    commits: int
    slow_commits: int

    def layouts(self) -> dict[str, Layout]:
        splitted = {f"peer, {split:,}": Layout(PEER.module, split) for split in self.splits}
        return {"ours": OURS, **splitted, "peer, default": PEER}


@dataclass(slots=True)
class Side:
    """An archive on a local folder, and what its last commit put there."""

    archive: Archive
    path: Path
    put: Put | None = None

    def append(self, names: list[str] | None = None) -> None:
        before = objects_in(self.path)
        self.archive.append(_GROWTH, names)
        self.put = Put.between(before, objects_in(self.path))


def row(what: str, name: str, seconds: list[float], ours: list[float], put: Put | None) -> str:
    median = 1000 * statistics.median(seconds)
    over = "" if seconds is ours else f"**{median / 1000 / statistics.median(ours):.1f}**"
    objects = ("", "") if put is None else (str(put.objects), f"{put.size / 1000:,.0f}")
    cells = (what, name, f"{1000 * min(seconds):,.1f}, {median:,.1f}", over, *objects)
    say(f"| {' | '.join(cells)} |")
    return f"| {' | '.join(cells)} |"


def few(folder: Path, spec: int, shape: Shape) -> tuple[list[str], float]:
    """Commits to a few arrays, and how our archive compares with one of only those."""
    names = names_of(shape.arrays)[:_FEW]
    with Copies(folder, spec) as copies:
        sides = {
            name: Side(copies.make(layout, shape.refs, arrays=shape.arrays), copies.made[-1])
            for name, layout in shape.layouts().items()
        }
        sides[_only()] = Side(copies.make(OURS, shape.refs, arrays=_FEW), copies.made[-1])
        for _ in range(shape.commits + 2):
            for side in sides.values():
                side.append(names)
    spent = {name: side.archive.commits[2:] for name, side in sides.items()}
    what = f"append to {_FEW} of {shape.arrays}, v{spec}"
    lines = [
        row(what, name, seconds, spent["ours"], sides[name].put) for name, seconds in spent.items()
    ]
    return lines, statistics.median(spent["ours"]) / statistics.median(spent[_only()])


def _only() -> str:
    return f"ours, {_FEW} arrays only"


def all_near(folder: Path, spec: int, shape: Shape) -> tuple[list[str], int]:
    """Commits to all arrays, and how many objects ours puts for one."""
    with Copies(folder, spec) as copies:
        sides = {
            name: Side(copies.make(layout, shape.refs, arrays=shape.arrays), copies.made[-1])
            for name, layout in shape.layouts().items()
        }
        for name, side in sides.items():
            for _ in range(1 + (shape.commits if name == "ours" else shape.slow_commits)):
                side.append()
    spent = {name: side.archive.commits[1:] for name, side in sides.items()}
    what = f"append to all {shape.arrays}, v{spec}, near"
    lines = [
        row(what, name, seconds, spent["ours"], sides[name].put) for name, seconds in spent.items()
    ]
    put = sides["ours"].put
    assert put is not None
    return lines, put.objects


def all_far(there: Far, folder: Path, spec: int, shape: Shape) -> Iterator[str]:
    what = f"append to all {shape.arrays}, v{spec}, {LATENCY_MS} ms"
    ours: list[float] = []
    for name, layout in shape.layouts().items():
        path = base(folder, layout, spec, shape.refs, shape.arrays)
        archive = there.open(layout, path, shape.refs, shape.arrays)
        for _ in range(1 + (shape.commits if name == "ours" else shape.slow_commits)):
            archive.append(_GROWTH)
        ours = ours or archive.commits[1:]
        seconds = ours if name == "ours" else archive.commits[1:]
        yield row(what, name, seconds, ours, None)


def run(report: Report, folder: Path) -> None:
    shape = Shape(200, 50_000, (1_000, 5_000), 20, 3)
    if report.quick:
        shape = Shape(20, 1_000, (500,), 3, 1)
    report.lines.append(_HEADER)
    for spec in (1, 2):
        lines, ratio = few(folder, spec, shape)
        report.lines += lines
        lines, objects = all_near(folder, spec, shape)
        report.lines += lines
        report.note(
            f"v{spec}: ours with {shape.arrays} arrays over ours with the {_FEW} only:"
            f" **{ratio:.2f}** (at most {FEW_TARGET:g}); objects put where all grow: **{objects}**"
            f" (at most {OBJECTS_TARGET}), the swapped one among them"
        )
    with far() as there:
        for spec in (1, 2):
            report.lines += all_far(there, folder, spec, shape)
    report.note(
        f"{shape.arrays} arrays of {shape.refs:,} references. Far, where all grow, the peer is to"
        f" take at least {FAR_TARGET} times as long"
    )
