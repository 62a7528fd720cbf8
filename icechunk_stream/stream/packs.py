"""Encoded chunks to where their bytes are: in the references, or in a few large objects."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from icechunk_stream.assets import chunk_key
from icechunk_stream.effects import random_bytes
from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format.chunk_refs import InlineChunk, NativeChunk
from icechunk_stream.format.ids import OBJECT_ID_SIZE, ChunkId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.storage import BytesLike, Storage

PACK_SIZE = 64 * 2**20
INLINE_THRESHOLD = 512
# From here on a copy takes longer than what one more piece of an object costs.
_LONG = 64 * 2**10
# Short ones lie side by side in pieces of about so many bytes, which go one by one.
_PIECE = 2**20

Placed = InlineChunk | NativeChunk


def _new_id() -> ChunkId:
    return ChunkId(random_bytes(OBJECT_ID_SIZE))


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where chunks are stored: those of up to ``inline_threshold`` bytes in their references."""

    storage: Storage
    inline_threshold: int

    def writer(self) -> PackWriter:
        return PackWriter(self.storage, self.inline_threshold)


class PackWriter:
    """Writes chunks into objects that hold many of them, for one task.

    Chunks that stay and chunks that the next batch rewrites go into different objects, so that a
    few live bytes do not keep many dead ones. A chunk is durable once ``flush`` has returned, or
    ``wait`` after ``start``; at the end of a ``with`` block all that was begun is. After an error
    nothing goes on behind the caller's back.

    Args:
        storage: Where the repository's objects are.
        inline_threshold: Chunks of up to so many bytes stand in their references.
        pack_size: Bytes that may wait in memory; an object has about as many at most. A longer
            chunk is an object of its own.
    """

    def __init__(
        self,
        storage: Storage,
        inline_threshold: int = INLINE_THRESHOLD,
        pack_size: int = PACK_SIZE,
    ) -> None:
        if inline_threshold < 0 or pack_size < 1:
            message = (
                f"an inline threshold of {inline_threshold} and packs of {pack_size} bytes: give 0"
                " or more, and 1 or more"
            )
            raise InvalidInputError(message)
        self._storage = storage
        self._inline_threshold = inline_threshold
        self._pack_size = pack_size
        self._complete = _Pack()
        self._partial = _Pack()
        self._started: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.wait()
            return
        for each in self._started:
            each.cancel()
        wait(self._started)

    @property
    def place(self) -> ChunkPlace:
        """What a writer in another process is made of."""
        return ChunkPlace(self._storage, self._inline_threshold)

    def add(self, data: BytesLike, *, is_complete: bool) -> Placed:
        """Take a chunk, and say where its bytes will be."""
        size = memoryview(data).nbytes
        if not size:
            raise InvalidInputError("a chunk has no bytes: delete its reference instead")
        if size <= self._inline_threshold:
            return InlineChunk(bytes(data))
        if size >= self._pack_size:
            return self._put_alone(data, size)
        while self._complete.size + self._partial.size + size > self._pack_size:
            self._put_larger()
        return (self._complete if is_complete else self._partial).add(data, size)

    def flush(self) -> None:
        """Store what waits."""
        self.start()
        self.wait()

    def start(self) -> None:
        """Begin to store what waits, once nothing is left of what was begun before."""
        self.wait()
        pool, put = self._storage.executor, self._storage.put_pieces
        self._started = [pool.submit(put, pack.key, pack.taken()) for pack in self._taken()]

    def wait(self) -> None:
        """Return once all that was begun is stored."""
        wait(self._started)
        for each in self._started:
            each.result()
        self._started = []

    def _taken(self) -> list[_Pack]:
        """What waits, and no longer does."""
        packs = [pack for pack in (self._complete, self._partial) if pack.size]
        self._complete, self._partial = _Pack(), _Pack()
        return packs

    def _put_larger(self) -> None:
        if self._complete.size >= self._partial.size:
            pack, self._complete = self._complete, _Pack()
        else:
            pack, self._partial = self._partial, _Pack()
        self._storage.put_pieces(pack.key, pack.taken())

    def _put_alone(self, data: BytesLike, size: int) -> NativeChunk:
        chunk = NativeChunk(_new_id(), 0, size)
        self._storage.put(chunk_key(chunk), data)
        return chunk


@dataclass(slots=True)
class _Pack:
    """An object that is being filled; its id is known from the start.

    Long chunks stay where they were encoded, short ones are copied side by side.
    """

    id: ChunkId = field(default_factory=_new_id)
    size: int = 0
    _pieces: deque[BytesLike] = field(default_factory=deque)
    _short: bytearray | None = None

    @property
    def key(self) -> str:
        return chunk_key(NativeChunk(self.id, 0, self.size))

    def add(self, data: BytesLike, size: int) -> NativeChunk:
        chunk = NativeChunk(self.id, self.size, size)
        self.size += size
        if size >= _LONG:
            self._pieces.append(data)
            self._short = None
            return chunk
        if self._short is None or len(self._short) >= _PIECE:
            self._short = bytearray()
            self._pieces.append(self._short)
        self._short += data
        return chunk

    def taken(self) -> Iterator[BytesLike]:
        """The bytes in pieces, none of which stays here."""
        self._short = None
        while self._pieces:
            yield self._pieces.popleft()
