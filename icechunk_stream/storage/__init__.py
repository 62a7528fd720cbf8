"""Where a repository's objects live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.storage.base import Storage, check_key
from icechunk_stream.storage.local import Durability, LocalStorage
from icechunk_stream.storage.memory import MemoryStorage
from icechunk_stream.storage.probe import probe_conditional_writes
from icechunk_stream.storage.s3 import S3Storage
from icechunk_stream.storage.s3_factories import r2_storage, s3_storage, tigris_storage
from icechunk_stream.storage.s3_settings import S3Access
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
    "S3Access",
    "S3Storage",
    "Span",
    "Storage",
    "Version",
    "Written",
    "beyond_the_end",
    "check_key",
    "in_memory_storage",
    "local_filesystem_storage",
    "probe_conditional_writes",
    "r2_storage",
    "resolve_range",
    "s3_storage",
    "tigris_storage",
]


def in_memory_storage() -> MemoryStorage:
    """A storage in this process's memory; it ends with the process."""
    return MemoryStorage()


def local_filesystem_storage(
    path: str | os.PathLike[str], *, durability: Durability = "fsync"
) -> LocalStorage:
    """A storage below a directory of a local or mounted file system."""
    return LocalStorage(path, durability=durability)
