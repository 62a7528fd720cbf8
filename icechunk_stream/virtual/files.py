"""Virtual chunks in local files: contained in their container, and unchanged since referenced."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from icechunk_stream.config.redact import redact_location as shown
from icechunk_stream.errors import ErrorKind, InvalidInputError, StorageError
from icechunk_stream.format.chunk_refs import Checksum, ETag, LastModified

if TYPE_CHECKING:
    from icechunk_stream.format.chunk_refs import VirtualChunk
    from icechunk_stream.virtual.containers import Grant

SCHEME = "file"


def read_file(chunk: VirtualChunk, location: str, grant: Grant, start: int, end: int) -> bytes:
    """Bytes ``start`` to ``end`` of a chunk that is a range of a local file."""
    path = _contained(location, grant.url_prefix)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _failed(location, f"it cannot be opened ({error.strerror})") from error
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise _failed(location, "it is not a regular file")
        _check_unchanged(location, found, chunk.checksum)
        if chunk.offset + chunk.length > found.st_size:
            what = f"bytes {chunk.offset} to {chunk.offset + chunk.length} of {found.st_size}"
            raise _failed(location, f"the chunk is said to be its {what}")
        return _read_exactly(handle, location, chunk.offset + start, end - start)
    finally:
        os.close(handle)


def _contained(location: str, url_prefix: str) -> Path:
    """The real file of a location, if it is really below the real folder of the prefix."""
    folder = Path(os.path.realpath(_path(url_prefix)))
    path = Path(os.path.realpath(_path(location)))
    if not path.is_relative_to(folder):
        where = f"outside of its container {shown(url_prefix)!r}"
        message = f"the virtual chunk {shown(location)!r} is {where}"
        raise InvalidInputError(message, ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER)
    return path


def _path(url: str) -> str:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or "\0" in path or not path.startswith("/"):
        message = f"{shown(url)!r} names no local file: write file:///absolute/path"
        raise InvalidInputError(message, ErrorKind.INVALID_VIRTUAL_REF)
    return path


def _check_unchanged(location: str, found: os.stat_result, checksum: Checksum | None) -> None:
    if _has_changed(found, checksum):
        message = (
            f"{shown(location)} has changed since the virtual chunk was written: write its"
            " references again from the file as it is now"
        )
        raise StorageError(message, ErrorKind.VIRTUAL_CHUNK_MODIFIED)


def _has_changed(found: os.stat_result, checksum: Checksum | None) -> bool:
    match checksum:
        case None:
            return False
        case ETag(value):
            return value.strip('"') != file_etag(found)
        case LastModified(seconds):
            return found.st_mtime_ns > seconds * 10**9


def file_etag(found: os.stat_result) -> str:
    """The etag that object stores over local files give: inode, microseconds of change, size."""
    return f"{found.st_ino:x}-{found.st_mtime_ns // 1000:x}-{found.st_size:x}"


def _read_exactly(handle: int, location: str, offset: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.pread(handle, size, offset)
        if not part:
            raise _failed(location, "it was cut while it was read")
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _failed(location: str, why: str) -> StorageError:
    message = f"the virtual chunk {shown(location)!r} cannot be read: {why}"
    return StorageError(message, ErrorKind.VIRTUAL_CHUNK_FETCH)
