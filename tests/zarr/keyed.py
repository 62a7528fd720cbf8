"""Any keys with any values in a store that holds hierarchies of zarr v3 only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, cpu

from tests.zarr.documents import array

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Iterable

    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import BufferPrototype

    import icechunk_stream as ic

SCALAR = cpu.Buffer.from_bytes(array([]))
# Chunks are never empty, values may be.
MARK = b"\n"
CHUNK = "/c"


class KeyedStore(Store):
    """Each key is the path of an array without dimensions, each value its one chunk."""

    def __init__(self, store: ic.IcechunkStore) -> None:
        super().__init__(read_only=False)
        self.session = store.session
        self._store = store

    def __eq__(self, value: object) -> bool:
        return isinstance(value, KeyedStore) and self._store == value._store

    __hash__ = None  # type: ignore[assignment]

    @property
    def supports_writes(self) -> bool:
        return True

    @property
    def supports_deletes(self) -> bool:
        return True

    @property
    def supports_listing(self) -> bool:
        return True

    async def set(self, key: str, value: Buffer) -> None:
        await self._store.set(f"{key}/zarr.json", SCALAR)
        await self._store.set(key + CHUNK, cpu.Buffer.from_bytes(MARK + value.to_bytes()))

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        size = await self.getsize(key)
        if size < 0:
            return None
        start, end = _bounds(byte_range, size)
        request = RangeByteRequest(1 + start, 1 + end)
        found = None if start == end else await self._store.get(key + CHUNK, prototype, request)
        return prototype.buffer.from_bytes(b"") if found is None else found

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> builtins.list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return await self._store.exists(key + CHUNK)

    async def delete(self, key: str) -> None:
        await self._store.delete(key + CHUNK)

    async def getsize(self, key: str) -> int:
        """-1 for a key that is not there."""
        node = self.session.reader.node("/" + key)
        return -1 if node is None else await self._store.getsize(key + CHUNK) - len(MARK)

    async def clear(self) -> None:
        await self._store.clear()

    def list(self) -> AsyncIterator[str]:
        return self.list_prefix("")

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        async for key in self._store.list():
            name = key.removesuffix(CHUNK)
            if name != key and name.startswith(prefix):
                yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        async for name in self._store.list_dir(prefix):
            yield name

    async def is_empty(self, prefix: str) -> bool:
        async for _ in self.list_prefix(prefix):
            return False
        return True


def _bounds(byte_range: ByteRequest | None, size: int) -> tuple[int, int]:
    """A range cut to what the value has; repositories refuse one that reaches further."""
    match byte_range:
        case None:
            return 0, size
        case RangeByteRequest(start, end):
            return min(start, size), max(min(end, size), min(start, size))
        case OffsetByteRequest(offset):
            return min(offset, size), size
        case SuffixByteRequest(suffix):
            return max(size - suffix, 0), size
        case _:
            raise TypeError(byte_range)
