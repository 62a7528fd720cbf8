"""Objects in a store that is reached through obstore: Azure, Google Cloud, plain HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.config.repository import overlay
from icechunk_stream.errors import ErrorKind, ReadOnlyError
from icechunk_stream.storage.bucket_storage import BucketStorage
from icechunk_stream.storage.client_cache import ClientCache
from icechunk_stream.storage.escaped_names import EscapedNames
from icechunk_stream.storage.listing_order import in_byte_order
from icechunk_stream.storage.object_store_bucket import ObjectStoreBucket
from icechunk_stream.storage.obstore_library import native
from icechunk_stream.storage.obstore_requests import ObstoreRequests
from icechunk_stream.storage.retry import Retry
from icechunk_stream.storage.s3_settings import S3Access
from icechunk_stream.storage.values import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.config import StorageSettings
    from icechunk_stream.storage.obstore_stores import StoreSpec
    from icechunk_stream.storage.retry import Waiting
    from icechunk_stream.storage.s3_settings import Usage


class ObjectStoreStorage(BucketStorage):
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
        super().__init__(S3Access(), settings, waiting)
        self._spec = spec
        self._names = EscapedNames.below(prefix)
        self._prefix = "/".join(part for part in (prefix or "").split("/") if part)
        self._pickles_secrets = pickles_secrets

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

    def __repr__(self) -> str:
        return f"{self._spec.dialect.title}Storage({self._spec.describe()}, {self._prefix!r})"

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
            requests=_clients.get((self._spec, self._usage)),
            dialect=self._spec.dialect,
            usage=self._usage,
            retry=Retry(self._usage.retries, self._waiting),
            pieces=self._pieces.value,
            where=repr(self),
        )

    def _name(self, key: str) -> str:
        return self._names.name(key)

    @property
    def _why_read_only(self) -> str | None:
        return None if self._spec.dialect.writes else "write through a storage of the server's kind"

    @property
    def _deleted_at_once(self) -> int:
        return self._spec.dialect.deleted_at_once

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


def _make_requests(key: tuple[StoreSpec, Usage]) -> ObstoreRequests:
    spec, usage = key
    return ObstoreRequests(spec.open(native(), usage), spec.dialect, usage)


_clients = ClientCache(_make_requests)
