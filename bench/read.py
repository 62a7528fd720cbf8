"""Reading from local disk: a large array through xarray, and single chunks of 4 kB at random."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from bench.datasets import NATIVE, NATIVE_SIZE, large_repository, small_repository
from bench.harness import Case, Report, Stopwatch, arguments, data_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    Side = Callable[[Stopwatch], int]

PEER = (
    "icechunk on a local folder with its default configuration and no cache of chunks, zarr with"
    " its default concurrency; the operating system has the files in memory"
)
FULL_READ_TARGET = 1.0
RANDOM_READ_TARGET = 0.67
AT_ONCE = 64


def opened(library: ModuleType, path: Path) -> Any:
    storage = library.local_filesystem_storage(str(path))
    return library.Repository.open(storage).readonly_session("main").store


def both(
    name: str, unit: str, work: Callable[[ModuleType], Side], target: float, rounds: int
) -> Case:
    """A case in which both libraries are asked for the same through zarr's interface."""
    return Case(name, unit, work(icechunk_stream), work(icechunk), target, rounds)


def full_read(library: ModuleType, path: Path) -> Side:
    """From opening the repository to the whole array in memory, without dask."""

    def run(watch: Stopwatch) -> int:
        with watch:
            store = opened(library, path)
            values = xr.open_zarr(store, consolidated=False, chunks=None)["t"].load()
        return int(values.nbytes / 2**20)

    return run


def full_cases(folder: Path, megabytes: int) -> Iterator[Case]:
    for packed in (False, True):
        codec = "zstd" if packed else "plain"
        path = large_repository(folder / f"large-{codec}-{megabytes}", megabytes, packed=packed)

        def work(library: ModuleType, path: Path = path) -> Side:
            return full_read(library, path)

        name = "zarr's default zstd" if packed else "no codec"
        yield both(f"xarray full read, chunks of 1 MiB, {name}", "MiB", work, FULL_READ_TARGET, 5)


def indexed(library: ModuleType, path: Path, order: list[int]) -> Side:
    """One slice of a zarr array after the other, each exactly a chunk."""
    array = zarr.open_array(opened(library, path), path=NATIVE, mode="r")

    def run(watch: Stopwatch) -> int:
        size = 0
        with watch:
            for number in order:
                start = number * NATIVE_SIZE
                size += np.asarray(array[start : start + NATIVE_SIZE]).nbytes
        return size

    return run


def one_by_one(library: ModuleType, path: Path, order: list[int]) -> Side:
    store = opened(library, path)
    prototype = default_buffer_prototype()

    async def read() -> int:
        size = 0
        for number in order:
            size += len(await store.get(f"{NATIVE}/c/{number}", prototype))
        return size

    return _in_loop(read)


def at_once(library: ModuleType, path: Path, order: list[int]) -> Side:
    store = opened(library, path)
    prototype = default_buffer_prototype()

    async def read() -> int:
        size = 0
        for first in range(0, len(order), AT_ONCE):
            keys = [f"{NATIVE}/c/{number}" for number in order[first : first + AT_ONCE]]
            found = await asyncio.gather(*(store.get(key, prototype) for key in keys))
            size += sum(map(len, found))
        return size

    return _in_loop(read)


def random_cases(folder: Path, reads: int) -> Iterator[Case]:
    chunks = reads
    path = small_repository(folder / f"small-{chunks}", chunks)
    order = np.random.default_rng(1).permutation(chunks)[:reads].tolist()
    ways = {
        "zarr array, one slice a chunk": indexed,
        "store.get, one after the other": one_by_one,
        f"store.get, {AT_ONCE} at once": at_once,
    }
    for name, way in ways.items():

        def work(library: ModuleType, way: Callable[..., Side] = way) -> Side:
            return way(library, path, order)

        yield both(f"random chunks of 4 kB: {name}", "bytes", work, RANDOM_READ_TARGET, 5)


def _in_loop(read: Callable[[], Any]) -> Side:
    def run(watch: Stopwatch) -> int:
        with watch:
            size: int = asyncio.run(read())
        return size

    return run


def main() -> None:
    options = arguments(__doc__)
    report = Report("read", PEER, options.quick)
    with data_folder(options.data) as folder:
        for case in full_cases(folder, 128 if options.quick else 1024):
            report.run(case)
        for case in random_cases(folder, 1000 if options.quick else 10_000):
            report.run(case)
    report.write()


if __name__ == "__main__":
    main()
