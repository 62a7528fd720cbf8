"""Values of a store's keys, written to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.errors import ErrorKind, InvalidInputError, SessionStateError
from icechunk_stream.store.folders import chunk_folder
from icechunk_stream.store.keys import ChunkKey, MetadataKey, ZarrV2Key, normal_path
from icechunk_stream.store.values import v2_key

if TYPE_CHECKING:
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.storage import BytesLike
    from icechunk_stream.store.keys import StoreKey
    from icechunk_stream.writing import Edits


def write(edits: Edits, key: StoreKey, data: BytesLike) -> None:
    match key:
        case MetadataKey(path):
            edits.set_document(path, bytes(data))
        case ChunkKey(path, index):
            edits.set_chunk(path, index, data)
        case ZarrV2Key(name):
            message = f"{name!r} is a key of zarr v2, which repositories do not hold: use zarr v3"
            raise SessionStateError(message, ErrorKind.UNIMPLEMENTED)


def write_if_absent(edits: Edits, key: StoreKey, data: BytesLike) -> None:
    match key:
        case MetadataKey(path):
            edits.set_document_if_absent(path, bytes(data))
        case ChunkKey(path, index):
            edits.set_chunk_if_absent(path, index, data)
        case ZarrV2Key():
            raise v2_key(key)


def needs_no_request(edits: Edits, key: StoreKey, size: int) -> bool:
    """Whether nothing but memory is written now."""
    return not isinstance(key, ChunkKey) or edits.is_inline(size)


def delete(edits: Edits, key: StoreKey) -> None:
    """Delete an array, a group with all below it, or a chunk, if it is there."""
    match key:
        case MetadataKey(path):
            edits.delete_node(path)
        case ChunkKey(path, index):
            edits.delete_chunk(path, index)
        case ZarrV2Key():
            pass


def delete_below(edits: Edits, reader: SnapshotReader, prefix: str) -> None:
    """Delete an array, a group with all below it, or the chunks in a folder."""
    path = normal_path(prefix)
    if path is None:
        message = f"invalid prefix {prefix!r}: it has a '..' component"
        raise InvalidInputError(message, ErrorKind.BAD_KEY_PREFIX)
    if reader.node(path) is not None:
        edits.delete_node(path)
        return
    folder = chunk_folder(reader, path)
    if folder is not None:
        edits.delete_chunks_below(folder.array.path, folder.leading)
