"""A storage that is only read, and writes over it that end with this object."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from icechunk_stream.effects import now_micros
from icechunk_stream.errors import ObjectNotFoundError
from icechunk_stream.storage.base import Storage
from icechunk_stream.storage.memory import MemoryStorage
from icechunk_stream.storage.per_process import PerProcess
from icechunk_stream.storage.values import (
    Fetched,
    LostRace,
    Missing,
    NotModified,
    ObjectInfo,
    Version,
    Written,
    resolve_range,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterator, Sequence

    from icechunk_stream.config import StorageSettings
    from icechunk_stream.storage.values import ByteRange, BytesLike, DeleteFailure

_LONGEST_KEPT = 2**20


@dataclass(frozen=True, slots=True)
class _Put:
    data: bytes | None
    size: int
    version: Version
    modified_at: int


class _Layer:
    """What was written, for all storages that differ in settings alone."""

    def __init__(
        self, longest_kept: int, puts: dict[str, _Put] | None = None, gone: set[str] | None = None
    ) -> None:
        self.longest_kept = longest_kept
        self.puts = puts or {}
        self.gone = gone or set()
        self.log: list[tuple[str, int]] = []
        self.lock = PerProcess(threading.RLock)

    def __reduce__(self) -> tuple[object, ...]:
        return (_Layer, (self.longest_kept, dict(self.puts), set(self.gone)))


class ShadowStorage(Storage):
    """Reads another storage; what is written is seen here and nowhere else.

    Pickles carry what was written so far. Of chunks longer than ``longest_kept`` only the length is
    remembered: nobody reads what a batch packs.
    """

    decides_races = True

    def __init__(
        self, inner: Storage, layer: _Layer | None = None, longest_kept: int = _LONGEST_KEPT
    ) -> None:
        super().__init__(inner.concurrency)
        self.inner = inner
        self._layer = layer or _Layer(longest_kept)

    @property
    def is_near(self) -> bool:  # type: ignore[override]
        return self.inner.is_near

    @property
    def at_bucket_root(self) -> bool:
        return self.inner.at_bucket_root

    @property
    def writes(self) -> tuple[tuple[str, int], ...]:
        """Key and length of every write of this process, in their order."""
        return tuple(self._layer.log)

    def with_settings(self, settings: StorageSettings) -> Storage:
        return ShadowStorage(self.inner.with_settings(settings), self._layer)

    def with_pickled_credentials(self) -> Storage:
        return ShadowStorage(self.inner.with_pickled_credentials(), self._layer)

    def __repr__(self) -> str:
        return repr(self.inner)

    def __reduce__(self) -> tuple[object, ...]:
        return (ShadowStorage, (self.inner, self._layer))

    def _get(self, key: str, byte_range: ByteRange | None) -> bytes:
        put = self._layer.puts.get(key)
        if put is None:
            return self._below(key).get(key, byte_range)
        if put.data is None:
            raise ObjectNotFoundError(f"{key!r} was written to be measured only", key=key)
        start, stop = resolve_range(byte_range, put.size, key)
        return put.data[start:stop]

    def _get_buffer(self, key: str, byte_range: ByteRange | None) -> BytesLike:
        if key in self._layer.puts:
            return self._get(key, byte_range)
        return self._below(key).get_buffer(key, byte_range)

    def _read(self, key: str, unless: Version | None) -> Fetched | NotModified | Missing:
        put = self._layer.puts.get(key)
        if put is None or put.data is None:
            return self._below(key).read(key, unless)
        return NotModified() if put.version == unless else Fetched(put.data, put.version)

    def _stat(self, key: str) -> ObjectInfo | None:
        put = self._layer.puts.get(key)
        return (
            self._below(key).stat(key)
            if put is None
            else ObjectInfo(key, put.size, put.modified_at)
        )

    def _put(self, key: str, data: BytesLike) -> None:
        with self._layer.lock.value:
            self._store(key, data)

    def _put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        with self._layer.lock.value:
            if self._version(key) != expected:
                return LostRace()
            return Written(self._store(key, data))

    def _copy_if(self, source: str, target: str, expected: Version) -> Written | LostRace:
        with self._layer.lock.value:
            if self._version(source) != expected:
                return LostRace()
            return Written(self._store(target, self._get(source, None)))

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        written = [key for key in tuple(self._layer.puts) if key.startswith(prefix)]
        hidden = self._layer.gone.union(written)
        below = (info for info in self.inner.list(prefix) if info.key not in hidden)
        infos = filter(None, map(self._stat, written))
        return iter(sorted(chain(below, infos), key=lambda info: info.key))

    def _delete_many(self, keys: Sequence[str]) -> builtins.list[DeleteFailure]:
        with self._layer.lock.value:
            for key in keys:
                self._layer.puts.pop(key, None)
                self._layer.gone.add(key)
        return []

    def _below(self, key: str) -> Storage:
        """Where an object is that was not written here."""
        return MemoryStorage() if key in self._layer.gone else self.inner

    def _version(self, key: str) -> Version | None:
        put = self._layer.puts.get(key)
        if put is not None:
            return put.version
        found = self._below(key).read(key)
        return found.version if isinstance(found, Fetched) else None

    def _store(self, key: str, data: BytesLike) -> Version:
        # No backend has such versions.
        size = memoryview(data).nbytes
        self._layer.log.append((key, size))
        version = Version(f"shadow-{len(self._layer.log)}-{now_micros()}")
        is_kept = size <= self._layer.longest_kept or not key.startswith("chunks/")
        self._layer.puts[key] = _Put(bytes(data) if is_kept else None, size, version, now_micros())
        return version
