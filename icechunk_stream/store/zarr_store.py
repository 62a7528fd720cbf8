"""zarr's Store over a session: the only asynchronous part, since zarr is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from zarr.abc.store import Store
from zarr.core.buffer import Buffer, default_buffer_prototype

from icechunk_stream.errors import (
    ErrorKind,
    InvalidInputError,
    ReadOnlyError,
    SessionStateError,
)
from icechunk_stream.format.chunk_refs import NativeChunk
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.reading import Far
from icechunk_stream.store.byte_ranges import chunk_range
from icechunk_stream.store.keys import ChunkKey, MetadataKey, ZarrV2Key, normal_path, parse_key
from icechunk_stream.store.listing import directory, key_batches, ref_batches
from icechunk_stream.store.values import (
    chunk_bytes,
    chunk_payload,
    document_bytes,
    is_near,
    payload_bytes,
    payload_length,
    size_below,
    size_of,
    v2_key,
)
from icechunk_stream.store.virtual_refs import VirtualRefs
from icechunk_stream.store.writes import (
    delete,
    delete_below,
    needs_no_request,
    write,
    write_if_absent,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from typing import Protocol, TypeVar

    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import BufferPrototype

    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.storage import BytesLike
    from icechunk_stream.store.keys import StoreKey
    from icechunk_stream.store.listing import Batch
    from icechunk_stream.writing import Edits

    T = TypeVar("T")

    class OpenSession(Protocol):
        """What a store needs of its session."""

        @property
        def reader(self) -> SnapshotReader: ...

        @property
        def edits(self) -> Edits:
            """Where writes go; raises ``ReadOnlyError`` where there is no such place."""

        @property
        def read_only(self) -> bool: ...


# Reads of at most this size are cheaper than the hop to another thread, where storage is near.
NEAR_READ = 64 * 1024
# While so many writes wait for threads, the event loop's own thread does one that copies at most
# this much, where that is all it does: a processor more, and a hop less.
_WAITING_WRITES = 7
_OWN_WRITE = 4 * 2**20
DEFAULT_BATCH = 100_000


class ReadOnlyStoreError(ReadOnlyError, ValueError):
    """What zarr's own stores raise: they know no better error than ``ValueError``."""


class IcechunkStore(VirtualRefs, Store):
    """The zarr store of a session: what is written is read back at once, and kept by a commit."""

    def __init__(self, session: OpenSession, read_only: bool | None = None) -> None:
        super().__init__(read_only=session.read_only if read_only is None else read_only)
        self._session = session
        self._writes: set[asyncio.Future[None]] = set()

    @property
    def session(self) -> Any:  # noqa: ANN401
        """The session that the store belongs to."""
        return self._session

    def __eq__(self, value: object) -> bool:
        return isinstance(value, IcechunkStore) and value._session == self._session

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"IcechunkStore({self._session!r})"

    __str__ = __repr__

    def with_read_only(self, read_only: bool = False) -> IcechunkStore:
        """The same session behind a store of another mode."""
        return IcechunkStore(self._session, read_only=read_only)

    # -- reading ---------------------------------------------------------------------------------

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The value of a key, or a part of it; None where there is none."""
        reader = self._reader
        parsed = parse_key(key)
        if isinstance(parsed, ChunkKey):
            data = await self._get_chunk(reader, parsed, byte_range)
        else:
            data = document_bytes(reader, parsed, byte_range)
        return None if data is None else prototype.buffer.from_bytes(data)

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """``get`` for callers without an event loop."""
        reader = self._reader
        parsed = parse_key(key)
        if isinstance(parsed, ChunkKey):
            data = chunk_bytes(reader, parsed, byte_range)
        else:
            data = document_bytes(reader, parsed, byte_range)
        buffer = (prototype or default_buffer_prototype()).buffer
        return None if data is None else buffer.from_bytes(data)

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        """Values or parts of values in the order asked for."""
        reads = [self.get(key, prototype, byte_range) for key, byte_range in key_ranges]
        return list(await asyncio.gather(*reads))

    async def exists(self, key: str) -> bool:
        parsed = parse_key(key)
        if isinstance(parsed, ZarrV2Key):
            raise v2_key(parsed)
        if isinstance(parsed, MetadataKey):
            return self._reader.node(parsed.path) is not None
        return await self._beside(chunk_payload, self._reader, parsed) is not None

    async def getsize(self, key: str) -> int:
        """Stored length of a value; 0 for a chunk that was never written."""
        return await self._beside(size_of, self._reader, parse_key(key))

    async def getsize_prefix(self, prefix: str) -> int:
        """Summed length of all values below a node."""
        return await self._beside(size_below, self._reader, prefix)

    # -- listing ---------------------------------------------------------------------------------

    def list(self) -> AsyncIterator[str]:
        """All keys: documents first, then chunks."""
        return self.list_prefix("")

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys below the root, a group or an array."""
        async for keys in self._batches(key_batches(self._reader, prefix)):
            for key in keys:
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names directly below a node or a folder of chunks."""
        for name in await self._beside(directory, self._reader, prefix):
            yield name

    async def is_empty(self, prefix: str) -> bool:
        return not await self._beside(directory, self._reader, prefix)

    async def array_chunk_iterator(
        self, array_path: str, batch_size: int = DEFAULT_BATCH
    ) -> AsyncIterator[Batch]:
        """Batches of aligned columns: indices, kinds, paths, offsets, lengths, inline bytes.

        Kinds are those of ``ChunkType``; a path is a chunk id, a location or empty, by kind. The
        inline bytes are by row of the batch.
        """
        path = normal_path(array_path)
        if path is None or batch_size < 1:
            message = f"invalid path {array_path!r} or batch size {batch_size}"
            raise InvalidInputError(message, ErrorKind.INVALID_PATH)
        node = self._reader.node(path)
        if isinstance(node, ArrayNode):
            async for batch in self._batches(ref_batches(self._reader, node, batch_size)):
                yield batch

    # -- what zarr asks about a store ------------------------------------------------------------

    @property
    def supports_writes(self) -> bool:
        return True

    @property
    def supports_deletes(self) -> bool:
        return True

    @property
    def supports_partial_writes(self) -> Literal[False]:
        return False

    @property
    def supports_listing(self) -> bool:
        return True

    @property
    def supports_consolidated_metadata(self) -> bool:
        """A snapshot has all documents in one object already."""
        return False

    # -- writing ---------------------------------------------------------------------------------

    async def set(self, key: str, value: Buffer) -> None:
        """Write a zarr.json or a chunk."""
        edits, parsed, data = self._to_write(key, value)
        if needs_no_request(edits, parsed, len(data)) or self._writes_itself(len(data)):
            write(edits, parsed, data)
            return
        waiting = self._beside(write, edits, parsed, data)
        self._writes.add(waiting)
        waiting.add_done_callback(self._writes.discard)
        await waiting

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write a zarr.json or a chunk, unless it is there already."""
        await self._beside(write_if_absent, *self._to_write(key, value))

    async def set_partial_values(
        self, key_start_values: Iterable[tuple[str, int, BytesLike]]
    ) -> None:
        message = "values are written whole: read the value, change it, and set it"
        raise SessionStateError(message, ErrorKind.UNIMPLEMENTED)

    async def delete(self, key: str) -> None:
        """Delete an array, a group with all below it, or a chunk, if it is there."""
        self.delete_sync(key)

    async def delete_dir(self, prefix: str) -> None:
        """Delete an array, a group with all below it, or the chunks in a folder."""
        await self._beside(delete_below, self._edits, self._reader, prefix)

    async def clear(self) -> None:
        """Delete all groups and arrays."""
        await self._beside(self._edits.clear)

    def sync_clear(self) -> None:
        """Delete all groups and arrays."""
        self._edits.clear()

    def set_sync(self, key: str, value: Buffer) -> None:
        """``set`` for callers without an event loop."""
        write(*self._to_write(key, value))

    def delete_sync(self, key: str) -> None:
        """``delete`` for callers without an event loop."""
        delete(self._edits, parse_key(key))

    def _to_write(self, key: str, value: Buffer) -> tuple[Edits, StoreKey, BytesLike]:
        if not isinstance(value, Buffer):
            raise TypeError(f"a zarr Buffer is written to {key!r}, not a {type(value).__name__}")
        return self._edits, parse_key(key), memoryview(value.as_buffer_like())

    @property
    def _edits(self) -> Edits:
        edits = self._session.edits
        if self.read_only:
            # The first words are zarr's own.
            message = (
                "store was opened in read-only mode and does not support writing: write through"
                " Session.store, or a store made with_read_only(False)"
            )
            raise ReadOnlyStoreError(message, ErrorKind.READ_ONLY_STORE)
        return edits

    # -- between the event loop and the storage --------------------------------------------------

    @property
    def _reader(self) -> SnapshotReader:
        return self._session.reader

    def _writes_itself(self, size: int) -> bool:
        is_busy = len(self._writes) >= _WAITING_WRITES
        return is_busy and size <= _OWN_WRITE and self._reader.assets.storage.writes_to_memory

    async def _get_chunk(
        self, reader: SnapshotReader, key: ChunkKey, byte_range: ByteRequest | None
    ) -> BytesLike | None:
        node = reader.node(key.path)
        payload = reader.near_payload(node, key.index) if isinstance(node, ArrayNode) else Far()
        if payload is None:
            return None
        if isinstance(payload, Far):
            return await self._beside(chunk_bytes, reader, key, byte_range)
        start, end = chunk_range(byte_range, payload_length(payload))
        if end - start <= NEAR_READ and is_near(reader, payload):
            return payload_bytes(reader, payload, start, end)
        if isinstance(payload, NativeChunk) and start < end:
            return await reader.assets.chunk_async(payload, start, end)
        return await self._beside(payload_bytes, reader, payload, start, end)

    def _beside(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run what may ask the storage in its threads, so that the event loop goes on."""
        executor = self._reader.assets.storage.executor
        return asyncio.get_running_loop().run_in_executor(executor, work, *args)

    async def _batches(self, batches: Iterator[T]) -> AsyncIterator[T]:
        while True:
            batch = await self._beside(next, batches, None)
            if batch is None:
                return
            yield batch
