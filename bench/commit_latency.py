"""A batch of an append-only job, far from its store: the commit, and everything before it."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import icechunk
import numpy as np
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from bench.commit_refs import document
from bench.harness import Case, Report, arguments, say
from bench.s3_clients import isolate, memory_folder, s3_storage
from tests.object_stores import servers
from tests.object_stores.buckets import create_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Stopwatch

LATENCY_MS = 20
REFS, BATCH, CHUNK = 100_000, 100, 64 * 1024
# References a manifest may hold: the reference library is at its best with the smaller ones.
SPLITS = (500, 2_000, 10_000)
BUCKET = "bench"
SCENE = "scene"
PEER = (
    f"icechunk on versitygw behind toxiproxy with {LATENCY_MS} ms, one repository kept open,"
    " sessions opened for each batch; both sides have the splitting configuration that the line"
    " names. The server has its objects in memory"
)


@dataclass(frozen=True)
class Side:
    """One library on one repository, which grows by a batch each time."""

    library: Any
    repository: Any
    length: list[int]

    def batch(self, watch: Stopwatch, *, whole: bool) -> int:
        """Append a batch; ``whole`` also times opening the session and putting the chunks."""
        if whole:
            with watch:
                self._commit(self._write())
            return BATCH
        session = self._write()
        with watch:
            self._commit(session)
        return BATCH

    def _write(self) -> Any:
        session = self.repository.writable_session("main")
        asyncio.run(self._put(session.store))
        return session

    async def _put(self, store: Any) -> None:
        first, self.length[0] = self.length[0], self.length[0] + BATCH
        await store.set("a/zarr.json", _buffer(document(self.length[0])))
        chunk = _buffer(bytes(CHUNK))
        writes = [store.set(f"a/c/{index}", chunk) for index in range(first, self.length[0])]
        await asyncio.gather(*writes)

    def _commit(self, session: Any) -> None:
        session.commit("batch")


def _buffer(data: bytes) -> Any:
    return default_buffer_prototype().buffer.from_bytes(data)


def make_side(
    library: Any, near: servers.S3Server, far: servers.S3Server, spec: int, split: int
) -> Side:
    """A repository with an array of virtual references, opened again from afar."""
    prefix = f"{library.__name__}-{spec}-{split}"
    repository = library.Repository.create(
        s3_storage(library, near, BUCKET, prefix), config=config(library, split), spec_version=spec
    )
    session = repository.writable_session("main")
    asyncio.run(session.store.set("a/zarr.json", _buffer(document(REFS))))
    session.store.set_virtual_refs_arr(
        "a",
        (REFS,),
        [f"s3://elsewhere/{index // 100:08}.nc" for index in range(REFS)],
        np.arange(REFS, dtype=np.uint64) * CHUNK,
        np.full(REFS, CHUNK, np.uint64),
        validate_containers=False,
    )
    session.commit("before")
    opened = library.Repository.open(s3_storage(library, far, BUCKET, prefix))
    return Side(library, opened, [REFS])


def config(library: Any, split: int) -> Any:
    every = library.ManifestSplitCondition.AnyArray()
    rule = {every: {library.ManifestSplitDimCondition.Any(): split}}
    splitting = library.ManifestSplittingConfig.from_dict(rule)
    return library.RepositoryConfig(manifest=library.ManifestConfig(splitting=splitting))


def cases(near: servers.S3Server, far: servers.S3Server, rounds: int) -> Iterator[Case]:
    for spec in (1, 2):
        for split in SPLITS:
            say(f"spec v{spec}, manifests of {split:,} refs")
            ours = make_side(icechunk_stream, near, far, spec, split)
            peer = make_side(icechunk, near, far, spec, split)
            for whole, name, target in ((False, "commit", 1 / 0.6), (True, "whole batch", 1)):
                yield Case(
                    name=f"v{spec}, manifests of {split:,}: {name}",
                    unit="chunks of 64 kB",
                    ours=partial(ours.batch, whole=whole),
                    peer=partial(peer.batch, whole=whole),
                    target=round(target, 2),
                    rounds=rounds,
                )


def main() -> None:
    options = arguments(__doc__ or "")
    isolate()
    with (
        memory_folder() as objects,
        tempfile.TemporaryDirectory() as logs,
        servers.versitygw(objects) as near,
        servers.toxiproxy(Path(logs)) as proxy,
    ):
        create_bucket(near, BUCKET)
        address = proxy.forward("s3", urlsplit(near.endpoint).netloc)
        proxy.add_toxic("s3", "latency", "downstream", latency=LATENCY_MS)
        far = servers.S3Server(
            f"http://{address}", near.access_key_id, near.secret_access_key, near.region
        )
        report = Report("commit_latency", PEER, options.quick)
        report.run_all(cases(near, far, 15))


if __name__ == "__main__":
    main()
