"""What storages in buckets and containers share, whichever client reaches them."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from icechunk_stream.config import StorageSettings
from icechunk_stream.config.repository import overlay
from icechunk_stream.errors import ErrorKind, ReadOnlyError
from icechunk_stream.storage.base import Storage, check_key
from icechunk_stream.storage.bucket import Begun
from icechunk_stream.storage.loops import Turns, run_in
from icechunk_stream.storage.per_process import LazyPerProcess, PerProcess
from icechunk_stream.storage.retry import Waiting
from icechunk_stream.storage.s3_settings import Usage
from icechunk_stream.storage.s3_values import Place
from icechunk_stream.storage.values import DeleteFailure, ObjectInfo

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence

    from icechunk_stream.storage.bucket import Bucket
    from icechunk_stream.storage.s3_settings import S3Access
    from icechunk_stream.storage.values import (
        ByteRange,
        BytesLike,
        Fetched,
        LostRace,
        Missing,
        NotModified,
        ReadRequest,
        Version,
        Written,
    )


class BucketStorage(Storage):
    """Each key is the name of an object; the bucket is opened when it is first needed."""

    def __init__(
        self, access: S3Access, settings: StorageSettings | None, waiting: Waiting | None
    ) -> None:
        super().__init__(access.concurrency)
        self._settings = overlay(StorageSettings(), settings or StorageSettings(), deep=True)
        self._waiting = waiting or Waiting()
        self._usage = Usage.of(access, self._settings)
        make_pieces = partial(ThreadPoolExecutor, self._usage.parallel_pieces, "icechunk-pieces")
        self._pieces = PerProcess(make_pieces)
        self._turns = Turns(access.concurrency)
        self._opened: LazyPerProcess[Bucket] = LazyPerProcess(self._open)

    @abstractmethod
    def _open(self) -> Bucket: ...

    @abstractmethod
    def _name(self, key: str) -> str:
        """The name of a key's object."""

    @property
    @abstractmethod
    def _why_read_only(self) -> str | None:
        """What to do in place of writing, where that cannot be."""

    @property
    @abstractmethod
    def _deleted_at_once(self) -> int:
        """How many objects one request deletes."""

    @property
    @abstractmethod
    def _identity(self) -> tuple[object, ...]: ...

    @property
    def settings(self) -> StorageSettings:
        """A copy of the settings that were given."""
        return overlay(StorageSettings(), self._settings, deep=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _is_open(self) -> bool:
        """Whether a request can be sent at once, without asking or reading anything before."""
        return self._opened.is_made

    def _place(self, key: str) -> Place:
        return Place(key, self._name(key))

    def _place_to_write(self, key: str) -> Place:
        self._check_writable()
        return self._place(key)

    def _check_writable(self) -> None:
        reason = self._why_read_only
        if reason is not None:
            raise ReadOnlyError(f"{self!r} is read-only: {reason}", ErrorKind.READ_ONLY_STORAGE)

    def _get(self, key: str, byte_range: ByteRange | None) -> bytes:
        return bytes(self._get_buffer(key, byte_range))

    def _get_buffer(self, key: str, byte_range: ByteRange | None) -> BytesLike:
        return self._opened.value.get(self._place(key), byte_range)

    async def get_async(self, key: str, byte_range: ByteRange | None = None) -> BytesLike:
        check_key(key)
        begun = await self._begin(key, byte_range)
        if not isinstance(begun, Begun):
            return begun
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.executor, self._go_on, key, byte_range, begun)

    def get_many(self, requests: Sequence[ReadRequest]) -> Sequence[BytesLike]:
        """Begun in one event loop; what does not end there goes on in threads."""
        if len(requests) < 2 or not self._opened.value.begins:  # noqa: PLR2004
            return super().get_many(requests)
        for request in requests:
            check_key(request.key)
        self._name(requests[0].key)
        beginning = self._begin_all(requests)
        begun = asyncio.run(beginning) if self._is_worker else run_in(self.executor, beginning)
        return self._spread_rest(requests, begun)

    async def _begin_all(self, requests: Sequence[ReadRequest]) -> builtins.list[BytesLike | Begun]:
        reads = (self._begin(request.key, request.byte_range) for request in requests)
        return list(await asyncio.gather(*reads))

    def _spread_rest(
        self, requests: Sequence[ReadRequest], begun: Sequence[BytesLike | Begun]
    ) -> builtins.list[BytesLike]:
        """What was begun, brought to its end."""
        rest = [
            partial(self._go_on, request.key, request.byte_range, read)
            for request, read in zip(requests, begun, strict=True)
            if isinstance(read, Begun)
        ]
        ended = iter(self.together(rest))
        return [next(ended) if isinstance(read, Begun) else read for read in begun]

    async def _begin(self, key: str, byte_range: ByteRange | None) -> BytesLike | Begun:
        if not self._is_open:
            return Begun()
        async with self._turns.here():
            return await self._opened.value.begin(self._place(key), byte_range)

    def _go_on(self, key: str, byte_range: ByteRange | None, begun: Begun) -> BytesLike:
        return self._opened.value.get(self._place(key), byte_range, begun)

    def _read(self, key: str, unless: Version | None) -> Fetched | NotModified | Missing:
        return self._opened.value.read(self._place(key), unless)

    def _stat(self, key: str) -> ObjectInfo | None:
        head = self._opened.value.stat(self._place(key))
        return None if head is None else ObjectInfo(key, head.size, head.modified_at)

    def _put(self, key: str, data: BytesLike) -> None:
        self._opened.value.put(self._place_to_write(key), data)

    def _put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        return self._opened.value.put_if(self._place_to_write(key), data, expected)

    def _copy_if(self, source: str, target: str, expected: Version) -> Written | LostRace:
        place = self._place_to_write(target)
        return self._opened.value.copy_if(self._place(source), place, expected)

    def _delete_many(self, keys: Sequence[str]) -> builtins.list[DeleteFailure]:
        self._check_writable()
        unique, count = list(dict.fromkeys(keys)), self._deleted_at_once
        batches = [unique[start : start + count] for start in range(0, len(unique), count)]
        return [failure for some in self._spread(self._delete_batch, batches) for failure in some]

    def _delete_batch(self, keys: Sequence[str]) -> builtins.list[DeleteFailure]:
        names = {self._name(key): key for key in keys}
        failed = self._opened.value.delete(list(names))
        return [
            DeleteFailure(key, str(failed[name])) for name, key in names.items() if name in failed
        ]
