"""Writing: a million virtual references and their commit; a large array through zarr."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from bench.datasets import LENGTH, REFS_PER_LOCATION, location, offsets
from bench.harness import (
    Case,
    Report,
    Stopwatch,
    arguments,
    in_fresh_process,
    measure_here,
)
from bench.s3_clients import isolate, memory_folder, s3_storage
from tests.object_stores.buckets import create_bucket
from tests.object_stores.servers import versitygw
from tests.zarr.documents import array

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from tests.object_stores.servers import S3Server

PREFIX = "s3://bucket/"
ARRAY = "refs"
ROW = 2**18  # values of four bytes in a chunk of 1 MiB
COMMIT_TARGET, MEMORY_TARGET = 3.0, 0.5
LOCAL_TARGET, S3_TARGET = 1.0, 0.83
PEER = (
    "icechunk on a local folder in memory with its default configuration, zarr with its default"
    " concurrency. Neither side waits for a disk: ours has durability='os'"
)
S3_PEER = (
    "icechunk with its default configuration, zarr with its default concurrency, both on versitygw,"
    " which runs on the same cores and has its files in memory. Ours with obstore"
)
LIBRARIES = {library.__name__: library for library in (icechunk_stream, icechunk)}
# A storage of a library where nothing is yet, and how to throw away what was written there.
Place = Callable[["ModuleType"], tuple[Any, Callable[[], object]]]
_numbers = count()


def local(folder: Path) -> Place:
    def place(library: ModuleType) -> tuple[Any, Callable[[], object]]:
        path = folder / f"written-{next(_numbers)}"
        options = {"durability": "os"} if library is icechunk_stream else {}
        storage = library.local_filesystem_storage(str(path), **options)
        return storage, partial(shutil.rmtree, path, ignore_errors=True)

    return place


def on_s3(server: S3Server, bucket: str, objects: Path) -> Place:
    """The server's files are removed behind its back: deleting by requests takes longer."""

    def place(library: ModuleType) -> tuple[Any, Callable[[], object]]:
        name = f"written-{next(_numbers)}"
        chunks = objects / bucket / name / "chunks"
        storage = s3_storage(library, server, bucket, name)
        return storage, partial(shutil.rmtree, chunks, ignore_errors=True)

    return place


# -- virtual references --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """Columns of virtual references; ``alike`` of them in a row have one location."""

    locations: list[str]
    offsets: np.ndarray[Any, np.dtype[np.uint64]]
    lengths: np.ndarray[Any, np.dtype[np.uint64]]

    @classmethod
    def of(cls, number: int, alike: int) -> References:
        places = [location(row // alike) for row in range(number)]
        return cls(places, offsets(number), np.full(number, LENGTH, np.uint64))

    def __len__(self) -> int:
        return len(self.locations)


def set_and_commit(
    library: ModuleType, place: Place, spec: int, refs: References, *, only_commit: bool
) -> Callable[[Stopwatch], int]:
    def run(watch: Stopwatch) -> int:
        storage, discard = place(library)
        session = virtual_session(library, storage, spec, len(refs))
        if only_commit:
            set_references(session, refs)
        with watch:
            if not only_commit:
                set_references(session, refs)
            session.commit("refs")
        discard()
        return len(refs)

    return run


def virtual_session(library: ModuleType, storage: Any, spec: int, number: int) -> Any:
    config = library.RepositoryConfig.default()
    store = library.s3_store(region="us-east-1")
    config.set_virtual_chunk_container(library.VirtualChunkContainer(PREFIX, store))
    repository = library.Repository.create(storage, config, spec_version=spec)
    session = repository.writable_session("main")
    document = default_buffer_prototype().buffer.from_bytes(array([number]))
    asyncio.run(_set(session.store, f"{ARRAY}/zarr.json", document))
    return session


def set_references(session: Any, refs: References) -> None:
    refused = session.store.set_virtual_refs_arr(
        ARRAY, (len(refs),), refs.locations, refs.offsets, refs.lengths
    )
    assert refused is None


def virtual_cases(folder: Path, number: int) -> Iterator[Case]:
    for alike in (REFS_PER_LOCATION, 1):
        refs = References.of(number, alike)
        which = "each location its own" if alike == 1 else f"{alike} refs a location"
        for spec in (1, 2):
            for only_commit in (True, False):
                what = "commit" if only_commit else "set by array and commit"
                ours, peer = (
                    set_and_commit(library, local(folder), spec, refs, only_commit=only_commit)
                    for library in LIBRARIES.values()
                )
                name = f"virtual refs, {which}, spec v{spec}: {what}"
                yield Case(name, "refs", ours, peer, COMMIT_TARGET, 3)


def measure_memory(report: Report, folder: Path, number: int) -> None:
    """Both sides in fresh processes, which hold the columns before they begin."""
    for alike in (REFS_PER_LOCATION, 1):
        peaks: dict[str, tuple[float, float]] = {}
        for name in LIBRARIES:
            words = [name, str(folder), str(number), str(alike)]
            found = in_fresh_process(__file__, words)
            peaks[name] = found["peak"], found["peak"] - found["before"]
        (ours, ours_more), (peer, peer_more) = peaks.values()
        report.note(
            f"Peak memory of setting and committing {number:,} refs, {alike} a location, spec v2,"
            f" in a fresh process: ours {ours:,.0f} MiB, peer {peer:,.0f} MiB"
            f" (**{ours / peer:.2f}**, target {MEMORY_TARGET:g}); of these beyond the process and"
            f" its columns {ours_more:,.0f} and {peer_more:,.0f} MiB ({ours_more / peer_more:.2f})"
        )


def child(words: list[str]) -> None:
    name, folder, number, alike = words
    refs = References.of(int(number), int(alike))
    place = local(Path(folder) / name)
    measure_here(set_and_commit(LIBRARIES[name], place, 2, refs, only_commit=False))


# -- a large array -------------------------------------------------------------------------------


def write_array(
    library: ModuleType, place: Place, values: Any, *, packed: bool
) -> Callable[[Stopwatch], int]:
    """From a writable session to a commit, through zarr's interface."""

    def run(watch: Stopwatch) -> int:
        storage, discard = place(library)
        repository = library.Repository.create(storage)
        with watch:
            session = repository.writable_session("main")
            made = zarr.create_array(
                session.store,
                name="t",
                shape=values.shape,
                chunks=(1, ROW),
                dtype=values.dtype,
                compressors="auto" if packed else None,
            )
            made[...] = values
            session.commit("array")
        discard()
        return int(values.nbytes / 2**20)

    return run


def array_cases(place: Place, megabytes: int, target: float) -> Iterator[Case]:
    noise = np.random.default_rng(0).normal(280, 10, (megabytes, ROW)).astype("f4")
    values = np.round(noise, 1)
    for packed in (False, True):
        ours, peer = (
            write_array(library, place, values, packed=packed) for library in LIBRARIES.values()
        )
        codec = "zarr's default zstd" if packed else "no codec"
        yield Case(f"zarr array, chunks of 1 MiB, {codec}", "MiB", ours, peer, target, 5)


async def _set(store: Any, key: str, value: Any) -> None:
    await store.set(key, value)


def main() -> None:
    options = arguments(__doc__)
    if options.child:
        child(options.child)
        return
    megabytes, number = (128, 100_000) if options.quick else (1024, 1_000_000)
    if options.s3:
        isolate()
        report = Report("write --s3", S3_PEER, options.quick)
        with memory_folder() as folder, versitygw(folder) as server:
            place = on_s3(server, create_bucket(server, "bench"), folder / "objects")
            report.run_all(array_cases(place, megabytes, S3_TARGET))
        return
    report = Report("write", PEER, options.quick)
    with memory_folder() as folder:
        for case in virtual_cases(folder, number):
            report.run(case)
        for case in array_cases(local(folder), megabytes, LOCAL_TARGET):
            report.run(case)
        measure_memory(report, folder, number)
    report.write()


if __name__ == "__main__":
    main()
