"""Repositories that the benchmarks read, written by the peer as its users would write them."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import icechunk
import numpy as np
import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype

from bench.harness import say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARRAY = "refs"
REFS_PER_LOCATION = 100
LENGTH = 4096
NATIVE, NATIVE_SIZE = "native", 1024
INLINE, INLINE_SIZE = "inline", 64
_PREFIX = "s3://bucket/"
_WRITES_AT_ONCE = 500

icechunk.set_logs_filter("error")


def kept(path: Path, write: Callable[[Path], None]) -> Path:
    """A repository that is there already, or is written now."""
    if not path.exists():
        say(f"writing {path.name}")
        new = path.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        write(new)
        new.rename(path)
    return path


def location(number: int) -> str:
    return f"{_PREFIX}some/prefix/file-{number:08d}.nc"


def locations(count: int) -> list[str]:
    """One location for each of ``count`` references, in runs of equal ones."""
    return [location(row // REFS_PER_LOCATION) for row in range(count)]


def offsets(count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.arange(count, dtype=np.uint64) % REFS_PER_LOCATION * LENGTH


def virtual_session(path: Path, spec: int, count: int) -> icechunk.Session:
    """A session of the peer that is about to commit virtual references."""
    config = icechunk.RepositoryConfig.default()
    store = icechunk.s3_store(region="us-east-1")
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(_PREFIX, store))
    storage = icechunk.local_filesystem_storage(str(path))
    repository = icechunk.Repository.create(storage, config, spec_version=spec)
    session = repository.writable_session("main")
    group = zarr.group(store=session.store)
    group.create_array(ARRAY, shape=(count,), chunks=(1,), dtype="f4", compressors=None)
    lengths = np.full(count, LENGTH, np.uint64)
    session.store.set_virtual_refs_arr(
        ARRAY, (count,), locations(count), offsets(count), lengths, validate_containers=False
    )
    return session


def virtual_repository(path: Path, spec: int, count: int) -> Path:
    return kept(path, lambda new: virtual_session(new, spec, count).commit("refs"))


def native_repository(path: Path, spec: int, count: int) -> Path:
    """Chunks of one byte, which are native because nothing may stand in the manifest."""

    def write(new: Path) -> None:
        config = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=0)
        session = _new_session(_local(new), config, spec)
        group = zarr.group(store=session.store)
        group.create_array(ARRAY, shape=(count,), chunks=(1,), dtype="u1", compressors=None)
        asyncio.run(_set_bytes(session.store, count))
        session.commit("refs")

    return kept(path, write)


def small_repository(path: Path, chunks: int) -> Path:
    return kept(path, lambda new: write_small(_local(new), chunks))


def write_small(storage: icechunk.Storage, chunks: int) -> None:
    """An array of chunks of 4 kB, and one whose chunks stand in the manifest."""
    session = _new_session(storage, icechunk.RepositoryConfig.default(), 2)
    group = zarr.group(store=session.store)
    for name, size in ((NATIVE, NATIVE_SIZE), (INLINE, INLINE_SIZE)):
        values = np.arange(chunks * size, dtype="f4")
        shape = values.shape
        array = group.create_array(name, shape=shape, chunks=(size,), dtype="f4", compressors=None)
        array[:] = values
    session.commit("chunks")


def large_repository(path: Path, megabytes: int, *, packed: bool) -> Path:
    return kept(path, lambda new: write_large(_local(new), megabytes, packed=packed))


def write_large(storage: icechunk.Storage, megabytes: int, *, packed: bool) -> None:
    """An array of chunks of 1 MB as xarray writes it; packed with zarr's default codec or not."""
    session = _new_session(storage, icechunk.RepositoryConfig.default(), 2)
    noise = np.random.default_rng(0).normal(280, 10, (megabytes, 2**18)).astype("f4")
    dataset = xr.Dataset({"t": (("time", "cell"), np.round(noise, 1))})
    encoding: dict[str, object] = {"chunks": (1, 2**18)}
    if not packed:
        encoding["compressors"] = None
    dataset.to_zarr(session.store, encoding={"t": encoding}, consolidated=False, zarr_format=3)
    session.commit("array")


def _local(path: Path) -> icechunk.Storage:
    return icechunk.local_filesystem_storage(str(path))


def _new_session(
    storage: icechunk.Storage, config: icechunk.RepositoryConfig, spec: int
) -> icechunk.Session:
    return icechunk.Repository.create(storage, config, spec_version=spec).writable_session("main")


async def _set_bytes(store: icechunk.IcechunkStore, count: int) -> None:
    buffer = default_buffer_prototype().buffer
    for first in range(0, count, _WRITES_AT_ONCE):
        rows = range(first, min(first + _WRITES_AT_ONCE, count))
        await asyncio.gather(
            *(store.set(f"{ARRAY}/c/{row}", buffer.from_bytes(b"\1")) for row in rows)
        )
