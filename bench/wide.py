"""Commits that change three arrays of ten thousand: what the others cost."""

from __future__ import annotations

import asyncio
import json
import tempfile
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from bench.harness import Case, Report, arguments, data_folder, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Stopwatch

CHANGED = 3
IN_GROUP = 100
SHAPE, CHUNKS = (100, 64, 64), (10, 32, 32)
PEER = "icechunk on the same local disk, which does not fsync; ours is set not to either"


@dataclass(frozen=True)
class Side:
    """One library on one repository of many arrays."""

    library: Any
    folder: Path
    count: int
    number: list[int]

    def open(self) -> Any:
        return self.library.Repository.open(self._storage())

    def make(self, spec: int) -> None:
        """Arrays in groups, each with a document and one chunk."""
        repository = self.library.Repository.create(self._storage(), spec_version=spec)
        session = repository.writable_session("main")
        asyncio.run(self._fill(session.store))
        session.commit("many arrays")

    def commit(self, watch: Stopwatch) -> int:
        """A session of a repository that is open, three chunks and three documents, a commit."""
        repository = self.open()
        with watch:
            self.change(repository)
        return CHANGED

    def batches(self, watch: Stopwatch) -> int:
        """The same ten times, one commit after the other."""
        repository = self.open()
        with watch:
            for _ in range(10):
                self.change(repository)
        return 10 * CHANGED

    def look_up(self, watch: Stopwatch) -> int:
        """Opening the repository, and the document of one array."""
        with watch:
            session = self.open().readonly_session("main")
            asyncio.run(session.store.get(f"{name(7)}/zarr.json", default_buffer_prototype()))
        return 1

    def stored(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def _storage(self) -> Any:
        if self.library is icechunk:
            return icechunk.local_filesystem_storage(str(self.folder))
        return icechunk_stream.local_filesystem_storage(str(self.folder), durability="os")

    async def _fill(self, store: Any) -> None:
        await store.set("zarr.json", _buffer(GROUP))
        for first in range(0, self.count, IN_GROUP):
            await store.set(f"g{first // IN_GROUP:03}/zarr.json", _buffer(GROUP))
            await asyncio.gather(*(self._array(store, n) for n in range(first, first + IN_GROUP)))

    async def _array(self, store: Any, number: int) -> None:
        await store.set(f"{name(number)}/zarr.json", document(0))
        await store.set(f"{name(number)}/c/0/0/0", _buffer(b"chunk"))

    def change(self, repository: Any) -> None:
        session = repository.writable_session("main")
        asyncio.run(self._write(session.store))
        session.commit("three arrays")

    async def _write(self, store: Any) -> None:
        self.number[0] += 1
        for array in range(CHANGED):
            await store.set(f"{name(array)}/zarr.json", document(self.number[0]))
            await store.set(f"{name(array)}/c/1/0/{array % 2}", _buffer(b"changed"))


def name(number: int) -> str:
    return f"g{number // IN_GROUP:03}/variable_{number:05}"


def document(note: int) -> Any:
    grid = {"name": "regular", "configuration": {"chunk_shape": CHUNKS}}
    keys = {"name": "default", "configuration": {"separator": "/"}}
    members = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": SHAPE,
        "data_type": "float32",
        "chunk_grid": grid,
        "chunk_key_encoding": keys,
        "fill_value": "NaN",
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd"}],
        "dimension_names": ["time", "lat", "lon"],
        "attributes": {"units": "K", "long_name": "a variable of many", "note": note},
    }
    return _buffer(json.dumps(members).encode())


GROUP = b'{"zarr_format":3,"node_type":"group","attributes":{}}'


def _buffer(data: bytes) -> Any:
    return default_buffer_prototype().buffer.from_bytes(data)


def cases(folder: Path, report: Report, spec: int, counts: tuple[int, ...]) -> Iterator[Case]:
    for count in counts:
        sides = [
            Side(library, Path(tempfile.mkdtemp(dir=folder)), count, [0])
            for library in (icechunk_stream, icechunk)
        ]
        for side in sides:
            say(f"spec v{spec}, {count:,} arrays: {side.library.__name__}")
            side.make(spec)
        ours, peer = sides
        works = {
            "session to commit": Side.commit,
            "ten of them": Side.batches,
            "open, look up": Side.look_up,
        }
        for what, work in works.items():
            yield Case(
                f"v{spec}, {count:,} arrays: {what}",
                "arrays",
                partial(work, ours),
                partial(work, peer),
            )
        report.note(_bytes_put(sides, f"v{spec}, {count:,} arrays"))


def _bytes_put(sides: list[Side], what: str) -> str:
    put = []
    for side in sides:
        before = side.stored()
        side.change(side.open())
        put.append(side.stored() - before)
    return f"{what}: a commit puts {put[0]:,} bytes, the peer's {put[1]:,}"


def main() -> None:
    warnings.simplefilter("ignore")
    icechunk.set_logs_filter("error")
    options = arguments(__doc__)
    counts = (100, 2_000) if options.quick else (100, 10_000)
    report = Report("wide", PEER, options.quick)
    with data_folder(options.data) as folder:
        for spec in (1, 2):
            for case in cases(folder, report, spec, counts):
                report.run(case)
    report.write()


if __name__ == "__main__":
    main()
