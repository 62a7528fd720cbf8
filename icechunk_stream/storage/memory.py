"""A storage in this process's memory, for tests and short-lived repositories."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from icechunk_stream.effects import now_micros
from icechunk_stream.errors import ErrorKind, ObjectNotFoundError, StorageError
from icechunk_stream.storage.base import Storage
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

    from icechunk_stream.storage.values import ByteRange, BytesLike, DeleteFailure


@dataclass(frozen=True, slots=True)
class _Stored:
    data: bytes
    version: Version
    modified_at: int


class MemoryStorage(Storage):
    """Objects in a dictionary. A forked child works on a copy; pickling is refused."""

    is_near = True
    decides_races = True
    writes_to_memory = True

    def __init__(self) -> None:
        super().__init__()
        self._objects: dict[str, _Stored] = {}
        self._writes = 0
        self._lock = PerProcess(threading.Lock)

    def __repr__(self) -> str:
        return f"MemoryStorage(objects={len(self._objects)})"

    def __reduce__(self) -> NoReturn:
        message = (
            "an in-memory storage lives in one process and cannot be pickled:"
            " use a local file system or an object store to share a repository"
        )
        raise StorageError(message, ErrorKind.STORAGE_CONFIG)

    def _get(self, key: str, byte_range: ByteRange | None) -> bytes:
        stored = self._objects.get(key)
        if stored is None:
            raise ObjectNotFoundError(f"there is no object {key!r} in memory", key=key)
        start, stop = resolve_range(byte_range, len(stored.data), key)
        return stored.data[start:stop]

    def _read(self, key: str, unless: Version | None) -> Fetched | NotModified | Missing:
        stored = self._objects.get(key)
        if stored is None:
            return Missing()
        return NotModified() if stored.version == unless else Fetched(stored.data, stored.version)

    def _stat(self, key: str) -> ObjectInfo | None:
        stored = self._objects.get(key)
        return None if stored is None else ObjectInfo(key, len(stored.data), stored.modified_at)

    def _put(self, key: str, data: BytesLike) -> None:
        with self._lock.value:
            self._store(key, data)

    def _put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        with self._lock.value:
            if self._version(key) != expected:
                return LostRace()
            return Written(self._store(key, data))

    def _copy_if(self, source: str, target: str, expected: Version) -> Written | LostRace:
        with self._lock.value:
            if self._version(source) != expected:
                return LostRace()
            return Written(self._store(target, self._objects[source].data))

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        # Order by code points is the order of the UTF-8 bytes.
        for key in sorted(key for key in tuple(self._objects) if key.startswith(prefix)):
            info = self._stat(key)
            if info is not None:
                yield info

    def _delete_many(self, keys: Sequence[str]) -> builtins.list[DeleteFailure]:
        with self._lock.value:
            for key in keys:
                self._objects.pop(key, None)
        return []

    def _version(self, key: str) -> Version | None:
        stored = self._objects.get(key)
        return None if stored is None else stored.version

    def _store(self, key: str, data: BytesLike) -> Version:
        self._writes += 1
        version = Version(str(self._writes))
        self._objects[key] = _Stored(bytes(data), version, now_micros())
        return version
