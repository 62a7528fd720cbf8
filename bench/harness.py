"""Benchmarks against a peer: both sides in turn, several rounds, a table of ratios, no assert."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "RESULTS.md"

_TITLE = "# Results\n\nRatio: the peer's time over ours, so more than 1 is faster than the peer.\n"
_HEADER = "| what | units | ours: min, median | peer: min, median | ratio of min, median | target |"
_AT_HAND = "Sides take turns; free memory is at hand before each."
_PACKAGES = ("icechunk", "zarr", "xarray", "numpy", "pyarrow", "zstandard")
_MIB = 2**20
_PAGE = 4096
# More than a round of any benchmark takes anew.
_ROUND_BYTES = 3 * 2**29


class Stopwatch:
    """Times what happens inside ``with watch:``; a round's preparation stays outside."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        gc.collect()
        self._began = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.elapsed += perf_counter() - self._began


@dataclass(frozen=True, slots=True)
class Case:
    """The same work on both sides; each returns how many units it went through."""

    name: str
    unit: str
    ours: Callable[[Stopwatch], int]
    peer: Callable[[Stopwatch], int]
    target: float | None = None
    rounds: int = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of each round of a case."""

    case: Case
    units: int
    ours: list[float]
    peer: list[float]

    @property
    def ratio(self) -> float:
        return min(self.peer) / min(self.ours)

    @property
    def median_ratio(self) -> float:
        return statistics.median(self.peer) / statistics.median(self.ours)


@dataclass(slots=True)
class Report:
    """What one benchmark found; ``peer`` says how the peer was configured.

    ``name`` is a script's, with options where these make another benchmark of it; ``lines`` is a
    table of its own that a benchmark makes.
    """

    name: str
    peer: str
    quick: bool
    measured: list[Measured] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self, case: Case) -> None:
        """Warm both sides up, then let them take turns, in an order that varies.

        Whoever comes second finds other memory and other caches.
        """
        units = {_timed(case.ours)[1], _timed(case.peer)[1]}
        if len(units) != 1:
            raise ValueError(f"{case.name}: the sides went through {units} {case.unit}")
        ours: list[float] = []
        peer: list[float] = []
        sides, shuffled = [(ours, case.ours), (peer, case.peer)], random.Random(0)
        for number in range(2 if self.quick else case.rounds):
            say(f"{case.name}: round {number + 1}")
            for seconds, side in shuffled.sample(sides, 2):
                touch_memory(_ROUND_BYTES)
                seconds.append(_timed(side)[0])
        self.measured.append(Measured(case, units.pop(), ours, peer))
        say(_row(self.measured[-1]))

    def run_all(self, cases: Iterable[Case]) -> None:
        for case in cases:
            self.run(case)
        self.write()

    def note(self, text: str) -> None:
        self.notes.append(text)
        say(text)

    def write(self) -> None:
        """Print the section; that of a full run takes the place of an earlier one."""
        section = self._section()
        sys.stdout.write(section)
        if self.quick:
            return
        before = RESULTS.read_text() if RESULTS.exists() else _TITLE
        head, *sections = before.split("\n## ")
        kept = {text.split("\n", 1)[0]: text.strip("\n") for text in sections}
        kept[self.name] = section.removeprefix("## ").strip("\n")
        parts = [head.strip("\n"), *(kept[name] for name in sorted(kept))]
        RESULTS.write_text("\n\n## ".join(parts) + "\n")

    def _table(self) -> list[str]:
        if not self.measured:
            return []
        rows = map(_row, self.measured)
        return [_AT_HAND, "", _HEADER, "|---|---|---|---|---|---|", *rows]

    def _section(self) -> str:
        quick = " --quick" if self.quick else ""
        script, *words = self.name.split(" ")
        options = "".join(f" {word}" for word in words)
        lines = [
            f"## {self.name}",
            "",
            f"`python bench/{script}.py{options}{quick}` on {_machine()}.",
            f"Peer: {self.peer}.",
            "",
            *self._table(),
            *self.lines,
            "",
            *(f"- {note}" for note in self.notes),
        ]
        return "\n".join(lines).rstrip("\n") + "\n"


def touch_memory(size: int) -> None:
    """Have so much free memory at hand.

    Virtual machines may give free pages back to their host. The first touch of one then costs more
    than the work of whoever happens to be the one that touches it.
    """
    pages = np.empty(size, np.uint8)
    pages[::_PAGE] = 1


def say(text: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"{text}\n")


def arguments(description: str) -> argparse.Namespace:
    """Options that every benchmark takes; ``child`` is for its own fresh processes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="smaller data and fewer rounds")
    parser.add_argument("--data", type=Path, help="keep the data in this folder, and use it again")
    parser.add_argument("--s3", action="store_true", help="on S3, where the benchmark can do that")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args()


@contextmanager
def data_folder(kept: Path | None) -> Iterator[Path]:
    """Where a benchmark puts its repositories."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield Path(folder)


def in_fresh_process(script: str, words: Sequence[str]) -> dict[str, Any]:
    """What a benchmark's ``--child`` prints, run by itself."""
    command = [sys.executable, script, "--child", *words]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def measure_here(work: Callable[[Stopwatch], int]) -> None:
    """Print the seconds and the peak memory of work in this process, which did nothing else."""
    before = _peak()
    elapsed, units = _timed(work)
    found = {"seconds": elapsed, "units": units, "before": before, "peak": _peak()}
    sys.stdout.write(json.dumps(found))


def _peak() -> float:
    """Largest resident size of this program so far, in MiB."""
    # A process begins with the ru_maxrss of the one that started it; Linux also keeps its own.
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) / 1024
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / _MIB


def _timed(side: Callable[[Stopwatch], int]) -> tuple[float, int]:
    watch = Stopwatch()
    units = side(watch)
    return watch.elapsed, units


def _row(measured: Measured) -> str:
    case = measured.case
    cells = (
        case.name,
        f"{measured.units:,} {case.unit}",
        _times(measured.ours),
        _times(measured.peer),
        f"**{measured.ratio:.2f}**, {measured.median_ratio:.2f}",
        "" if case.target is None else f"{case.target:g}",
    )
    return f"| {' | '.join(cells)} |"


def _times(seconds: list[float]) -> str:
    return f"{1000 * min(seconds):,.0f}, {1000 * statistics.median(seconds):,.0f} ms"


def _machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    load = f"load {os.getloadavg()[0]:.1f}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python}, {packages}; {os.cpu_count()} cores, {load}"
