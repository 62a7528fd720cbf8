"""What a repository asks of the place where its objects live: keys, bytes, versions."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.storage.per_process import PerProcess

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from icechunk_stream.config import StorageSettings
    from icechunk_stream.storage.values import (
        ByteRange,
        BytesLike,
        DeleteFailure,
        Fetched,
        LostRace,
        Missing,
        NotModified,
        ObjectInfo,
        ReadRequest,
        Version,
        Written,
    )

DEFAULT_CONCURRENCY = 16

_FORBIDDEN_SEGMENTS = frozenset({"", ".", ".."})

T = TypeVar("T")
R = TypeVar("R")


def check_key(key: str) -> None:
    """Refuse a key that some backend could not hold, or would take for another place."""
    well_formed = _FORBIDDEN_SEGMENTS.isdisjoint(key.split("/")) and "\0" not in key
    if not (well_formed and _is_unicode(key)):
        message = (
            f"{key!r} is no object key: give a relative path of non-empty segments joined by '/',"
            " without '.', '..' and NUL"
        )
        raise InvalidInputError(message)


def is_key(text: str) -> bool:
    try:
        check_key(text)
    except InvalidInputError:
        return False
    return True


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Storage(ABC):
    """Objects under keys: synchronous, safe to share between threads, usable after a fork.

    Immutable objects are written by ``put`` and read by ``get``. Objects that change are read by
    ``read`` and swapped by ``put_if`` only: an unconditional ``put`` of such an object takes no
    part in the races that ``put_if`` decides. A lost race is a return value; what fails raises
    ``StorageError``, which names the key. Backends implement the methods that begin with ``_``,
    which get checked keys.
    """

    is_near: ClassVar[bool] = False
    """Whether a small read is cheaper than a hop to another thread."""

    @property
    def writes_to_memory(self) -> bool:
        """Whether a write waits for nothing: it is over as soon as its bytes are copied."""
        return False

    decides_races: ClassVar[bool] = False
    """Whether no server has to be asked if it honours the conditions of writes."""

    def __init__(self, concurrency: int = DEFAULT_CONCURRENCY) -> None:
        if concurrency < 1:
            message = f"a concurrency of {concurrency} leaves no thread to work: give 1 or more"
            raise InvalidInputError(message)
        self._concurrency = concurrency
        self._worker = threading.local()
        make_pool = partial(
            ThreadPoolExecutor, concurrency, "icechunk-storage", _mark_worker, (self._worker,)
        )
        self._pool = PerProcess(make_pool)

    @property
    def concurrency(self) -> int:
        """How many requests run at once in the pool."""
        return self._concurrency

    @property
    def at_bucket_root(self) -> bool:
        """Whether the objects lie at the root of a bucket, beside whatever else is there."""
        return False

    @property
    def executor(self) -> ThreadPoolExecutor:
        """The pool of this process in which batches and submitted reads run."""
        return self._pool.value

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Bytes of an object; ``ObjectNotFoundError`` when there is none."""
        check_key(key)
        return self._get(key, byte_range)

    def get_buffer(self, key: str, byte_range: ByteRange | None = None) -> BytesLike:
        """``get`` that may give a view of what a client received in place of a copy."""
        check_key(key)
        return self._get_buffer(key, byte_range)

    async def get_async(self, key: str, byte_range: ByteRange | None = None) -> BytesLike:
        """``get_buffer`` for an event loop, which goes on meanwhile."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.executor, self.get_buffer, key, byte_range)

    def get_many(self, requests: Sequence[ReadRequest]) -> Sequence[BytesLike]:
        """The buffer of each request, in their order, fetched in parallel."""
        return self._spread(self._get_requested, requests)

    def together(self, calls: Sequence[Callable[[], R]]) -> builtins.list[R]:
        """Run calls in parallel; the first error in their order, once all of them are over."""
        return self._spread(lambda call: call(), calls)

    def submit(self, key: str, byte_range: ByteRange | None = None) -> Future[bytes]:
        """Begin a ``get`` in the pool."""
        return self.executor.submit(self.get, key, byte_range)

    def read(self, key: str, unless: Version | None = None) -> Fetched | NotModified | Missing:
        """A mutable object's bytes and version, unless it still is in a known version."""
        check_key(key)
        return self._read(key, unless)

    def stat(self, key: str) -> ObjectInfo | None:
        """Size and time of an object, or None when there is none."""
        check_key(key)
        return self._stat(key)

    def put(self, key: str, data: BytesLike) -> None:
        """Write an immutable object; nobody ever sees a part of it."""
        check_key(key)
        self._put(key, data)

    def put_pieces(self, key: str, pieces: Iterable[BytesLike]) -> None:
        """``put`` of an object in pieces, each of which is taken when it is its turn."""
        check_key(key)
        self._put_pieces(key, pieces)

    def put_many(self, items: Sequence[tuple[str, BytesLike]]) -> None:
        """Write immutable objects in parallel; on an error some may be written, others not."""
        self._spread(self._put_item, items)

    def put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        """Swap an object that is in the expected version; with None, create an absent one."""
        check_key(key)
        return self._put_if(key, data, expected)

    def copy_if(self, source: str, target: str, expected: Version) -> Written | LostRace:
        """Copy an object that is in the expected version; the answer's version is the copy's."""
        check_key(source)
        check_key(target)
        return self._copy_if(source, target, expected)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Objects whose keys begin with the text ``prefix``, in the byte order of the keys."""
        if not _FORBIDDEN_SEGMENTS.isdisjoint(prefix.split("/")[:-1]) or not _is_unicode(prefix):
            return iter(())
        return self._list(prefix)

    def delete_many(self, keys: Iterable[str]) -> builtins.list[DeleteFailure]:
        """Delete objects, absent ones included; what could not be deleted is returned."""
        checked = list(keys)
        for key in checked:
            check_key(key)
        return self._delete_many(checked)

    def with_settings(self, settings: StorageSettings) -> Storage:  # noqa: ARG002
        """The same storage, with these settings where its own ones leave a gap, if it has any."""
        return self

    def with_pickled_credentials(self) -> Storage:
        """The same storage, whose pickles carry its secrets, if it has any."""
        return self

    @abstractmethod
    def _get(self, key: str, byte_range: ByteRange | None) -> bytes: ...

    @abstractmethod
    def _read(self, key: str, unless: Version | None) -> Fetched | NotModified | Missing: ...

    @abstractmethod
    def _stat(self, key: str) -> ObjectInfo | None: ...

    @abstractmethod
    def _put(self, key: str, data: BytesLike) -> None: ...

    @abstractmethod
    def _put_if(
        self, key: str, data: BytesLike, expected: Version | None
    ) -> Written | LostRace: ...

    @abstractmethod
    def _copy_if(self, source: str, target: str, expected: Version) -> Written | LostRace: ...

    @abstractmethod
    def _list(self, prefix: str) -> Iterator[ObjectInfo]: ...

    @abstractmethod
    def _delete_many(self, keys: Sequence[str]) -> builtins.list[DeleteFailure]: ...

    @abstractmethod
    def __repr__(self) -> str: ...

    def _get_buffer(self, key: str, byte_range: ByteRange | None) -> BytesLike:
        return self._get(key, byte_range)

    def _put_pieces(self, key: str, pieces: Iterable[BytesLike]) -> None:
        self._put(key, _joined(pieces))

    def _get_requested(self, request: ReadRequest) -> BytesLike:
        return self.get_buffer(request.key, request.byte_range)

    def _put_item(self, item: tuple[str, BytesLike]) -> None:
        self.put(*item)

    @property
    def _is_worker(self) -> bool:
        """Whether this thread is one of the pool."""
        return getattr(self._worker, "marked", False)

    def _spread(self, act: Callable[[T], R], items: Sequence[T]) -> builtins.list[R]:
        """Run ``act`` on every item in the pool, and give the first error in their order."""
        # A worker that waited for other workers could wait for ever in a full pool.
        if len(items) < 2 or self._is_worker:  # noqa: PLR2004
            return [act(item) for item in items]
        futures = [self.executor.submit(act, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            # After an error nothing of this batch goes on behind the caller's back.
            for future in futures:
                future.cancel()
            wait(futures)


def _joined(pieces: Iterable[BytesLike]) -> BytesLike:
    """One piece after the other, none of which stays once it is there."""
    whole = bytearray()
    for piece in pieces:
        whole += piece
    return memoryview(whole)


def _mark_worker(worker: threading.local) -> None:
    worker.marked = True
