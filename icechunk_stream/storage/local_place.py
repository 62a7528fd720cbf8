"""One object's place in a local tree: what is there, and new content on its way there."""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.storage.local_errors import is_missing
from icechunk_stream.storage.local_names import disk_path, temporary_name
from icechunk_stream.storage.local_tree import object_status, open_object
from icechunk_stream.storage.values import Fetched, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from icechunk_stream.storage.local_tree import Directory, LocalTree
    from icechunk_stream.storage.values import BytesLike

# No object of a repository is larger; a sparse file can be, and takes no room.
_MAX_READ = 2**32
_STAGING_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Place:
    """A name in an open directory, where an object is or is going to be."""

    directory: Directory
    name: str
    key: str

    def status(self) -> os.stat_result | None:
        """Size and times of the object, or None when there is none."""
        try:
            return object_status(self.directory, self.name, self.key)
        except OSError as error:
            if is_missing(error):
                return None
            raise

    def read(self) -> tuple[Fetched, os.stat_result] | None:
        """Bytes, version and status of one and the same file, or None when there is none."""
        try:
            fd, status = open_object(self.directory, self.name, self.key)
        except OSError as error:
            if is_missing(error):
                return None
            raise
        try:
            data = read_range(fd, 0, status.st_size)
        finally:
            os.close(fd)
        return Fetched(data, version_of(status, digest(data))), status

    @contextmanager
    def staged(self, pieces: Iterable[BytesLike], mode: int, *, durable: bool) -> Iterator[Staged]:
        """New content beside the object, gone after the block unless it took the name."""
        staged = Staged(self, temporary_name())
        fd = os.open(staged.name, _STAGING_FLAGS, mode, dir_fd=self.directory.fd)
        try:
            _fill(fd, pieces, durable=durable)
            yield staged
        except BaseException:
            staged.discard()
            raise


@dataclass(frozen=True, slots=True)
class Staged:
    """A complete file under a temporary name, beside the place that it is for."""

    place: Place
    name: str

    def replace(self) -> None:
        """Take the place's name, from another file if there is one."""
        fd = self.place.directory.fd
        os.rename(self.name, self.place.name, src_dir_fd=fd, dst_dir_fd=fd)

    def create(self) -> bool:
        """Take the place's name if it is free."""
        fd = self.place.directory.fd
        try:
            os.link(self.name, self.place.name, src_dir_fd=fd, dst_dir_fd=fd)
        except FileExistsError:
            return False
        finally:
            self.discard()
        return True

    def status(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.place.directory.fd, follow_symlinks=False)

    def make_later(self, than: os.stat_result) -> None:
        """Change its time so that it is later than that of the file to be replaced."""
        status = self.status()
        if status.st_mtime_ns <= than.st_mtime_ns:
            times = (status.st_atime_ns, than.st_mtime_ns + 1)
            fd = self.place.directory.fd
            os.utime(self.name, ns=times, dir_fd=fd, follow_symlinks=False)

    def discard(self) -> None:
        """Remove the file; one that cannot be removed is passed over by every listing."""
        with suppress(OSError):
            os.unlink(self.name, dir_fd=self.place.directory.fd)


def find_place(tree: LocalTree, key: str) -> Place | None:
    """The place of an object, or None when its directory is not there."""
    path, _, name = disk_path(key).rpartition("/")
    try:
        return Place(tree.directory(path, key), name, key)
    except OSError as error:
        if is_missing(error):
            return None
        raise


def make_place(tree: LocalTree, key: str) -> Place:
    """The place of an object, with its directory made when it is not there."""
    path, _, name = disk_path(key).rpartition("/")
    return Place(tree.made_directory(path, key), name, key)


def read_range(fd: int, start: int, stop: int) -> bytes:
    """The bytes of an open file in a range, fewer if the file has become shorter."""
    if stop - start > _MAX_READ:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    data = os.pread(fd, stop - start, start)
    if len(data) == stop - start:
        return data
    pieces = [data]
    while pieces[-1]:
        start += len(pieces[-1])
        pieces.append(os.pread(fd, stop - start, start))
    return b"".join(pieces)


def digest(data: BytesLike) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def version_of(status: os.stat_result, content: str) -> Version:
    """A version that no other content ever has, and that a rewrite of the same content changes.

    Inode numbers are used again and times are coarse, so the content's digest takes part.
    """
    return Version(f"{_identity(status)}.{content}")


def content_of(version: Version) -> str:
    """The digest of the content that a version is of."""
    return version.token.rpartition(".")[2]


def may_be(status: os.stat_result, version: Version) -> bool:
    """Whether a file can be in the version, as far as its status tells."""
    return version.token.startswith(f"{_identity(status)}.")


def _identity(status: os.stat_result) -> str:
    return f"{status.st_ino:x}.{status.st_mtime_ns:x}.{status.st_size:x}"


def _fill(fd: int, pieces: Iterable[BytesLike], *, durable: bool) -> None:
    try:
        for piece in pieces:
            _write_all(fd, piece)
        if durable:
            os.fsync(fd)
    finally:
        # A network file system may tell only here that the write failed.
        os.close(fd)


def _write_all(fd: int, data: BytesLike) -> None:
    rest = memoryview(data).cast("B")
    while rest:
        written = os.write(fd, rest)
        if not written:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rest = rest[written:]
