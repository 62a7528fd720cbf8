"""Reading from local disk or S3: a large array through xarray, random single chunks of 4 kB."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from bench.datasets import (
    NATIVE,
    NATIVE_SIZE,
    large_repository,
    small_repository,
    write_large,
    write_small,
)
from bench.harness import Case, Report, Stopwatch, arguments, data_folder, say
from bench.loopback import CONGESTION_CONTROL, machine_congestion_control, send_as_linux_does
from bench.s3_clients import isolate, memory_folder, s3_storage
from tests.object_stores.buckets import create_bucket
from tests.object_stores.servers import versitygw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    from tests.object_stores.servers import S3Server

    Side = Callable[[Stopwatch], int]
    # A library's storage of a repository.
    Place = Callable[[ModuleType], Any]

PEER = (
    "icechunk on a local folder with its default configuration and no cache of chunks, zarr with"
    " its default concurrency; the operating system has the files in memory"
)
S3_PEER = (
    "icechunk with its default configuration and no cache of chunks, zarr with its default"
    " concurrency where the name says nothing else, both on versitygw, which runs on the same"
    f" cores, has its files in memory, and sends by {CONGESTION_CONTROL}, Linux's default, where"
    " the name says nothing else. Ours with obstore, on connections that it keeps between rounds"
)
FULL_READ_TARGET = 1.0
RANDOM_READ_TARGET = 0.67
AT_ONCE = 64


def opened(library: ModuleType, place: Place) -> Any:
    return library.Repository.open(place(library)).readonly_session("main").store


def local(path: Path) -> Place:
    return lambda library: library.local_filesystem_storage(str(path))


def both(
    name: str, unit: str, work: Callable[[ModuleType], Side], target: float, rounds: int
) -> Case:
    """A case in which both libraries are asked for the same through zarr's interface."""
    return Case(name, unit, work(icechunk_stream), work(icechunk), target, rounds)


def full_read(library: ModuleType, place: Place, concurrency: int, *, kept: bool) -> Side:
    """The whole array into memory, without dask: from opening the repository, unless it is kept."""
    held = opened(library, place) if kept else None

    def run(watch: Stopwatch) -> int:
        with zarr.config.set({"async.concurrency": concurrency}), watch:
            store = opened(library, place) if held is None else held
            values = xr.open_zarr(store, consolidated=False, chunks=None)["t"].load()
        return int(values.nbytes / 2**20)

    return run


def full_case(
    place: Place, rounds: int, *, packed: bool, at_once: int | None = None, kept: bool = False
) -> Case:
    """``at_once`` is how many chunks zarr asks for together; its default where it is None.

    ``kept`` repositories stay open between rounds, on both sides.
    """
    concurrency: int = at_once or zarr.config.get("async.concurrency")
    name = "zarr's default zstd" if packed else "no codec"
    name = f"xarray full read, chunks of 1 MiB, {name}"
    if at_once is not None:
        name += f", {at_once} at once"
    if kept:
        name += ", repository kept open"

    def work(library: ModuleType) -> Side:
        return full_read(library, place, concurrency, kept=kept)

    return both(name, "MiB", work, FULL_READ_TARGET, rounds)


def full_cases(folder: Path, megabytes: int) -> Iterator[Case]:
    for packed in (False, True):
        codec = "zstd" if packed else "plain"
        path = large_repository(folder / f"large-{codec}-{megabytes}", megabytes, packed=packed)
        yield full_case(local(path), 9, packed=packed)


def indexed(library: ModuleType, place: Place, order: list[int]) -> Side:
    """One slice of a zarr array after the other, each exactly a chunk."""
    array = zarr.open_array(opened(library, place), path=NATIVE, mode="r")

    def run(watch: Stopwatch) -> int:
        size = 0
        with watch:
            for number in order:
                start = number * NATIVE_SIZE
                size += np.asarray(array[start : start + NATIVE_SIZE]).nbytes
        return size

    return run


def one_by_one(library: ModuleType, place: Place, order: list[int]) -> Side:
    store = opened(library, place)
    prototype = default_buffer_prototype()

    async def read() -> int:
        size = 0
        for number in order:
            size += len(await store.get(f"{NATIVE}/c/{number}", prototype))
        return size

    return _in_loop(read)


def at_once(library: ModuleType, place: Place, order: list[int]) -> Side:
    store = opened(library, place)
    prototype = default_buffer_prototype()

    async def read() -> int:
        size = 0
        for first in range(0, len(order), AT_ONCE):
            keys = [f"{NATIVE}/c/{number}" for number in order[first : first + AT_ONCE]]
            found = await asyncio.gather(*(store.get(key, prototype) for key in keys))
            size += sum(map(len, found))
        return size

    return _in_loop(read)


def random_cases(place: Place, reads: int, patient_rounds: int) -> Iterator[Case]:
    """``patient_rounds`` is for the ways that wait for each chunk before the next."""
    order = np.random.default_rng(1).permutation(reads).tolist()
    ways: dict[str, tuple[Callable[..., Side], int]] = {
        "zarr array, one slice a chunk": (indexed, patient_rounds),
        "store.get, one after the other": (one_by_one, patient_rounds),
        f"store.get, {AT_ONCE} at once": (at_once, 5),
    }
    for name, (way, rounds) in ways.items():

        def work(library: ModuleType, way: Callable[..., Side] = way) -> Side:
            return way(library, place, order)

        yield both(f"random chunks of 4 kB: {name}", "bytes", work, RANDOM_READ_TARGET, rounds)


def s3_place(server: S3Server, bucket: str, name: str) -> Place:
    return lambda library: s3_storage(library, server, bucket, name)


def s3_cases(folder: Path, megabytes: int, reads: int) -> Iterator[Case]:
    with versitygw(folder) as server:
        send_as_linux_does(server)
        bucket = create_bucket(server, "bench")
        for packed in (False, True):
            place = s3_large(server, bucket, megabytes, packed=packed)
            # Two processes on the same cores make more noise than one.
            yield full_case(place, 25, packed=packed)
            yield full_case(place, 25, packed=packed, at_once=AT_ONCE)
        place = s3_place(server, bucket, "small")
        say("writing small chunks")
        write_small(place(icechunk), reads)
        yield from random_cases(place, reads, 2)


def as_sent_here(folder: Path, megabytes: int) -> Iterator[Case]:
    """Full reads from a server that sends as the machine is set up, where that is otherwise.

    Only where both sides keep their repositories do both keep their connections.
    """
    algorithm = machine_congestion_control()
    if algorithm == CONGESTION_CONTROL:
        return
    with versitygw(folder) as server:
        place = s3_large(server, create_bucket(server, "bench"), megabytes, packed=False)
        for kept in (False, True):
            case = full_case(place, 25, packed=False, kept=kept)
            yield replace(case, name=f"{case.name}, sent by {algorithm}", target=None)


def s3_large(server: S3Server, bucket: str, megabytes: int, *, packed: bool) -> Place:
    place = s3_place(server, bucket, f"large-{packed}")
    say("writing a large array")
    write_large(place(icechunk), megabytes, packed=packed)
    return place


def _in_loop(read: Callable[[], Any]) -> Side:
    def run(watch: Stopwatch) -> int:
        with watch:
            size: int = asyncio.run(read())
        return size

    return run


def read_locally(folder: Path, megabytes: int, reads: int) -> Iterator[Case]:
    yield from full_cases(folder, megabytes)
    place = local(small_repository(folder / f"small-{reads}", reads))
    yield from random_cases(place, reads, 5)


def main() -> None:
    options = arguments(__doc__)
    megabytes, reads = (128, 1000) if options.quick else (1024, 10_000)
    if not options.s3:
        report = Report("read", PEER, options.quick)
        with data_folder(options.data) as folder:
            report.run_all(read_locally(folder, megabytes, reads))
        return
    isolate()
    report = Report("read --s3", S3_PEER, options.quick)
    with memory_folder() as folder:
        alike = s3_cases(folder / "alike", megabytes, reads)
        report.run_all(chain(alike, as_sent_here(folder / "here", megabytes)))


if __name__ == "__main__":
    main()
