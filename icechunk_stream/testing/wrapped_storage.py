"""A storage that forwards to another one, and records, holds or spoils its calls.

::

    storage = WrappedStorage(in_memory_storage())
    repository = Repository.create(storage)
    storage.script.disturb(LoseAnswer(), method="put_if", key="repo")
    ...  # the first swap of "repo" takes place, and its answer is lost
    assert [call.method for call in storage.script.calls_of(key="repo")] == ["put_if"] * 2

Calls are counted as they reach the storage: one for each object, one for a listing, one for a
batch of deletions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from icechunk_stream.storage import Storage
from icechunk_stream.testing.storage_calls import Script

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator, Sequence

    from icechunk_stream.config import StorageSettings
    from icechunk_stream.storage import (
        ByteRange,
        BytesLike,
        DeleteFailure,
        Fetched,
        LostRace,
        Missing,
        NotModified,
        ObjectInfo,
        Version,
        Written,
    )

T = TypeVar("T")
R = TypeVar("R")


class WrappedStorage(Storage):
    """Forwards to another storage as its script wants it.

    With ``in_order``, calls of a batch are made one after another in their order, all of them also
    after an error: then the n-th call is the same one in every run.
    """

    def __init__(
        self, inner: Storage, script: Script | None = None, *, in_order: bool = False
    ) -> None:
        super().__init__(inner.concurrency)
        self.inner = inner
        self.script = script or Script()
        self._in_order = in_order

    def __repr__(self) -> str:
        return f"WrappedStorage({self.inner!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrappedStorage) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash((WrappedStorage, self.inner))

    # A wrapper has the traits of the instance that it wraps.
    @property
    def is_near(self) -> bool:  # type: ignore[override]
        return self.inner.is_near

    @property
    def writes_to_memory(self) -> bool:
        return self.inner.writes_to_memory

    @property
    def decides_races(self) -> bool:  # type: ignore[override]
        return self.inner.decides_races

    @property
    def at_bucket_root(self) -> bool:
        return self.inner.at_bucket_root

    def with_settings(self, settings: StorageSettings) -> Storage:
        return self._around(self.inner.with_settings(settings))

    def with_pickled_credentials(self) -> Storage:
        return self._around(self.inner.with_pickled_credentials())

    def _around(self, inner: Storage) -> WrappedStorage:
        return WrappedStorage(inner, self.script, in_order=self._in_order)

    def _get(self, key: str, byte_range: ByteRange | None) -> bytes:
        return self.script.run("get", (key,), lambda: self.inner.get(key, byte_range))

    def _get_buffer(self, key: str, byte_range: ByteRange | None) -> BytesLike:
        return self.script.run("get", (key,), lambda: self.inner.get_buffer(key, byte_range))

    def _read(self, key: str, unless: Version | None) -> Fetched | NotModified | Missing:
        return self.script.run("read", (key,), lambda: self.inner.read(key, unless))

    def _stat(self, key: str) -> ObjectInfo | None:
        return self.script.run("stat", (key,), lambda: self.inner.stat(key))

    def _put(self, key: str, data: BytesLike) -> None:
        self.script.run("put", (key,), lambda: self.inner.put(key, data))

    def _put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        return self.script.run("put_if", (key,), lambda: self.inner.put_if(key, data, expected))

    def _copy_if(self, source: str, target: str, expected: Version) -> Written | LostRace:
        keys = (target, source)
        return self.script.run(
            "copy_if", keys, lambda: self.inner.copy_if(source, target, expected)
        )

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self.script.run("list", (prefix,), lambda: self.inner.list(prefix))

    def _delete_many(self, keys: Sequence[str]) -> builtins.list[DeleteFailure]:
        return self.script.run("delete", tuple(keys), lambda: self.inner.delete_many(keys))

    def _spread(self, act: Callable[[T], R], items: Sequence[T]) -> builtins.list[R]:
        if not self._in_order:
            return super()._spread(act, items)
        done: builtins.list[R] = []
        errors: builtins.list[Exception] = []
        for item in items:
            try:
                done.append(act(item))
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if errors:
            raise errors[0]
        return done
