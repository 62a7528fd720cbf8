"""Arrays of virtual references that either library appends to; commits of them, timed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.uint64]

BATCH = 100
ARRAY = "a"
PER_FILE = 100
CHUNK = 1024
PREFIX = "s3://bucket/some/prefix/"
_LIBRARIES = {library.__name__: library for library in (icechunk_stream, icechunk)}


@dataclass(frozen=True, slots=True)
class Layout:
    """A library, and the references that a manifest may hold; None is the library's default."""

    module: str
    split: int | None = None

    @property
    def library(self) -> Any:
        return _LIBRARIES[self.module]

    @property
    def config(self) -> Any:
        if self.split is None:
            return None
        library = self.library
        every = library.ManifestSplitCondition.AnyArray()
        rule = {every: {library.ManifestSplitDimCondition.Any(): self.split}}
        splitting = library.ManifestSplittingConfig.from_dict(rule)
        return library.RepositoryConfig(manifest=library.ManifestConfig(splitting=splitting))

    def __str__(self) -> str:
        return self.module if self.split is None else f"{self.module}-{self.split}"


OURS, PEER = Layout("icechunk_stream"), Layout("icechunk")


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of a commit, and of all that a batch takes: its session, what it sets, its commit."""

    commit: float
    whole: float


@dataclass(slots=True)
class Archive:
    """A repository that a library keeps open, and how long its arrays are."""

    repository: Any
    lengths: dict[str, int]
    prefix: str = PREFIX
    spent: list[Spent] = field(default_factory=list)

    def append(self, count: int = BATCH, names: Iterable[str] | None = None) -> Spent:
        """Let arrays grow by so many references each; all of them if none are named."""
        began = perf_counter()
        return self.commit(self.grown(count, names), began)

    def append_chunks(self, count: int = BATCH) -> Spent:
        """Let the array grow by chunks of a kilobyte, objects of their own."""
        began = perf_counter()
        session = self.repository.writable_session("main")
        first, self.lengths[ARRAY] = self.lengths[ARRAY], self.lengths[ARRAY] + count
        asyncio.run(set_chunks(session.store, range(first, first + count)))
        return self.commit(session, began)

    def replace(self, specs: Sequence[Any]) -> Spent:
        """Write chunks anew that the array has."""
        began = perf_counter()
        session = self.repository.writable_session("main")
        session.store.set_virtual_refs(ARRAY, specs, validate_containers=False)
        return self.commit(session, began)

    def grown(self, count: int = BATCH, names: Iterable[str] | None = None) -> Any:
        """A session in which arrays have grown."""
        session, chosen = self.repository.writable_session("main"), list(names or self.lengths)
        sizes = {name: self.lengths[name] + count for name in chosen}
        asyncio.run(set_documents(session.store, sizes))
        for name, size in sizes.items():
            set_refs(session.store, name, range(self.lengths[name], size), self.prefix)
        self.lengths |= sizes
        return session

    def commit(self, session: Any, began: float) -> Spent:
        ready = perf_counter()
        session.commit("batch")
        done = perf_counter()
        self.spent.append(Spent(done - ready, done - began))
        return self.spent[-1]

    @property
    def commits(self) -> list[float]:
        """Seconds of every commit so far."""
        return [spent.commit for spent in self.spent]


def document(length: int) -> bytes:
    grid = {"name": "regular", "configuration": {"chunk_shape": [1]}}
    keys = {"name": "default", "configuration": {"separator": "/"}}
    members = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [length],
        "data_type": "uint8",
        "chunk_grid": grid,
        "chunk_key_encoding": keys,
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
        "attributes": {},
    }
    return json.dumps(members).encode()


async def set_documents(store: Any, lengths: Mapping[str, int]) -> None:
    buffer = default_buffer_prototype().buffer
    documents = ((name, buffer.from_bytes(document(size))) for name, size in lengths.items())
    await asyncio.gather(*(store.set(f"{name}/zarr.json", data) for name, data in documents))


async def set_chunks(store: Any, rows: range) -> None:
    """An array that ends with these chunks."""
    await set_documents(store, {ARRAY: rows.stop})
    chunk = default_buffer_prototype().buffer.from_bytes(bytes(CHUNK))
    await asyncio.gather(*(store.set(f"{ARRAY}/c/{row}", chunk) for row in rows))


def location(number: int, prefix: str = PREFIX) -> str:
    return f"{prefix}file-{number:08d}.nc"


def ranges(rows: Numbers) -> tuple[Numbers, Numbers]:
    """Where in its file each chunk is, and how long: as irregular as compressed chunks are."""
    files, ranks = np.unique(rows // PER_FILE, return_inverse=True)
    every = files[:, None] * PER_FILE + np.arange(PER_FILE, dtype=np.uint64)
    scattered = every * np.uint64(2_654_435_761) % np.uint64(2**32)
    lengths = (scattered % np.uint64(1024) + np.uint64(100)).astype(np.uint64)
    offsets = (np.cumsum(lengths, axis=1) - lengths).astype(np.uint64)
    places = rows % PER_FILE
    return offsets[ranks, places], lengths[ranks, places]


def set_refs(store: Any, name: str, rows: range, prefix: str = PREFIX) -> None:
    """Refer to chunks side by side, a file for each hundred; both libraries take columns."""
    offsets, lengths = ranges(np.arange(rows.start, rows.stop, dtype=np.uint64))
    locations: list[str] = []
    for first in range(rows.start - rows.start % PER_FILE, rows.stop, PER_FILE):
        inside = range(max(first, rows.start), min(first + PER_FILE, rows.stop))
        locations += [location(first // PER_FILE, prefix)] * len(inside)
    store.set_virtual_refs_arr(
        name,
        (len(rows),),
        locations,
        offsets,
        lengths,
        arr_offset=(rows.start,),
        validate_containers=False,
    )
