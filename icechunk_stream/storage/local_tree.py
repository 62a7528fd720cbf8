"""Directories and files below a root, opened step by step so that no link leads out of it."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from icechunk_stream.errors import StorageError
from icechunk_stream.storage.local_names import disk_path

if TYPE_CHECKING:
    from pathlib import Path

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Opening a FIFO for reading would wait for its writer without O_NONBLOCK.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_MOVED = frozenset({errno.ENOENT, errno.ESTALE})
_KNOWN_LIMIT = 64
_MADE_LIMIT = 16
_Identity = tuple[int, int]


class Directory:
    """An open directory, closed when its last user lets go of it."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class LocalTree:
    """The directories below a root.

    A link or special file below the root is refused wherever it stands: a repository never holds
    one. Directories that were read from stay open, so that a read of an object opens one file, and
    so do those that were written to, as long as they stand where they stood; everything that reads
    an object that changes walks from the root again.
    """

    def __init__(self, root: Path, directory_mode: int, *, durable: bool) -> None:
        self._root = root
        self._directory_mode = directory_mode
        self._durable = durable
        self._known: dict[str, Directory] = {}
        self._made: dict[str, tuple[Directory, _Identity]] = {}
        self._root_identity: _Identity | None = None
        self._durable_paths: set[str] = set()

    def open_immutable(self, key: str) -> tuple[int, os.stat_result]:
        """Descriptor and status of an object that never changes."""
        path, _, name = disk_path(key).rpartition("/")
        known = self._known.get(path)
        if known is not None:
            try:
                return open_object(known, name, key)
            except OSError as error:
                if error.errno not in _MOVED:
                    raise
        directory = self.directory(path, key)
        self._remember(path, directory)
        return open_object(directory, name, key)

    def directory(self, path: str, key: str) -> Directory:
        """An existing directory, opened afresh."""
        directory = self._open_root()
        for name in _names(path):
            directory = _open_directory(directory, name, key)
        return directory

    def made_directory(self, path: str, key: str) -> Directory:
        """A directory, made with its parents and the root when it is not there."""
        made = self._made.get(path)
        if made is not None and made[1] == _identity_at(f"{self._root}/{path}"):
            return made[0]
        directory = self._walk_and_make(path, key)
        if len(self._made) >= _MADE_LIMIT:
            self._made.clear()
        self._made[path] = directory, _identity(os.fstat(directory.fd))
        return directory

    def _walk_and_make(self, path: str, key: str) -> Directory:
        directory = self._made_root()
        walked = ""
        for name in _names(path):
            walked = f"{walked}/{name}"
            directory = self._made_child(directory, name, walked, key)
        return directory

    def _open_root(self) -> Directory:
        directory = Directory(os.open(self._root, os.O_RDONLY | os.O_DIRECTORY))
        identity = _identity(os.fstat(directory.fd))
        if identity != self._root_identity:
            self._known.clear()
            self._root_identity = identity
        return directory

    def _made_root(self) -> Directory:
        try:
            return self._open_root()
        except FileNotFoundError:
            self._make_path(self._root)
        return self._open_root()

    def _make_path(self, path: Path) -> None:
        try:
            path.mkdir(self._directory_mode)
        except FileExistsError:
            return
        except FileNotFoundError:
            if path.parent == path:
                raise
            self._make_path(path.parent)
            self._make_path(path)
            return
        if self._durable:
            sync_directory(Directory(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)))

    def _made_child(self, parent: Directory, name: str, walked: str, key: str) -> Directory:
        try:
            child = _open_directory(parent, name, key)
        except FileNotFoundError:
            self._durable_paths.discard(walked)
            _make_directory(parent, name, self._directory_mode)
            child = _open_directory(parent, name, key)
        # Another process may have made the directory a moment ago, and not yet its entry durable.
        if self._durable and walked not in self._durable_paths:
            sync_directory(parent)
            self._durable_paths.add(walked)
        return child

    def _remember(self, path: str, directory: Directory) -> None:
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        self._known[path] = directory


def open_object(directory: Directory, name: str, key: str) -> tuple[int, os.stat_result]:
    """Descriptor and status of a regular file, without following a link and without waiting."""
    try:
        fd = os.open(name, _FILE_FLAGS, dir_fd=directory.fd)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.ENODEV}:
            raise _refusal(_what_is_at(directory, name), key) from error
        raise
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise _refusal(_kind_of(status.st_mode), key)
    return fd, status


def object_status(directory: Directory, name: str, key: str) -> os.stat_result:
    """Size and times of a regular file."""
    status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise _refusal(_kind_of(status.st_mode), key)
    return status


def sync_directory(directory: Directory) -> None:
    """Make the names in a directory survive a loss of power."""
    os.fsync(directory.fd)


def open_child(directory: Directory, name: str) -> Directory:
    """A directory inside an open one; a link in its place is an OSError."""
    return Directory(os.open(name, _DIRECTORY_FLAGS, dir_fd=directory.fd))


def _open_directory(parent: Directory, name: str, key: str) -> Directory:
    try:
        return open_child(parent, name)
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            kind = _what_is_at(parent, name)
            if kind != "file":
                raise _refusal(kind, key) from error
        raise


def _make_directory(parent: Directory, name: str, mode: int) -> None:
    try:
        os.mkdir(name, mode, dir_fd=parent.fd)
    except FileExistsError:
        return


def _identity(info: os.stat_result) -> _Identity:
    return info.st_dev, info.st_ino


def _identity_at(path: str) -> _Identity | None:
    """What stands at a path, be it a link; None where nothing does."""
    try:
        return _identity(os.lstat(path))
    except OSError:
        return None


def _names(path: str) -> list[str]:
    return path.split("/") if path else []


def _what_is_at(directory: Directory, name: str) -> str:
    return _kind_of(os.stat(name, dir_fd=directory.fd, follow_symlinks=False).st_mode)


def _kind_of(mode: int) -> str:
    kinds = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "directory",
        stat.S_IFLNK: "symbolic link",
        stat.S_IFIFO: "FIFO",
        stat.S_IFSOCK: "socket",
    }
    return kinds.get(stat.S_IFMT(mode), "device")


def _refusal(kind: str, key: str) -> StorageError:
    message = (
        f"{key!r} leads to a {kind} where the repository keeps only plain files and directories:"
        " replace it by the object itself, or restore the object"
    )
    return StorageError(message, key=key)
