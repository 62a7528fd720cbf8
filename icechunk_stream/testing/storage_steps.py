"""What tests of storages do again and again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from icechunk_stream.storage import Fetched, LostRace, Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icechunk_stream.storage import ByteRange, BytesLike, Storage, Version


def create(storage: Storage, key: str, data: BytesLike) -> Version:
    """Write an object that must not be there yet."""
    return _version(storage.put_if(key, data, None))


def update(storage: Storage, key: str, data: BytesLike, expected: Version) -> Version:
    """Swap an object that must be in the expected version."""
    return _version(storage.put_if(key, data, expected))


def fetch(storage: Storage, key: str) -> Fetched:
    """Read an object that must be there."""
    fetched = storage.read(key)
    assert isinstance(fetched, Fetched)
    return fetched


def increment(storage: Storage, key: str) -> int:
    """Add one to a number by compare-and-swap; the number that was written."""
    while True:
        current = fetch(storage, key)
        number = int(current.data) + 1
        if storage.put_if(key, str(number).encode(), current.version) != LostRace():
            return number


def keys(storage: Storage, prefix: str = "") -> list[str]:
    return [info.key for info in storage.list(prefix)]


def in_one_loop(storage: Storage, ranges: Sequence[ByteRange | None]) -> list[bytes]:
    """Ranges of an object, read at once in an event loop."""

    async def read() -> list[BytesLike]:
        return await asyncio.gather(*(storage.get_async("chunks/A", each) for each in ranges))

    return [bytes(data) for data in asyncio.run(read())]


def _version(outcome: Written | LostRace) -> Version:
    assert isinstance(outcome, Written)
    return outcome.version
