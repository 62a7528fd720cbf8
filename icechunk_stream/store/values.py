"""Values of a store's keys, read from a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.errors import ErrorKind, NodeNotFoundError
from icechunk_stream.format.chunk_refs import InlineChunk, NativeChunk, VirtualChunk
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.store.byte_ranges import chunk_range, document_range
from icechunk_stream.store.keys import ChunkKey, MetadataKey, ZarrV2Key
from icechunk_stream.store.listing import nodes_below

if TYPE_CHECKING:
    import numpy.typing as npt
    from zarr.abc.store import ByteRequest

    from icechunk_stream.format.chunk_refs import ChunkPayload
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.storage import BytesLike
    from icechunk_stream.store.keys import StoreKey


def document_bytes(
    reader: SnapshotReader, key: MetadataKey | ZarrV2Key, byte_range: ByteRequest | None
) -> bytes | None:
    """A zarr.json, or a part of it."""
    node = reader.node(key.path) if isinstance(key, MetadataKey) else None
    if node is None:
        return None
    start, end = document_range(byte_range, len(node.user_data))
    return node.user_data[start:end]


def chunk_payload(reader: SnapshotReader, key: ChunkKey) -> ChunkPayload | None:
    """What a chunk is; None where there is no such array or it was never written."""
    if reader.node(key.path) is None:
        return None
    return reader.payload(reader.array(key.path), key.index)


def chunk_bytes(
    reader: SnapshotReader, key: ChunkKey, byte_range: ByteRequest | None
) -> BytesLike | None:
    """A chunk, or a part of it."""
    payload = chunk_payload(reader, key)
    if payload is None:
        return None
    return payload_bytes(reader, payload, *chunk_range(byte_range, payload_length(payload)))


def payload_bytes(reader: SnapshotReader, payload: ChunkPayload, start: int, end: int) -> BytesLike:
    return reader.bytes(payload, start, end) if start < end else b""


def payload_length(payload: ChunkPayload) -> int:
    match payload:
        case InlineChunk(data):
            return len(data)
        case NativeChunk(length=length) | VirtualChunk(length=length):
            return length


def is_near(reader: SnapshotReader, payload: ChunkPayload) -> bool:
    """Whether the chunk's bytes are in memory, or as near as a local file."""
    match payload:
        case InlineChunk():
            return True
        case NativeChunk():
            return reader.assets.storage.is_near or reader.assets.cached_chunk(payload) is not None
        case VirtualChunk():
            return False


def size_of(reader: SnapshotReader, key: StoreKey) -> int:
    """Stored length of a value; 0 for a chunk that was never written."""
    if isinstance(key, ZarrV2Key):
        raise v2_key(key)
    node = reader.node(key.path)
    if node is None:
        raise NodeNotFoundError(f"no node is at {key.path}")
    if isinstance(key, MetadataKey):
        return len(node.user_data)
    payload = chunk_payload(reader, key)
    return 0 if payload is None else payload_length(payload)


def size_below(reader: SnapshotReader, prefix: str) -> int:
    """Summed length of all values below a node."""
    return sum(_size_of_node(reader, node) for node in nodes_below(reader, prefix))


def v2_key(key: ZarrV2Key) -> NodeNotFoundError:
    message = f"{key.key!r} is a key of zarr v2, which repositories do not hold"
    return NodeNotFoundError(message, ErrorKind.KEY_NOT_FOUND)


def _size_of_node(reader: SnapshotReader, node: Node) -> int:
    size = len(node.user_data)
    if isinstance(node, ArrayNode):
        size += sum(_sum(columns.lengths) for columns in reader.all_columns(node))
    return size


def _sum(lengths: npt.NDArray[np.uint64]) -> int:
    """A sum that may have more than 64 bits."""
    high, low = np.divmod(lengths, np.uint64(2**32))
    return int(high.sum()) * 2**32 + int(low.sum())
