"""The same bulk requests through different clients of S3."""

from __future__ import annotations

import asyncio
import os
import tempfile
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import boto3
import icechunk
import numpy as np
import zarr
from botocore.config import Config
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype

from icechunk_stream.credentials import s3_static_credentials
from icechunk_stream.storage import S3Access, S3Storage
from icechunk_stream.storage.values import ReadRequest, Span
from tests.object_stores.servers import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from icechunk_stream.storage.s3_settings import Bulk
    from tests.object_stores.servers import S3Server

_MEMORY = Path("/dev/shm")
_BATCH_BYTES = 256 * 2**20
_FIRST = 100
_numbers = count()


@dataclass(frozen=True, slots=True)
class Places:
    """A bucket of a server, in which each client works below a prefix of its own."""

    server: S3Server
    bucket: str


class Client(ABC):
    """A client of a bucket: ``put`` writes new objects, ``get`` reads those that ``keep`` wrote."""

    name: ClassVar[str]

    def __init__(self, places: Places) -> None:
        self.places = places
        self.prefix = f"client-{next(_numbers)}"
        self.kept = f"{self.prefix}-kept"

    @property
    def new_folder(self) -> str:
        """The folder below the bucket that holds what ``put`` wrote."""
        return f"{self.prefix}/chunks"

    def put(self, number: int, size: int) -> int:
        """Write objects of a size; how many."""
        body = _noise(size)
        for rows in _in_batches(number, size):
            self._put(self.prefix, rows, body)
        return number

    def keep(self, number: int, size: int) -> None:
        for rows in _in_batches(number, size):
            self._put(self.kept, rows, _noise(size))

    def get(self, number: int, size: int, wanted: int) -> int:
        """Read so many bytes of each object; how many objects."""
        start = min(_FIRST, size - wanted)
        for rows in _in_batches(number, wanted):
            found = self._get(self.kept, rows, start, start + wanted)
            assert [len(data) for data in found] == [wanted] * len(rows)
        return number

    @abstractmethod
    def _put(self, prefix: str, rows: range, body: bytes) -> None: ...

    @abstractmethod
    def _get(self, prefix: str, rows: range, start: int, end: int) -> Sequence[Any]: ...


class Ours(Client):
    """The storage of this library, as its repositories use it."""

    bulk: ClassVar[Bulk]

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        self._storages = {prefix: self._open(prefix) for prefix in (self.prefix, self.kept)}

    def _open(self, prefix: str) -> S3Storage:
        server = self.places.server
        access = S3Access(
            region=server.region,
            endpoint_url=server.endpoint,
            allow_http=True,
            force_path_style=True,
            bulk=self.bulk,
        )
        key = s3_static_credentials(
            access_key_id=server.access_key_id, secret_access_key=server.secret_access_key
        )
        return S3Storage(self.places.bucket, prefix, access, key)

    def _put(self, prefix: str, rows: range, body: bytes) -> None:
        self._storages[prefix].put_many([(_key(row), body) for row in rows])

    def _get(self, prefix: str, rows: range, start: int, end: int) -> Sequence[Any]:
        span = Span(start, end)
        return self._storages[prefix].get_many([ReadRequest(_key(row), span) for row in rows])


class WithObstore(Ours):
    name = "ours, obstore"
    bulk = "obstore"


class WithBoto3(Ours):
    name = "ours, boto3"
    bulk = "boto3"


class Plain(Client):
    """boto3 without anything around it but threads."""

    name = "plain boto3"

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        threads = S3Access().concurrency
        server = places.server
        self._client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            aws_access_key_id=server.access_key_id,
            aws_secret_access_key=server.secret_access_key,
            region_name=server.region,
            config=Config(
                s3={"addressing_style": "path"},
                max_pool_connections=threads,
                retries={"total_max_attempts": 1},
            ),
        )
        self.pool = ThreadPoolExecutor(threads)

    def _put(self, prefix: str, rows: range, body: bytes) -> None:
        put = partial(self._client.put_object, Bucket=self.places.bucket, Body=body)
        list(self.pool.map(lambda row: put(Key=f"{prefix}/{_key(row)}"), rows))

    def _get(self, prefix: str, rows: range, start: int, end: int) -> list[bytes]:
        wanted = {"Bucket": self.places.bucket, "Range": f"bytes={start}-{end - 1}"}

        def get(row: int) -> bytes:
            answer = self._client.get_object(Key=f"{prefix}/{_key(row)}", **wanted)
            data: bytes = answer["Body"].read()
            return data

        return list(self.pool.map(get, rows))


class Reference(Client):
    """icechunk's client, which is reached through chunks of its store."""

    name = "icechunk"

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        self._stores: dict[str, icechunk.IcechunkStore] = {}

    def _store(self, prefix: str, size: int) -> icechunk.IcechunkStore:
        if prefix not in self._stores:
            storage = s3_storage(icechunk, self.places.server, self.places.bucket, prefix)
            session = icechunk.Repository.create(storage).writable_session("main")
            shape = (2**20 * size,)
            zarr.group(store=session.store).create_array(
                "a", shape=shape, chunks=(size,), dtype="u1", compressors=None
            )
            self._stores[prefix] = session.store
        return self._stores[prefix]

    def _put(self, prefix: str, rows: range, body: bytes) -> None:
        store = self._store(prefix, len(body))
        buffer = default_buffer_prototype().buffer.from_bytes(body)

        async def put() -> None:
            await asyncio.gather(*(store.set(f"a/c/{row}", buffer) for row in rows))

        asyncio.run(put())

    def _get(self, prefix: str, rows: range, start: int, end: int) -> list[Any]:
        store = self._stores[prefix]
        prototype, wanted = default_buffer_prototype(), RangeByteRequest(start, end)

        async def get() -> list[Any]:
            reads = (store.get(f"a/c/{row}", prototype, wanted) for row in rows)
            return list(await asyncio.gather(*reads))

        return asyncio.run(get())


def isolate() -> None:
    """No client may look for a metadata service, or for a way around."""
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = HOST


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder for a server's objects: in memory where that can be, as disks make noise."""
    root = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="bench-", dir=root) as folder:
        yield Path(folder)


def s3_storage(library: ModuleType, server: S3Server, bucket: str, prefix: str) -> Any:
    """A library's storage on a server."""
    return library.s3_storage(
        bucket=bucket,
        prefix=prefix,
        endpoint_url=server.endpoint,
        region=server.region,
        allow_http=True,
        force_path_style=True,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
    )


def _key(row: int) -> str:
    return f"chunks/{row:020d}"


def _noise(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


def _in_batches(number: int, size: int) -> Iterator[range]:
    """Rows of objects that are in memory together."""
    step = max(1, _BATCH_BYTES // size)
    return (range(first, min(first + step, number)) for first in range(0, number, step))


CLIENTS: tuple[type[Client], ...] = (WithObstore, WithBoto3, Reference, Plain)
