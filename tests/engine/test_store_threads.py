"""Which thread stores a chunk: the event loop's own one lends a hand only where nothing waits."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from zarr.core.buffer import default_buffer_prototype

from icechunk_stream import Repository
from icechunk_stream.storage import LocalStorage
from tests.zarr.documents import array

if TYPE_CHECKING:
    from pathlib import Path

    from icechunk_stream.storage import BytesLike, Durability

MANY, FEW = 40, 3
LARGE, HUGE = 2_000, 5 * 2**20


class Watched(LocalStorage):
    """Tells which threads wrote chunks."""

    def __init__(self, path: Path, durability: Durability) -> None:
        super().__init__(path, durability=durability)
        self.writers: list[threading.Thread] = []

    def _put(self, key: str, data: BytesLike) -> None:
        if key.startswith("chunks/"):
            self.writers.append(threading.current_thread())
        super()._put(key, data)


@pytest.mark.parametrize(
    ("durability", "number", "size", "helps"),
    [
        ("os", MANY, LARGE, True),
        ("os", FEW, LARGE, False),
        ("os", 8, HUGE, False),
        ("fsync", MANY, LARGE, False),
    ],
)
def test_the_loop_writes_itself_only_what_is_short_and_waits_for_nothing(
    tmp_path: Path, durability: Durability, number: int, size: int, helps: bool
) -> None:
    storage = Watched(tmp_path, durability)
    session = Repository.create(storage).writable_session("main")
    store, buffer = session.store, default_buffer_prototype().buffer
    values = {f"a/c/{row}": bytes([row]) * size for row in range(number)}

    async def write_and_read() -> dict[str, bytes]:
        await store.set("a/zarr.json", buffer.from_bytes(array([number])))
        await asyncio.gather(
            *(store.set(key, buffer.from_bytes(value)) for key, value in values.items())
        )
        found = [await store.get(key, default_buffer_prototype()) for key in values]
        return {key: data.to_bytes() for key, data in zip(values, found, strict=True) if data}

    assert asyncio.run(write_and_read()) == values
    assert len(storage.writers) == number
    assert (threading.current_thread() in storage.writers) == helps
