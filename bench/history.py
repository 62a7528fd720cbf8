"""Commits on histories of up to ten thousand snapshots, and what reading such a history costs."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
from dataclasses import dataclass, field
from functools import partial
from time import process_time
from typing import TYPE_CHECKING, Any

import icechunk
from matplotlib.figure import Figure
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from bench.commit_refs import document
from bench.harness import ROOT, Case, Report, Stopwatch, arguments, data_folder, say
from icechunk_stream.storage import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from bench.harness import Measured

LENGTHS = (100, 1_000, 10_000)
CHUNKS, ROUNDS, READS = 10, 25, 5
APP, QUERY = "obs-v1", "5c1d6f3e-6f0a-4b8f-9f39-6d1c5f3a2b11"
PLOT = ROOT / "bench" / "history.png"
PEER = (
    "icechunk on copies of the same local folders, in which each snapshot was committed by us with"
    " the metadata of the sink; default configuration on both sides, one repository kept open,"
    f" sessions opened before the clock starts; a commit appends {CHUNKS} inline chunks to one"
    " array, and neither side waits for the disk (fsync)"
)


@dataclass
class Side:
    """One library on one repository, which grows by a snapshot each time."""

    repository: Any
    length: int
    processor: list[float] = field(default_factory=list)

    def commit(self, watch: Stopwatch) -> int:
        session = self.repository.writable_session("main")
        asyncio.run(self._append(session.store, CHUNKS))
        with watch:
            began = process_time()
            self._commit(session)
            self.processor.append(process_time() - began)
        return CHUNKS

    def lengthen(self) -> None:
        """One more snapshot, as small as can be."""
        session = self.repository.writable_session("main")
        asyncio.run(self._append(session.store, 0))
        self._commit(session)

    async def _append(self, store: Any, count: int) -> None:
        first, self.length = self.length, self.length + max(count, 1)
        await store.set("a/zarr.json", _buffer(document(self.length)))
        for index in range(first, first + count):
            await store.set(f"a/c/{index}", _buffer(b"x"))

    def _commit(self, session: Any) -> None:
        marker = {"app_id": APP, "batch_id": self.length, "query_id": QUERY}
        session.commit(f"batch {self.length}", {"icechunk_stream": marker})


def _buffer(data: bytes) -> Any:
    return default_buffer_prototype().buffer.from_bytes(data)


def make(folder: Path, spec: int, lengths: tuple[int, ...]) -> None:
    """Repositories of some lengths, each a copy of one that grows on; those there are kept."""
    if all((folder / f"v{spec}-{length}").exists() for length in lengths):
        return
    growing = folder / f"v{spec}-growing"
    storage = LocalStorage(growing, durability="os")
    side = Side(icechunk_stream.Repository.create(storage, spec_version=spec), 0)
    count = 1
    for length in lengths:
        say(f"spec v{spec}, {length:,} snapshots")
        for _ in range(length - count):
            side.lengthen()
        count = length
        copy(growing, folder / f"v{spec}-{length}")
    shutil.rmtree(growing)


def copy(source: Path, target: Path) -> None:
    """A repository whose files are shared: both libraries put new ones in their place."""
    shutil.rmtree(target, ignore_errors=True)
    # Backups are read by nobody but the operations log, and come to gigabytes.
    ignored = shutil.ignore_patterns("overwritten")
    shutil.copytree(source, target, ignore=ignored, copy_function=os.link)


def sides(folder: Path, spec: int, length: int) -> tuple[Side, Side, Side]:
    """Us, the peer, and us with fsync, each on its own copy."""
    copies = [folder / f"v{spec}-{length}-{name}" for name in ("ours", "peer", "fsync")]
    for copied in copies:
        copy(folder / f"v{spec}-{length}", copied)
    ours, peer, durable = copies
    stores = (
        (icechunk_stream, LocalStorage(ours, durability="os")),
        (icechunk, icechunk.local_filesystem_storage(str(peer))),
        (icechunk_stream, LocalStorage(durable)),
    )
    one, two, three = (Side(lib.Repository.open(store), length) for lib, store in stores)
    return one, two, three


@dataclass(frozen=True)
class Point:
    """Commits at one length: both sides, ours with fsync, and processor time; medians in ms."""

    measured: Measured
    durable: float
    processor: tuple[float, float]

    @property
    def medians(self) -> tuple[float, float]:
        return _median(self.measured.ours), _median(self.measured.peer)


def _median(seconds: Iterable[float]) -> float:
    return 1000 * statistics.median(seconds)


def commits(report: Report, folder: Path, spec: int, length: int, rounds: int) -> Point:
    ours, peer, durable = sides(folder, spec, length)
    # A ratio of 1 is asked for where the history is what a commit costs.
    target = 1.0 if (spec, length) == (2, LENGTHS[-1]) else None
    name = f"v{spec}, {length:,} snapshots: commit"
    report.run(Case(name, "chunks", ours.commit, peer.commit, target, rounds))
    waited = _median(_seconds(durable.commit) for _ in range(rounds))
    return Point(report.measured[-1], waited, (_median(ours.processor), _median(peer.processor)))


def _seconds(side: Callable[[Stopwatch], int]) -> float:
    watch = Stopwatch()
    side(watch)
    return watch.elapsed


def reads(folder: Path, spec: int, length: int, rounds: int) -> Iterator[Case]:
    """What is asked of a long history without writing."""
    path = folder / f"v{spec}-{length}"
    stores = (
        (icechunk_stream, lambda: LocalStorage(path)),
        (icechunk, lambda: icechunk.local_filesystem_storage(str(path))),
    )
    history = list(icechunk_stream.Repository.open(LocalStorage(path)).ancestry(branch="main"))
    moment = history[length // 2].written_at
    asked: dict[str, Callable[[Any], object]] = {
        "open, a session on main": lambda repo: repo.readonly_session("main").snapshot_id,
        "open, a session half way back": lambda repo: (
            repo.readonly_session("main", as_of=moment).snapshot_id
        ),
        "open, the whole ancestry": lambda repo: sum(1 for _ in repo.ancestry(branch="main")),
    }
    for name, ask in asked.items():
        ours, peer = (partial(_opened, library, store, ask) for library, store in stores)
        yield Case(f"v{spec}, {length:,} snapshots: {name}", "calls", ours, peer, None, rounds)


def _opened(
    library: Any, store: Callable[[], Any], ask: Callable[[Any], object], watch: Stopwatch
) -> int:
    with watch:
        ask(library.Repository.open(store()))
    return 1


def plot(points: Mapping[tuple[int, int], Point]) -> None:
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for spec, colour in ((1, "tab:blue"), (2, "tab:red")):
        lengths = [length for of, length in points if of == spec]
        here = [points[spec, length] for length in lengths]
        ours, peer = zip(*(point.medians for point in here), strict=True)
        axes.plot(lengths, ours, "o-", color=colour, label=f"icechunk_stream, spec v{spec}")
        axes.plot(lengths, peer, "s--", color=colour, label=f"icechunk, spec v{spec}")
        durable = [point.durable for point in here]
        axes.plot(lengths, durable, ":", color=colour, label=f"icechunk_stream, v{spec}, fsync")
    axes.set(xscale="log", xlabel="snapshots in the history", ylabel="median commit, ms", ylim=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(PLOT, dpi=110)


def stored(folder: Path, length: int) -> dict[str, int]:
    """Bytes of the ``repo`` object after the commits of each side."""
    return {
        name: (folder / f"v2-{length}-{name}" / "repo").stat().st_size for name in ("ours", "peer")
    }


def tell(report: Report, points: Mapping[tuple[int, int], Point]) -> None:
    """What the table does not say."""
    for (spec, length), point in points.items():
        ours, peer = point.processor
        report.note(
            f"v{spec}, {length:,} snapshots: our commit with fsync {point.durable:.1f} ms;"
            f" processor time of a commit, median: ours {ours:.1f} ms, peer {peer:.1f} ms"
        )
    first, *_, last = (length for spec, length in points if spec == 1)
    few, many = points[1, first], points[1, last]
    report.note(
        f"v1: our commit at {last:,} snapshots takes {many.medians[0] / few.medians[0]:.2f}x the"
        f" time of that at {first:,}, and {many.processor[0] / few.processor[0]:.2f}x its processor"
        " time"
    )


def main() -> None:
    options = arguments(__doc__ or "")
    lengths = LENGTHS[:2] if options.quick else LENGTHS
    rounds = 2 if options.quick else ROUNDS
    icechunk.set_logs_filter("error")
    report = Report("history", PEER, options.quick)
    points: dict[tuple[int, int], Point] = {}
    with data_folder(options.data) as folder:
        for spec in (1, 2):
            make(folder, spec, lengths)
            for length in lengths:
                points[spec, length] = commits(report, folder, spec, length, rounds)
            for case in reads(folder, spec, lengths[-1], READS):
                report.run(case)
        sizes = stored(folder, lengths[-1])
    tell(report, points)
    report.note(
        f"v2, {lengths[-1]:,} snapshots: the `repo` object, which each commit writes and copies,"
        f" is {sizes['ours']:,} bytes as we write it, {sizes['peer']:,} as the peer does"
    )
    if not options.quick:
        plot(points)
        report.note("Plot: `bench/history.png`")
    report.write()


if __name__ == "__main__":
    main()
