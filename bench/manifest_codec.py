"""Manifests: bytes on disk to a first look-up and to all payloads, encoding, and warm ``get``."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pyarrow as pa
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from bench.datasets import (
    ARRAY,
    INLINE,
    LENGTH,
    NATIVE,
    REFS_PER_LOCATION,
    location,
    locations,
    native_repository,
    offsets,
    small_repository,
    virtual_repository,
    virtual_session,
)
from bench.harness import (
    Case,
    Report,
    Stopwatch,
    arguments,
    data_folder,
    in_fresh_process,
    measure_here,
)
from icechunk_stream.format.chunk_refs import RefKind
from icechunk_stream.format.ids import ManifestId, NodeId
from icechunk_stream.format.manifest import decode_manifest
from icechunk_stream.format.manifest_encode import encode_manifest
from icechunk_stream.format.ref_tables import RefTable
from icechunk_stream.storage import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    Side = Callable[[Stopwatch], int]

PEER = (
    "icechunk on a local folder, default configuration, no cache kept between rounds"
    " (each opens the repository anew); the operating system has the files in memory"
)
LOOKUP_TARGET = 1.3
PAYLOADS_TARGET = 2.0
GET_TARGET = 0.5
NODE = NodeId(bytes(7) + b"\1")
MANIFEST = ManifestId(bytes(11) + b"\1")
KEY = f"manifests/{MANIFEST}"


def both(
    name: str,
    unit: str,
    work: Callable[[ModuleType], Side],
    target: float | None,
    rounds: int = 7,
) -> Case:
    """A case in which both libraries do the same through their common interface."""
    return Case(name, unit, work(icechunk_stream), work(icechunk), target, rounds)


def opened(library: ModuleType, path: Path) -> Any:
    """A session on a repository of which nothing is in a cache."""
    storage = library.local_filesystem_storage(str(path))
    return library.Repository.open(storage).readonly_session("main")


def first_lookup(library: ModuleType, path: Path, refs: int) -> Side:
    def run(watch: Stopwatch) -> int:
        with watch:
            kind = opened(library, path).chunk_type(f"/{ARRAY}", [refs // 2])
        if kind == library.ChunkType.uninitialized:
            raise ValueError(f"{library.__name__} does not find a reference")
        return refs

    return run


def all_payloads(library: ModuleType, path: Path, batch: int) -> Side:
    async def count() -> int:
        refs = 0
        batches = opened(library, path).store.array_chunk_iterator(f"/{ARRAY}", batch)
        async for _, kinds, places, _, _, _ in batches:
            if len(kinds) != len(places):
                raise ValueError(f"{library.__name__} gives columns that do not fit")
            refs += len(places)
        return refs

    def run(watch: Stopwatch) -> int:
        with watch:
            return asyncio.run(count())

    return run


def all_locations(library: ModuleType, path: Path) -> Side:
    def run(watch: Stopwatch) -> int:
        with watch:
            return len(opened(library, path).all_virtual_chunk_locations())

    return run


def load_cases(kind: str, spec: int, path: Path, refs: int) -> list[Case]:
    def lookup(library: ModuleType) -> Side:
        return first_lookup(library, path, refs)

    def payloads(library: ModuleType) -> Side:
        return all_payloads(library, path, 100_000)

    name = f"{kind}, spec v{spec}"
    return [
        both(f"{name}: first look-up", "refs", lookup, LOOKUP_TARGET),
        both(f"{name}: all payloads", "refs", payloads, PAYLOADS_TARGET),
    ]


def location_case(spec: int, path: Path) -> Case:
    def work(library: ModuleType) -> Side:
        return all_locations(library, path)

    return both(f"virtual, spec v{spec}: all locations, nothing else", "refs", work, None)


# -- encoding ------------------------------------------------------------------------------------


def encoded(spec: int, count: int, names: pa.Array) -> bytes:
    """A manifest of virtual references."""
    table = RefTable(
        indices=np.arange(count, dtype=np.uint32)[:, None],
        kinds=np.full(count, RefKind.VIRTUAL, np.uint8),
        offsets=offsets(count),
        lengths=np.full(count, LENGTH, np.uint64),
        locations=names,
    )
    return encode_manifest(MANIFEST, {NODE: table}, spec)


def encode_case(folder: Path, spec: int, count: int) -> Case:
    names = locations(count)
    storage = LocalStorage(folder / "encoded")

    def ours(watch: Stopwatch) -> int:
        with watch:
            storage.put(KEY, encoded(spec, count, pa.array(names, pa.large_string())))
        return count

    def peer(watch: Stopwatch) -> int:
        path = folder / "commit"
        shutil.rmtree(path, ignore_errors=True)
        session = virtual_session(path, spec, count)
        with watch:
            session.commit("refs")
        return count

    name = f"virtual: list of strings to durable manifest (peer: commit of set references, v{spec})"
    return Case(name, "refs", ours, peer, rounds=3)


# -- memory --------------------------------------------------------------------------------------


def child(words: list[str]) -> None:
    """The work of a fresh process, whose memory is measured."""
    match words:
        case ["encode", folder, count]:
            measure_here(lambda watch: _encode(watch, Path(folder), int(count)))
        case ["decode", folder]:
            measure_here(lambda watch: _decode(watch, Path(folder)))
        case [library, folder, count]:
            module = {"icechunk": icechunk, "icechunk_stream": icechunk_stream}[library]
            measure_here(first_lookup(module, Path(folder), int(count)))
        case _:
            raise ValueError(f"no such child: {words}")


def _encode(watch: Stopwatch, folder: Path, count: int) -> int:
    numbers = np.arange(count, dtype=np.int32) // REFS_PER_LOCATION
    distinct = pa.array([location(number) for number in range(int(numbers[-1]) + 1)])
    with watch:
        names = pa.DictionaryArray.from_arrays(numbers, distinct)
        LocalStorage(folder).put(KEY, encoded(2, count, names))
    return count


def _decode(watch: Stopwatch, folder: Path) -> int:
    with watch:
        refs = decode_manifest(LocalStorage(folder).get(KEY), KEY).arrays[NODE]
        if refs.find((len(refs) // 2,)) is None:
            raise ValueError("a reference is not found")
    return len(refs)


def measure_memory(report: Report, folder: Path, count: int) -> None:
    place = str(folder / f"manifest-{count}")
    encoding = "encoded by us from Arrow columns to a durable object"
    _note_memory(report, encoding, ["encode", place, str(count)])
    _note_memory(report, "decoded by us", ["decode", place])
    if not report.quick:
        path = virtual_repository(folder / f"virtual-2-{count}", 2, count)
        for library in ("icechunk_stream", "icechunk"):
            what = f"written by icechunk, opened and looked up by {library}"
            _note_memory(report, what, [library, str(path), str(count)])


def _note_memory(report: Report, what: str, words: list[str]) -> None:
    found = in_fresh_process(__file__, words)
    report.note(
        f"{found['units']:,} refs {what} in a fresh process: {found['seconds']:.2f} s,"
        f" peak {found['peak']:,.0f} MiB ({found['before']:,.0f} MiB before)"
    )


# -- warm get ------------------------------------------------------------------------------------


def warm_get(library: ModuleType, path: Path, keys: list[str], calls: int) -> Side:
    """``await store.get`` one after the other in one event loop."""
    store = opened(library, path).store
    prototype = default_buffer_prototype()

    async def get() -> int:
        size = 0
        for call in range(calls):
            size += len(await store.get(keys[call % len(keys)], prototype))
        return size

    def run(watch: Stopwatch) -> int:
        with watch:
            asyncio.run(get())
        return calls

    return run


def get_cases(folder: Path, calls: int) -> list[Case]:
    chunks = 1000
    path = small_repository(folder / f"small-{chunks}", chunks)
    kinds = {
        "native chunk of 4 kB": [f"{NATIVE}/c/{number}" for number in range(chunks)],
        "inline chunk": [f"{INLINE}/c/{number}" for number in range(chunks)],
        "zarr.json": [f"{NATIVE}/zarr.json"],
    }

    def case(kind: str) -> Case:
        def work(library: ModuleType) -> Side:
            return warm_get(library, path, kinds[kind], calls)

        return both(f"warm store.get: {kind}", "calls", work, GET_TARGET, rounds=5)

    return [case(kind) for kind in kinds]


def cases(folder: Path, virtual: int, native: int, calls: int) -> Iterator[Case]:
    """All cases; data are written when their turn comes."""
    for spec in (1, 2):
        path = virtual_repository(folder / f"virtual-{spec}-{virtual}", spec, virtual)
        yield from load_cases("virtual", spec, path, virtual)
        yield location_case(spec, path)
    for spec in (1, 2):
        path = native_repository(folder / f"native-{spec}-{native}", spec, native)
        yield from load_cases("native", spec, path, native)
    for spec in (1, 2):
        yield encode_case(folder, spec, virtual)
    yield from get_cases(folder, calls)


def main() -> None:
    options = arguments(__doc__)
    if options.child:
        child(options.child)
        return
    virtual, native, calls, large = 1_000_000, 100_000, 20_000, 10_000_000
    if options.quick:
        virtual, native, calls, large = 200_000, 10_000, 2_000, 1_000_000
    report = Report("manifest_codec", PEER, options.quick)
    with data_folder(options.data) as folder:
        for case in cases(folder, virtual, native, calls):
            report.run(case)
        measure_memory(report, folder, large)
    report.note(
        "All payloads: `store.array_chunk_iterator` with its default batches on both sides, the"
        " only public call of the reference that yields every index with kind, location or chunk"
        " id, offset and length; `inspect_manifest` gives totals, `all_virtual_chunk_locations`"
        " locations alone."
    )
    report.write()


if __name__ == "__main__":
    main()
