"""What a session writes: documents of nodes, and chunks, which are stored before they count."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.assets import chunk_key
from icechunk_stream.effects import random_bytes
from icechunk_stream.errors import AlreadyExistsError, ErrorKind, InvalidInputError, ReadOnlyError
from icechunk_stream.format.boxes import inside
from icechunk_stream.format.chunk_refs import InlineChunk, NativeChunk, RefKind
from icechunk_stream.format.documents import make_node
from icechunk_stream.format.ids import NODE_ID_SIZE, OBJECT_ID_SIZE, ChunkId, NodeId
from icechunk_stream.format.nodes import ArrayNode, GroupNode
from icechunk_stream.format.ref_rows import deletions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from icechunk_stream.changes import ChangeSet
    from icechunk_stream.format.chunk_refs import ChunkPayload, VirtualChunk
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.ref_tables import RefTable
    from icechunk_stream.overlay import OverlayReader
    from icechunk_stream.storage import BytesLike

    Indices = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class WriteRules:
    """Chunks of up to ``inline_threshold`` bytes stand in manifests, longer ones in objects."""

    inline_threshold: int
    spec_version: int


class Edits:
    """Writes of a session: each is in the change set when its method returns.

    Safe to share between threads: chunks are stored side by side, and recorded one at a time.
    """

    def __init__(self, reader: OverlayReader, changes: ChangeSet, rules: WriteRules) -> None:
        self._reader = reader
        self._changes = changes
        self._rules = rules
        self._is_closed = False
        self._lock = threading.RLock()

    def close(self) -> None:
        """Refuse all further writes, also those that are on their way: a commit has begun."""
        with self._lock:
            self._is_closed = True

    def reopen(self) -> None:
        """Take writes again, after a commit that failed."""
        with self._lock:
            self._is_closed = False

    @property
    def inline_threshold(self) -> int:
        """Chunks of up to so many bytes need no object of their own."""
        return self._rules.inline_threshold

    # -- nodes -----------------------------------------------------------------------------------

    def set_document(self, path: str, data: bytes) -> None:
        """Create the node that a zarr.json describes, or give the one that is there this one."""
        with self._recording() as changes:
            node = self._reader.node(path)
            if node is None:
                id = NodeId(random_bytes(NODE_ID_SIZE))
                changes.create(make_node(id, path, data, self._rules.spec_version))
            elif node.user_data != data:
                changes.update(_updated(node, data, self._rules.spec_version))

    def set_document_if_absent(self, path: str, data: bytes) -> None:
        with self._lock:
            if self._reader.node(path) is None:
                self.set_document(path, data)

    def delete_node(self, path: str) -> None:
        """Delete an array, or a group with all below it; where neither is, nothing happens."""
        with self._recording() as changes:
            match self._reader.node(path):
                case ArrayNode() as array:
                    changes.delete([array])
                case GroupNode():
                    changes.delete(list(self._reader.nodes.below(path)))
                case None:
                    pass

    def clear(self) -> None:
        """Delete all groups and arrays."""
        with self._recording() as changes:
            changes.delete(list(self._reader.nodes))

    # -- chunks ----------------------------------------------------------------------------------

    def is_inline(self, size: int) -> bool:
        """Whether a chunk of so many bytes needs no object of its own."""
        return size <= self._rules.inline_threshold

    def set_chunk(self, path: str, index: Sequence[int], data: BytesLike) -> None:
        """Write a chunk. When its object cannot be stored, the session stays as it was."""
        _check_chunk(self._reader.array(path), index, memoryview(data).nbytes)
        self._record(path, index, self._stored(data))

    def set_chunk_if_absent(self, path: str, index: Sequence[int], data: BytesLike) -> None:
        """Write a chunk, unless there is one already, be it written while this one is stored."""
        if self._is_absent(path, index):
            _check_chunk(self._reader.array(path), index, memoryview(data).nbytes)
            payload = self._stored(data)
            with self._lock:
                if self._is_absent(path, index):
                    self._record(path, index, payload)

    def set_virtual(self, path: str, index: Sequence[int], chunk: VirtualChunk) -> None:
        """Refer to a range of an object outside of the repository."""
        _check_chunk(self._reader.array(path), index, chunk.length)
        self._record(path, index, chunk)

    def set_refs(self, path: str, table: RefTable) -> None:
        """Set or delete many references, whose bytes are stored; all or none is recorded."""
        with self._recording() as changes:
            node = self._reader.array(path)
            _check_table(node, table)
            changes.set_chunks(node, table)

    def delete_chunk(self, path: str, index: Sequence[int]) -> None:
        """Delete a chunk, written or not; outside of an array's grid nothing happens."""
        with self._recording() as changes:
            node = self._reader.node(path)
            if isinstance(node, ArrayNode) and node.has_chunk(index):
                changes.set_chunk(node, index, None)

    def delete_chunks(self, path: str, indices: Indices) -> None:
        """Delete many chunks; those outside of an array's grid are passed over."""
        with self._recording() as changes:
            node = self._reader.node(path)
            if isinstance(node, ArrayNode) and indices.shape[1] == len(node.shape):
                kept = indices[inside(indices, node.grid)]
                changes.set_chunks(node, deletions(kept))

    def delete_chunks_below(self, path: str, leading: Sequence[int]) -> None:
        """Delete the chunks whose indices begin so."""
        node = self._reader.node(path)
        if isinstance(node, ArrayNode) and len(leading) <= len(node.shape):
            self.delete_chunks(path, self._indices_below(node, leading))

    def _indices_below(self, node: ArrayNode, leading: Sequence[int]) -> Indices:
        found = [np.zeros((0, len(node.shape)), np.uint32)]
        for columns in self._reader.all_columns(node):
            indices = columns.indices()
            if leading:
                indices = indices[(indices[:, : len(leading)] == leading).all(axis=1)]
            found.append(indices)
        return np.concatenate(found)

    def _stored(self, data: BytesLike) -> ChunkPayload:
        size = memoryview(data).nbytes
        if self.is_inline(size):
            return InlineChunk(bytes(data))
        chunk = NativeChunk(ChunkId(random_bytes(OBJECT_ID_SIZE)), 0, size)
        self._reader.assets.storage.put(chunk_key(chunk), data)
        return chunk

    def _record(self, path: str, index: Sequence[int], payload: ChunkPayload) -> None:
        """The array may have gone or shrunk while the chunk was stored."""
        with self._recording() as changes:
            node = self._reader.array(path)
            _check_index(node, index)
            changes.set_chunk(node, index, payload)

    @contextmanager
    def _recording(self) -> Iterator[ChangeSet]:
        with self._lock:
            if self._is_closed:
                message = (
                    "the session began to commit or to rebase while this was written, and does"
                    " not hold it: write it again, after a commit to a new writable session"
                )
                raise ReadOnlyError(message, ErrorKind.READ_ONLY_SESSION)
            yield self._changes

    def _is_absent(self, path: str, index: Sequence[int]) -> bool:
        return self._reader.payload(self._reader.array(path), index) is None


def _updated(node: Node, data: bytes, spec_version: int) -> Node:
    new = make_node(node.id, node.path, data, spec_version)
    match node, new:
        case GroupNode(), GroupNode():
            return new
        case ArrayNode(), ArrayNode() if len(node.shape) == len(new.shape):
            return new
        case ArrayNode(), ArrayNode():
            message = (
                f"the array {node.path} has {len(node.shape)} dimensions and its chunks too, not"
                f" {len(new.shape)}: delete it first, or create another one"
            )
            raise InvalidInputError(message, ErrorKind.INVALID_ARRAY_METADATA)
        case _:
            there = "an array" if isinstance(node, ArrayNode) else "a group"
            message = f"{there} is at {node.path}: delete it before another node takes its place"
            raise AlreadyExistsError(message, ErrorKind.NODE_ALREADY_EXISTS)


def _check_chunk(node: ArrayNode, index: Sequence[int], size: int) -> None:
    if not size:
        raise _empty(node, index)
    _check_index(node, index)


def _check_index(node: ArrayNode, index: Sequence[int]) -> None:
    if not node.has_chunk(index):
        raise _outside(node, index)


def _check_table(node: ArrayNode, table: RefTable) -> None:
    if table.rank != len(node.shape):
        raise _outside(node, [0] * table.rank)
    empty = np.flatnonzero((table.kinds == RefKind.VIRTUAL) & (table.lengths == 0))
    if len(empty):
        raise _empty(node, table.indices[empty[0]].tolist())
    outside = np.flatnonzero(~inside(table.indices, node.grid))
    if len(outside):
        raise _outside(node, table.indices[outside[0]].tolist())


def _outside(node: ArrayNode, index: Sequence[int]) -> InvalidInputError:
    message = (
        f"the chunk {tuple(index)} is outside of {node.path}, whose grid has {node.grid} chunks:"
        " resize the array before writing there"
    )
    return InvalidInputError(message, ErrorKind.INVALID_CHUNK_INDEX)


def _empty(node: ArrayNode, index: Sequence[int]) -> InvalidInputError:
    message = (
        f"the chunk {tuple(index)} of {node.path} would have no bytes, which no codec decodes:"
        " delete the chunk instead, and readers see the fill value"
    )
    return InvalidInputError(message, ErrorKind.ZERO_LENGTH_CHUNK)
