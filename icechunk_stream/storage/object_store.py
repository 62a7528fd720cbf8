"""Objects in a store that is reached through obstore: Azure, Google Cloud, plain HTTP."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from icechunk_stream.config import StorageSettings
from icechunk_stream.config.repository import overlay
from icechunk_stream.errors import ErrorKind, ReadOnlyError
from icechunk_stream.storage.base import Storage
from icechunk_stream.storage.escaped_names import EscapedNames
from icechunk_stream.storage.listing_order import in_byte_order
from icechunk_stream.storage.object_store_bucket import ObjectStoreBucket
from icechunk_stream.storage.obstore_library import native
from icechunk_stream.storage.obstore_requests import ObstoreRequests
from icechunk_stream.storage.per_process import LazyPerProcess, PerProcess
from icechunk_stream.storage.retry import Retry, Waiting
from icechunk_stream.storage.s3_settings import DEFAULT_CONCURRENCY, S3Access, Usage
from icechunk_stream.storage.s3_values import Place
from icechunk_stream.storage.values import DeleteFailure, ObjectInfo

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterator, Sequence

    from icechunk_stream.storage.obstore_stores import StoreSpec
    from icechunk_stream.storage.values import (
        ByteRange,
        BytesLike,
        Fetched,
        LostRace,
        Missing,
        NotModified,
        Version,
        Written,
    )

_MOST_CLIENTS = 64


class ObjectStoreStorage(Storage):
    """Objects below a prefix, whose unusual characters are percent-encoded in names.

    Args:
        spec: Which store, how to reach it, and with which credentials.
        prefix: What all names begin with; empty segments are of no account.
        settings: Time-outs, retries, storage classes; they go before those of a repository.
        waiting: The clock and the pauses of retries.
        pickles_secrets: Whether pickles carry credentials.
    """

    def __init__(
        self,
        spec: StoreSpec,
        prefix: str | None = None,
        settings: StorageSettings | None = None,
        waiting: Waiting | None = None,
        pickles_secrets: bool = False,
    ) -> None:
        super().__init__(DEFAULT_CONCURRENCY)
        self._spec = spec
        self._names = EscapedNames.below(prefix)
        self._prefix = "/".join(part for part in (prefix or "").split("/") if part)
        self._settings = overlay(StorageSettings(), settings or StorageSettings(), deep=True)
        self._waiting = waiting or Waiting()
        self._pickles_secrets = pickles_secrets
        self._usage = Usage.of(S3Access(), self._settings)
        make_pieces = partial(ThreadPoolExecutor, self._usage.parallel_pieces, "icechunk-pieces")
        self._pieces = PerProcess(make_pieces)
        self._opened = LazyPerProcess(self._open)

    @property
    def spec(self) -> StoreSpec:
        return self._spec

    @property
    def prefix(self) -> str:
        """What all names begin with, without slashes at its ends."""
        return self._prefix

    @property
    def at_bucket_root(self) -> bool:
        return not self._prefix

    @property
    def settings(self) -> StorageSettings:
        """A copy of the settings that were given."""
        return overlay(StorageSettings(), self._settings, deep=True)

    def __repr__(self) -> str:
        return f"{self._spec.dialect.title}Storage({self._spec.describe()}, {self._prefix!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectStoreStorage):
            return NotImplemented
        return self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __reduce__(self) -> tuple[object, ...]:
        spec = self._spec if self._pickles_secrets else self._spec.without_secrets()
        state = (spec, self._prefix, self._settings, self._waiting, self._pickles_secrets)
        return (ObjectStoreStorage, state)

    def with_pickled_credentials(self) -> ObjectStoreStorage:
        """The same storage, whose pickles carry its credentials: keep them as secret."""
        return ObjectStoreStorage(
            self._spec, self._prefix, self._settings, self._waiting, pickles_secrets=True
        )

    def with_settings(self, settings: StorageSettings) -> ObjectStoreStorage:
        """The same storage, with these settings where its own ones leave a gap."""
        filled = overlay(settings, self._settings, deep=True)
        return ObjectStoreStorage(
            self._spec, self._prefix, filled, self._waiting, self._pickles_secrets
        )

    @property
    def _identity(self) -> tuple[object, ...]:
        return (self._spec.without_secrets(), self._names, self._usage)

    def _open(self) -> ObjectStoreBucket:
        return ObjectStoreBucket(
            requests=_requests_of(self._spec, self._usage),
            dialect=self._spec.dialect,
            usage=self._usage,
            retry=Retry(self._usage.retries, self._waiting),
            pieces=self._pieces.value,
            where=repr(self),
        )

    def _place(self, key: str) -> Place:
        return Place(key, self._names.name(key))

    def _place_to_write(self, key: str) -> Place:
        self._check_writable()
        return self._place(key)

    def _check_writable(self) -> None:
        if not self._spec.dialect.writes:
            message = f"{self!r} is read-only: write through a storage of the server's own kind"
            raise ReadOnlyError(message, ErrorKind.READ_ONLY_STORAGE)

    def _get(self, key: str, byte_range: ByteRange | None) -> bytes:
        return bytes(self._get_buffer(key, byte_range))

    def _get_buffer(self, key: str, byte_range: ByteRange | None) -> BytesLike:
        return self._opened.value.get(self._place(key), byte_range)

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

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        return in_byte_order(self._listed(prefix), repr(self))

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        self._check_listable()
        start, met = self._names.name(prefix), False
        for entry in self._opened.value.list(start.rpartition("/")[0]):
            if not entry.name.startswith(start):
                if met:
                    return
                continue
            met = True
            key = self._names.key(entry.name)
            if key is not None:
                yield ObjectInfo(key, entry.size, entry.modified_at)

    def _check_listable(self) -> None:
        if not self._spec.dialect.writes:
            message = f"{self!r} cannot list objects: plain HTTP has no listings"
            raise ReadOnlyError(message, ErrorKind.READ_ONLY_STORAGE)

    def _delete_many(self, keys: Sequence[str]) -> builtins.list[DeleteFailure]:
        self._check_writable()
        unique, count = list(dict.fromkeys(keys)), self._spec.dialect.deleted_at_once
        batches = [unique[start : start + count] for start in range(0, len(unique), count)]
        return [failure for some in self._spread(self._delete_batch, batches) for failure in some]

    def _delete_batch(self, keys: Sequence[str]) -> builtins.list[DeleteFailure]:
        names = {self._names.name(key): key for key in keys}
        failed = self._opened.value.delete(list(names))
        return [DeleteFailure(names[name], str(failure)) for name, failure in failed.items()]


class _Cache:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clients: OrderedDict[tuple[StoreSpec, Usage], ObstoreRequests] = OrderedDict()

    def get(self, spec: StoreSpec, usage: Usage) -> ObstoreRequests:
        with self.lock:
            client = self.clients.pop((spec, usage), None) or _make_requests(spec, usage)
            self.clients[spec, usage] = client
            if len(self.clients) > _MOST_CLIENTS:
                self.clients.popitem(last=False)
            return client


_cache = PerProcess(_Cache)


def _requests_of(spec: StoreSpec, usage: Usage) -> ObstoreRequests:
    """The client of this process; a storage that was copied or unpickled finds that in use."""
    try:
        hash(spec)
    except TypeError:
        # A credentials function may be an object that cannot be a key.
        return _make_requests(spec, usage)
    return _cache.value.get(spec, usage)


def _make_requests(spec: StoreSpec, usage: Usage) -> ObstoreRequests:
    return ObstoreRequests(spec.open(native(), usage), spec.dialect, usage)
