"""Whether a store decides races: asked of the store itself before it is trusted with commits."""

from __future__ import annotations

import logging
from base64 import b32encode
from typing import TYPE_CHECKING

from icechunk_stream.effects import random_bytes
from icechunk_stream.errors import ErrorKind, StorageError
from icechunk_stream.storage.values import LostRace, Written

if TYPE_CHECKING:
    from icechunk_stream.storage.base import Storage
    from icechunk_stream.storage.values import ObjectInfo, Version

_logger = logging.getLogger(__name__)

PROBE_FOLDER = "chunks/"
PROBE_SIZE = 1

_ID_BYTES = 12
_TO_CROCKFORD = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)


def probe_conditional_writes(storage: Storage) -> ObjectInfo | None:
    """Raise ``StorageError`` where a store does not honour the conditions of writes.

    What the store says of the object that was just written tells its time.

    The probe writes an object under the name of a chunk, which garbage collection takes should
    this process die before it deletes it.
    """
    key = f"{PROBE_FOLDER}{_random_id()}"
    try:
        _check(storage, key)
        return storage.stat(key)
    finally:
        for failure in storage.delete_many([key]):
            _logger.warning(
                "the probe %s could not be deleted, garbage collection will take it: %s",
                failure.key,
                failure.reason,
            )


def _check(storage: Storage, key: str) -> None:
    first = _must_write(storage, key, b"1", None)
    _must_lose(storage, key, b"2", None)
    _must_write(storage, key, b"3", first)
    _must_lose(storage, key, b"4", first)


def _must_write(storage: Storage, key: str, data: bytes, expected: Version | None) -> Version:
    match storage.put_if(key, data, expected):
        case Written(version):
            return version
        case LostRace():
            what = "a new object" if expected is None else "the present version of an object"
            raise _refuse(storage, key, f"it takes no conditional write of {what}")


def _must_lose(storage: Storage, key: str, data: bytes, stale: Version | None) -> None:
    if isinstance(storage.put_if(key, data, stale), Written):
        what = "was created twice" if stale is None else "was replaced from a version long gone"
        raise _refuse(storage, key, f"an object {what}")


def _refuse(storage: Storage, key: str, why: str) -> StorageError:
    message = (
        f"{storage!r} does not honour the conditions of writes ({why}), so that concurrent commits"
        " there would lose each other's data: use a store that supports If-None-Match and"
        " If-Match, or a version of its server that does"
    )
    return StorageError(message, ErrorKind.STORAGE_CONFIG, key=key)


def _random_id() -> str:
    encoded = b32encode(random_bytes(_ID_BYTES)).rstrip(b"=")
    return encoded.translate(_TO_CROCKFORD).decode()
