"""Objects as files of a local or mounted file system, safe for many processes."""

from __future__ import annotations

import os
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from icechunk_stream.errors import InvalidInputError, ObjectNotFoundError
from icechunk_stream.storage.base import DEFAULT_CONCURRENCY, Storage, check_key
from icechunk_stream.storage.local_errors import explain, explained, is_missing
from icechunk_stream.storage.local_listing import list_objects, object_info
from icechunk_stream.storage.local_names import disk_path
from icechunk_stream.storage.local_place import find_place, read_range
from icechunk_stream.storage.local_tree import LocalTree
from icechunk_stream.storage.local_writer import LocalWriter, parent_of
from icechunk_stream.storage.values import (
    DeleteFailure,
    Fetched,
    LostRace,
    Missing,
    NotModified,
    Written,
    resolve_range,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterable, Iterator, Sequence

    from icechunk_stream.storage.values import (
        ByteRange,
        BytesLike,
        ObjectInfo,
        ReadRequest,
        Version,
    )

Durability = Literal["fsync", "os"]


class LocalStorage(Storage):
    """Objects as files below a directory.

    Each write goes to a temporary file beside its object, which takes the object's name when it is
    complete: readers, who never lock, see the old bytes or the new ones. A writer that is killed
    may leave a file ``tmp#<number>`` behind; no listing shows it. Conditional writes of any number
    of processes are decided by hard links (create) and by a lock on the object's directory
    (update); deletes take that lock too.

    The reference library replaces files of a local repository without condition and without this
    lock: it must not commit while this library does.

    Args:
        path: The root. Reading does not create it, the first write does. It may be a link;
            links below it are refused.
        durability: ``"fsync"`` returns from a write once it survives a loss of power; ``"os"``
            leaves that to the operating system, and survives crashes of processes only.
        file_mode: Permissions of new files, before the umask; who may read files may enter the
            directories.
        lock_timeout: Seconds to wait for another writer's lock.
        concurrency: Threads for batches; without ``"fsync"`` as many as there are processors by
            default, since more of them would only contend for the memory.
    """

    is_near = True
    decides_races = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fsync",
        file_mode: int = 0o640,
        lock_timeout: float = 60.0,
        concurrency: int | None = None,
    ) -> None:
        waits = durability == "fsync"
        default = DEFAULT_CONCURRENCY if waits else max(2, os.cpu_count() or 2)
        super().__init__(default if concurrency is None else concurrency)
        if durability not in get_args(Durability):
            message = f"durability {durability!r} is unknown: give 'fsync' or 'os'"
            raise InvalidInputError(message)
        self._path = Path(path).absolute()
        self._durability: Durability = durability
        directory_mode = file_mode | (file_mode & 0o444) >> 2
        self._tree = LocalTree(self._path, directory_mode, durable=waits)
        self._writer = LocalWriter(self._tree, file_mode, lock_timeout, waits)

    @property
    def writes_to_memory(self) -> bool:
        return self._durability == "os"

    @property
    def path(self) -> Path:
        return self._path

    @property
    def durability(self) -> Durability:
        return self._durability

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._path)!r}, durability={self._durability!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LocalStorage):
            return NotImplemented
        return (self._path, self._durability) == (other.path, other.durability)

    def __hash__(self) -> int:
        return hash((self._path, self._durability))

    def __reduce__(self) -> tuple[partial[LocalStorage], tuple[str]]:
        rebuild = partial(
            LocalStorage,
            durability=self._durability,
            file_mode=self._writer.file_mode,
            lock_timeout=self._writer.lock_timeout,
            concurrency=self.concurrency,
        )
        return rebuild, (str(self._path),)

    def get_many(self, requests: Sequence[ReadRequest]) -> builtins.list[bytes]:
        """Bytes of each request, in their order; each thread reads a run of them."""
        # A thread's turn costs more than a small read from the page cache.
        length = -(-len(requests) // self.concurrency) or 1
        runs = [requests[at : at + length] for at in range(0, len(requests), length)]
        return [data for run in self._spread(self._get_run, runs) for data in run]

    def put_many(self, items: Sequence[tuple[str, BytesLike]]) -> None:
        """Write immutable objects in parallel, and make each directory durable once."""
        for key, _ in items:
            check_key(key)
        self._spread(self._replace_item, items)
        self._writer.sync_parents(key for key, _ in items)

    def _get(self, key: str, byte_range: ByteRange | None) -> bytes:
        try:
            fd, status = self._tree.open_immutable(key)
            try:
                return read_range(fd, *resolve_range(byte_range, status.st_size, key))
            finally:
                os.close(fd)
        except OSError as error:
            if is_missing(error):
                raise self._not_found(key) from error
            raise explain(error, "read", key) from error

    def _read(self, key: str, unless: Version | None) -> Fetched | NotModified | Missing:
        with explained("read", key):
            place = find_place(self._tree, key)
            found = place.read() if place else None
        if found is None:
            return Missing()
        fetched, _ = found
        return NotModified() if fetched.version == unless else fetched

    def _stat(self, key: str) -> ObjectInfo | None:
        with explained("look up", key):
            place = find_place(self._tree, key)
            status = place.status() if place else None
        return object_info(key, status) if status else None

    def _put(self, key: str, data: BytesLike) -> None:
        self._put_pieces(key, (data,))

    def _put_pieces(self, key: str, pieces: Iterable[BytesLike]) -> None:
        place = self._writer.replace(key, pieces)
        self._writer.sync(place.directory, key)

    def _put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        if expected is None:
            return self._writer.create(key, data)
        return self._writer.update(key, data, expected)

    def _copy_if(self, source: str, target: str, expected: Version) -> Written | LostRace:
        current = self._read(source, None)
        if not (isinstance(current, Fetched) and current.version == expected):
            return LostRace()
        return self._writer.replace_by_copy(target, current)

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        parent, slash, start = prefix.rpartition("/")
        try:
            directory = self._tree.directory(disk_path(parent), prefix)
        except OSError as error:
            if is_missing(error):
                return
            raise explain(error, "list", prefix) from error
        yield from list_objects(directory, parent + slash, start)

    def _delete_many(self, keys: Sequence[str]) -> builtins.list[DeleteFailure]:
        failures: builtins.list[DeleteFailure] = []
        for _, siblings in groupby(sorted(set(keys), key=parent_of), parent_of):
            failures += self._writer.delete_siblings(list(siblings))
        return failures

    def _get_run(self, requests: Sequence[ReadRequest]) -> builtins.list[bytes]:
        return [self.get(request.key, request.byte_range) for request in requests]

    def _replace_item(self, item: tuple[str, BytesLike]) -> None:
        key, data = item
        self._writer.replace(key, (data,))

    def _not_found(self, key: str) -> ObjectNotFoundError:
        message = f"there is no object {key!r} in {str(self._path)!r}: check the path"
        return ObjectNotFoundError(message, key=key)
