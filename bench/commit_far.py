"""Archives behind a proxy that lets every answer take a while."""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.commit_bases import Copies, base, opened
from bench.commit_refs import BATCH, OURS, PEER, Layout
from bench.harness import say
from bench.sink_places import LATENCY_MS, Place, Places, far_places
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.object_stores.buckets import s3_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.commit_refs import Archive
    from bench.harness import Report

TRIPS_TARGET = 2.5
FAR_TEXT = (
    f"icechunk on versitygw behind toxiproxy with {LATENCY_MS} ms, one repository kept open, with"
    " its default configuration and with manifests of the size that the line names. The server has"
    " its objects in memory"
)
FOREIGN_TEXT = (
    f"icechunk itself on both layouts, behind {LATENCY_MS} ms as above: a repository that it wrote"
    " at once, and one with as many references that we wrote, the last batches of them one by one."
    " Without a splitting configuration, and with the same one in both repositories"
)
_AT_ONCE = 16
_CELL = 131_072
_HEADER = "| what | side | commit ms: min, median | round trips | at most |\n|---|---|---|---|---|"


@dataclass(slots=True)
class Far:
    """Copies of local repositories, each below a prefix of a far bucket."""

    places: Places
    numbers: Iterator[int] = field(default_factory=count)

    def upload(self, path: Path) -> Place:
        place = self.places.of(f"copy-{next(self.numbers)}")
        server = place.server
        assert server is not None
        client = s3_client(server)
        prefix, bucket = place.folder.name, place.folder.parent.name

        def put(file: Path) -> None:
            key = f"{prefix}/{file.relative_to(path).as_posix()}"
            client.put_object(Bucket=bucket, Key=key, Body=file.read_bytes())

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(put, (file for file in path.rglob("*") if file.is_file())))
        return place

    def open(self, layout: Layout, path: Path, refs: int, arrays: int = 1) -> Archive:
        return opened(layout, storage_of(layout, self.upload(path)), refs, arrays)


@contextmanager
def far() -> Iterator[Far]:
    with far_places() as places:
        yield Far(places)


def storage_of(layout: Layout, place: Place) -> Any:
    return place.ours if layout.module == OURS.module else place.icechunk


def row(what: str, side: str, seconds: list[float], target: float | None = None) -> str:
    median = 1000 * statistics.median(seconds)
    cells = (
        what,
        side,
        f"{1000 * min(seconds):,.0f}, {median:,.0f}",
        f"**{median / LATENCY_MS:.1f}**",
        "" if target is None else f"{target:g}",
    )
    say(f"| {' | '.join(cells)} |")
    return f"| {' | '.join(cells)} |"


# -- our appends and the peer's -------------------------------------------------------------------


def requests_in_a_row(there: Far, path: Path, refs: int) -> str:
    """Of two commits, the requests of the second in groups that are under way at once."""
    storage = WrappedStorage(there.upload(path).ours)
    archive = opened(OURS, storage, refs)
    archive.append()
    session = archive.grown()
    storage.script.forget()
    archive.commit(session, perf_counter())
    waves = [", ".join(sorted(_named(call) for call in wave)) for wave in storage.script.waves]
    return f"{len(waves)} in a row: {'; then '.join(waves)}"


def _named(call: Any) -> str:
    return f"{call.method} {call.key.partition('/')[0]}"


def run(report: Report, folder: Path) -> None:
    refs, split, commits = (10_000, 1_000, 3) if report.quick else (1_000_000, 5_000, 20)
    report.lines.append(_HEADER)
    with far() as there:
        for spec in (1, 2):
            what = f"append to {refs:,}, v{spec}"
            sides = {
                "ours": (OURS, commits, TRIPS_TARGET),
                f"peer, {split:,}": (Layout(PEER.module, split), commits, None),
                "peer, default": (PEER, min(commits, 3), None),
            }
            for name, (layout, number, target) in sides.items():
                archive = there.open(layout, base(folder, layout, spec, refs), refs)
                for _ in range(number + 2):
                    archive.append()
                report.lines.append(row(what, name, archive.commits[2:], target))
            found = requests_in_a_row(there, base(folder, OURS, spec, refs), refs)
            report.note(f"v{spec}, ours: {found}")


# -- the peer's appends to what we wrote ----------------------------------------------------------


def run_foreign(report: Report, folder: Path) -> None:
    refs, batches, rounds = (10_000, 20, 2) if report.quick else (1_000_000, 200, 3)
    report.lines.append(_HEADER)
    with far() as there:
        for spec in (1, 2):
            for split in (None, _CELL):
                for line in _foreign_lines(there, folder, spec, split, (refs, batches, rounds)):
                    report.lines.append(line)
    report.note(
        "Each round opens fresh copies: a first commit finds nothing in a cache, the third is the"
        " peer's steady state. Our layout must not make it slow"
    )


def _foreign_lines(
    there: Far, folder: Path, spec: int, split: int | None, sizes: tuple[int, int, int]
) -> Iterator[str]:
    refs, batches, rounds = sizes
    peer, ours = Layout(PEER.module, split), Layout(OURS.module, split)
    total = refs + batches * BATCH
    with Copies(folder, spec) as copies:
        written = copies.make(ours, refs)
        for _ in range(batches):
            written.append()
        paths = {"its own layout": base(folder, peer, spec, total), "our layout": copies.made[0]}
        spent: dict[str, list[list[float]]] = {name: [] for name in paths}
        for _ in range(rounds):
            for name, path in paths.items():
                archive = there.open(peer, path, total)
                spent[name].append([archive.append().commit for _ in range(3)])
    cells = "no splitting" if split is None else f"cells of {split:,}"
    for number, order in enumerate(("first", "second", "third")):
        for name, each in spent.items():
            what = f"peer's {order} append, v{spec}, {cells}"
            yield row(what, name, [commits[number] for commits in each])
