"""Where the sides of a benchmark of the sink store: folders of a disk, or of a far object store."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import icechunk

import icechunk_stream
from bench.s3_clients import isolate, memory_folder, s3_storage
from tests.object_stores import servers
from tests.object_stores.buckets import create_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.object_stores.servers import S3Server

LATENCY_MS = 20
_BUCKET = "bench"
# What a file was when it was last looked at: another one of its name has another number.
Seen = dict[Path, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Place:
    """A folder for one side, on disk or below a bucket of a server."""

    folder: Path
    server: S3Server | None = None

    @property
    def ours(self) -> Any:
        if self.server is not None:
            return s3_storage(icechunk_stream, self.server, _BUCKET, self.folder.name)
        return icechunk_stream.local_filesystem_storage(str(self.folder), durability="os")

    @property
    def icechunk(self) -> Any:
        if self.server is not None:
            return s3_storage(icechunk, self.server, _BUCKET, self.folder.name)
        return icechunk.local_filesystem_storage(str(self.folder))

    def seen(self) -> Seen:
        """The files that are there now."""
        found = {}
        for path in self.folder.rglob("*"):
            if path.is_file():
                about = path.stat()
                found[path] = (about.st_ino, about.st_mtime_ns, about.st_size)
        return found


@dataclass(frozen=True, slots=True)
class Put:
    """Files that were made or replaced."""

    objects: int
    size: int

    @classmethod
    def between(cls, before: Seen, after: Seen) -> Put:
        sizes = [about[2] for path, about in after.items() if before.get(path) != about]
        return cls(len(sizes), sum(sizes))


@dataclass(frozen=True, slots=True)
class Places:
    """A folder for each side."""

    folder: Path
    server: S3Server | None = None

    def of(self, name: str) -> Place:
        return Place(self.folder / name, self.server)


@contextmanager
def far_places() -> Iterator[Places]:
    """Below a bucket of a server whose answers take a while, and whose objects are in memory."""
    isolate()
    with (
        memory_folder() as folder,
        servers.versitygw(folder) as near,
        servers.toxiproxy(folder) as proxy,
    ):
        create_bucket(near, _BUCKET)
        address = proxy.forward("far", urlsplit(near.endpoint).netloc)
        proxy.add_toxic("far", "latency", "downstream", latency=LATENCY_MS)
        far = replace(near, endpoint=f"http://{address}")
        yield Places(folder / "objects" / _BUCKET, far)
