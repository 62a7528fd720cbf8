"""What the fresh processes of a benchmark do: write a stream, open it, look up, compare."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from bench.commit_bases import created, local_storage, opened
from bench.commit_refs import ARRAY, BATCH, OURS, PER_FILE, Layout, location, ranges
from bench.harness import say
from tests.resident import forget_peak, peak, resident

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    Rows = npt.NDArray[np.uint64]

SPEC, LOOKUPS, MIB = 1, 1_000, 2**20
_SAMPLED, _TOLD = 500, 10_000


# -- writing ---------------------------------------------------------------------------------------


def write(path: Path, batches: int, prefix: str) -> dict[str, Any]:
    """Commit batch after batch; seconds of each, and what this process had in memory."""
    forget_peak()
    start = most = resident()
    archive = created(OURS, local_storage(icechunk_stream, path), SPEC)
    archive.prefix = prefix
    for number in range(1, batches + 1):
        archive.append()
        if number % _SAMPLED == 0:
            most = max(most, resident())
        if number % _TOLD == 0:
            say(f"{number:,} batches, {(resident() - start) / MIB:.0f} MiB more than before")
    tip = archive.repository.lookup_branch("main")
    return {
        "commits": archive.commits,
        "whole": [spent.whole for spent in archive.spent],
        "manifests": len(archive.repository.list_manifest_files(tip)),
        "resident": (most - start) / MIB,
        "peak": (peak() - start) / MIB,
    }


# -- reading ---------------------------------------------------------------------------------------


def look_up(library: Any, path: Path, refs: int) -> dict[str, float]:
    """Seconds from opening to the last of many look-ups, and of as many more."""
    cold, warm = np.random.default_rng(0).integers(0, refs, (2, LOOKUPS)).tolist()
    began = perf_counter()
    session = library.Repository.open(local_storage(library, path)).readonly_session("main")
    _look_up(library, session, cold)
    found = perf_counter()
    _look_up(library, session, warm)
    return {"cold": found - began, "warm": perf_counter() - found}


def _look_up(library: Any, session: Any, rows: Iterable[int]) -> None:
    for row in rows:
        if session.chunk_type(f"/{ARRAY}", [row]) != library.ChunkType.virtual:
            raise ValueError(f"{library.__name__} does not find reference {row}")


def open_to_write(path: Path, refs: int) -> dict[str, float]:
    """Seconds of opening, of a writable session, and of a first and a second batch."""
    began = perf_counter()
    archive = opened(OURS, local_storage(icechunk_stream, path), refs)
    ready = perf_counter()
    archive.repository.writable_session("main")
    writable = perf_counter()
    first, second = archive.append(), archive.append()
    return {
        "open": ready - began,
        "session": writable - ready,
        "first": first.commit,
        "second": second.commit,
    }


def values_read(refs: int) -> Rows:
    """The chunks whose bytes are compared."""
    return np.random.default_rng(1).integers(0, refs, LOOKUPS, dtype=np.uint64)


def write_values(folder: Path, rows: Rows) -> None:
    """The files that chunks are in; each chunk has bytes of its own."""
    folder.mkdir(exist_ok=True)
    for number in np.unique(rows // PER_FILE).tolist():
        at, lengths = ranges(np.arange(number * PER_FILE, (number + 1) * PER_FILE, dtype=np.uint64))
        Path(location(number, f"{folder}/")).write_bytes(
            _content(number, int(at[-1] + lengths[-1]))
        )


def _content(number: int, size: int) -> bytes:
    return np.random.default_rng(number).bytes(size)


def read_values(library: Any, path: Path, folder: Path, refs: int) -> dict[str, float]:
    """Read chunks, then all references; an error unless each is what was written."""
    prefix = f"{folder.as_uri()}/"
    store = library.local_filesystem_store(str(folder))
    config = library.RepositoryConfig.default()
    config.set_virtual_chunk_container(library.VirtualChunkContainer(prefix, store))
    began = perf_counter()
    storage = local_storage(library, path)
    access = None if library is icechunk_stream else icechunk.credentials.LocalFileSystemAccess
    repository = library.Repository.open(
        storage, config, authorize_virtual_chunk_access={prefix: access}
    )
    session = repository.readonly_session("main")
    asyncio.run(_compare_chunks(session.store, values_read(refs)))
    chunks = perf_counter()
    asyncio.run(_compare_refs(session.store, refs, prefix))
    return {"chunks": chunks - began, "refs": perf_counter() - chunks}


async def _compare_chunks(store: Any, rows: Rows) -> None:
    offsets, lengths = ranges(rows)
    wanted = zip(rows.tolist(), offsets.tolist(), lengths.tolist(), strict=True)
    for row, offset, length in wanted:
        data = await store.get(f"{ARRAY}/c/{row}", default_buffer_prototype())
        if data.to_bytes() != _content(row // PER_FILE, offset + length)[offset:]:
            raise ValueError(f"chunk {row} has other bytes than were written")


async def _compare_refs(store: Any, refs: int, prefix: str) -> None:
    seen = 0
    async for indices, _, places, offsets, lengths, _ in store.array_chunk_iterator(
        ARRAY, BATCH**2
    ):
        rows = np.asarray(indices).reshape(-1).astype(np.uint64)
        if any(
            not np.array_equal(a, b) for a, b in zip(ranges(rows), (offsets, lengths), strict=True)
        ):
            raise ValueError("a reference has another range than was written")
        if list(places) != [location(number, prefix) for number in (rows // PER_FILE).tolist()]:
            raise ValueError("a reference has another location than was written")
        seen += len(rows)
    if seen != refs:
        raise ValueError(f"{seen:,} references are there, not {refs:,}")


def child(words: list[str]) -> dict[str, Any]:
    match words:
        case ["write", path, batches, prefix]:
            return write(Path(path), int(batches), prefix)
        case ["open", path, refs]:
            return open_to_write(Path(path), int(refs))
        case ["read", module, path, refs]:
            return look_up(Layout(module).library, Path(path), int(refs))
        case ["values", module, path, folder, refs]:
            return read_values(Layout(module).library, Path(path), Path(folder), int(refs))
        case _:
            raise ValueError(f"no such child: {words}")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(child(sys.argv[2:])))
