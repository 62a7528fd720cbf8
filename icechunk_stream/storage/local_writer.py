"""Writing into a local tree: whole files, exclusive creation, swaps, deletes, durability."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.errors import StorageError
from icechunk_stream.storage.local_errors import LACKING, explain, explained, is_missing
from icechunk_stream.storage.local_lock import locked
from icechunk_stream.storage.local_names import disk_path
from icechunk_stream.storage.local_place import (
    Place,
    content_of,
    digest,
    find_place,
    make_place,
    may_be,
    version_of,
)
from icechunk_stream.storage.local_tree import sync_directory
from icechunk_stream.storage.values import DeleteFailure, LostRace, Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from icechunk_stream.storage.local_place import Staged
    from icechunk_stream.storage.local_tree import Directory, LocalTree
    from icechunk_stream.storage.values import BytesLike, Fetched, Version

_LINK_ADVICE = dict.fromkeys(
    (*LACKING, errno.EPERM),
    "creating an object exclusively needs a hard link, which the file system does not make here:"
    " move the repository to one that does, or to an object store",
)
_RENAME_ADVICE = dict.fromkeys(
    LACKING,
    "replacing an object needs an atomic rename, which the file system does not do here:"
    " move the repository to one that does, or to an object store",
)
_SYNC_ADVICE = {
    errno.EIO: "the new bytes are in place, but a loss of power may undo them: check the disk"
} | dict.fromkeys(
    LACKING,
    "the file system does not make directories durable on request: use durability='os'",
)


@dataclass(frozen=True, slots=True)
class LocalWriter:
    """The writing half of a local storage."""

    tree: LocalTree
    file_mode: int
    lock_timeout: float
    durable: bool

    def replace(self, key: str, pieces: Iterable[BytesLike]) -> Place:
        """Write an object whatever was there, and leave its directory's durability to later."""
        with explained("write", key):
            place = make_place(self.tree, key)
            with self._staged(place, pieces) as staged, explained("replace", key, _RENAME_ADVICE):
                staged.replace()
        return place

    def replace_by_copy(self, key: str, source: Fetched) -> Written | LostRace:
        """Write what another object holds whatever was there, and tell its version."""
        with explained("write", key):
            place = make_place(self.tree, key)
            with (
                self._staged(place, (source.data,)) as staged,
                explained("replace", key, _RENAME_ADVICE),
            ):
                version = version_of(staged.status(), content_of(source.version))
                staged.replace()
        self.sync(place.directory, key)
        return Written(version)

    def create(self, key: str, data: BytesLike) -> Written | LostRace:
        """Write an object that is not there yet."""
        with explained("create", key):
            place = make_place(self.tree, key)
            if place.status() is not None:
                return LostRace()
            with self._staged(place, (data,)) as staged, explained("create", key, _LINK_ADVICE):
                version = version_of(staged.status(), digest(data))
                created = staged.create()
        if not created:
            return LostRace()
        self.sync(place.directory, key)
        return Written(version)

    def update(self, key: str, data: BytesLike, expected: Version) -> Written | LostRace:
        """Replace an object that is in the expected version."""
        with explained("write", key):
            place = find_place(self.tree, key)
            status = place.status() if place else None
            # Most lost races show here, before anything is written.
            if place is None or status is None or not may_be(status, expected):
                return LostRace()
            written = self._swap(place, data, expected)
        if isinstance(written, Written):
            self.sync(place.directory, key)
        return written

    def delete_siblings(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete objects of one directory."""
        try:
            with explained("delete", keys[0]):
                place = find_place(self.tree, keys[0])
            if place is None:
                return []
            with locked(place.directory, keys[0], self.lock_timeout):
                failures = [_deleted(place.directory, key) for key in keys]
            self.sync(place.directory, keys[0])
        except StorageError as error:
            return [DeleteFailure(key, error.message) for key in keys]
        return [failure for failure in failures if failure is not None]

    def sync(self, directory: Directory, key: str) -> None:
        """Make the names in a directory durable, if this storage does that."""
        if self.durable:
            with explained("make durable", key, _SYNC_ADVICE):
                sync_directory(directory)

    def sync_parents(self, keys: Iterable[str]) -> None:
        """Make the names in the directories of objects durable, each directory once."""
        firsts = {parent_of(key): key for key in keys} if self.durable else {}
        for key in firsts.values():
            with explained("make durable", key, _SYNC_ADVICE):
                place = make_place(self.tree, key)
            self.sync(place.directory, key)

    def _staged(self, place: Place, pieces: Iterable[BytesLike]) -> AbstractContextManager[Staged]:
        return place.staged(pieces, self.file_mode, durable=self.durable)

    def _swap(self, place: Place, data: BytesLike, expected: Version) -> Written | LostRace:
        content = digest(data)
        with (
            self._staged(place, (data,)) as staged,
            locked(place.directory, place.key, self.lock_timeout),
        ):
            found = place.read()
            if found is None or found[0].version != expected:
                staged.discard()
                return LostRace()
            staged.make_later(than=found[1])
            version = version_of(staged.status(), content)
            with explained("replace", place.key, _RENAME_ADVICE):
                staged.replace()
        return Written(version)


def parent_of(key: str) -> str:
    """The directory part of a key."""
    return key.rpartition("/")[0]


def _deleted(directory: Directory, key: str) -> DeleteFailure | None:
    name = disk_path(key).rpartition("/")[2]
    try:
        os.unlink(name, dir_fd=directory.fd)
    except OSError as error:
        if not is_missing(error):
            return DeleteFailure(key, explain(error, "delete", key).message)
    return None
