"""Where a repository's objects live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.storage.base import Storage, check_key
from icechunk_stream.storage.local import Durability, LocalStorage
from icechunk_stream.storage.memory import MemoryStorage
from icechunk_stream.storage.values import (
    ByteRange,
    BytesLike,
    DeleteFailure,
    Fetched,
    From,
    Last,
    LostRace,
    Missing,
    NotModified,
    ObjectInfo,
    ReadRequest,
    Span,
    Version,
    Written,
    beyond_the_end,
    resolve_range,
)

if TYPE_CHECKING:
    import os

__all__ = [
    "ByteRange",
    "BytesLike",
    "DeleteFailure",
    "Durability",
    "Fetched",
    "From",
    "Last",
    "LocalStorage",
    "LostRace",
    "MemoryStorage",
    "Missing",
    "NotModified",
    "ObjectInfo",
    "ReadRequest",
    "Span",
    "Storage",
    "Version",
    "Written",
    "beyond_the_end",
    "check_key",
    "in_memory_storage",
    "local_filesystem_storage",
    "resolve_range",
]


def in_memory_storage() -> MemoryStorage:
    """A storage in this process's memory; it ends with the process."""
    return MemoryStorage()


def local_filesystem_storage(
    path: str | os.PathLike[str], *, durability: Durability = "fsync"
) -> LocalStorage:
    """A storage below a directory of a local or mounted file system."""
    return LocalStorage(path, durability=durability)
