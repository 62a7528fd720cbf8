"""Rows of tables of chunk references: chosen, joined, made of single payloads, and read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from icechunk_stream.format.chunk_refs import (
    ETag,
    InlineChunk,
    LastModified,
    NativeChunk,
    RefKind,
    VirtualChunk,
    kind_of,
)
from icechunk_stream.format.ids import ID12, ChunkId
from icechunk_stream.format.ref_tables import RefTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from icechunk_stream.format.chunk_refs import Checksum, ChunkPayload

    Rows = slice | npt.NDArray[np.intp] | npt.NDArray[np.bool_]

S = TypeVar("S", bound=np.generic)

# The kind of a row that takes a reference away; never stored.
DELETED = 0


def chosen_rows(table: RefTable, rows: Rows) -> RefTable:
    """Some rows of a table, in the order given."""
    return RefTable(
        indices=table.indices[rows],
        kinds=table.kinds[rows],
        offsets=table.offsets[rows],
        lengths=table.lengths[rows],
        chunk_ids=None if table.chunk_ids is None else table.chunk_ids[rows],
        inline=_chosen(table.inline, rows),
        locations=_chosen(table.locations, rows),
        etags=_chosen(table.etags, rows),
        modified=None if table.modified is None else table.modified[rows],
    )


def joined(tables: Sequence[RefTable]) -> RefTable:
    """The rows of tables of one rank, one table after the other."""
    if len(tables) == 1:
        return tables[0]
    return RefTable(
        indices=np.concatenate([table.indices for table in tables]),
        kinds=np.concatenate([table.kinds for table in tables]),
        offsets=np.concatenate([table.offsets for table in tables]),
        lengths=np.concatenate([table.lengths for table in tables]),
        chunk_ids=_joined_numbers(tables, lambda table: table.chunk_ids, ID12),
        inline=_joined_values(tables, lambda table: table.inline, pa.large_binary()),
        locations=_joined_values(tables, lambda table: table.locations, pa.large_string()),
        etags=_joined_values(tables, lambda table: table.etags, pa.large_string()),
        modified=_joined_numbers(tables, lambda table: table.modified, np.dtype(np.uint32)),
    )


def deletions(indices: npt.NDArray[np.uint32]) -> RefTable:
    """Rows that take references away."""
    count = len(indices)
    nothing = np.zeros(count, np.uint64)
    return RefTable(indices, np.full(count, DELETED, np.uint8), nothing, nothing)


def table_of(rank: int, changes: Iterable[tuple[Sequence[int], ChunkPayload | None]]) -> RefTable:
    """A table of single payloads; None takes a reference away."""
    pairs = list(changes)
    indices = np.array([index for index, _ in pairs], np.uint32).reshape(len(pairs), rank)
    payloads = [payload for _, payload in pairs]
    chunk_ids = [each.id.raw if isinstance(each, NativeChunk) else bytes(12) for each in payloads]
    virtual = any(isinstance(each, VirtualChunk) for each in payloads)
    return RefTable(
        indices=indices,
        kinds=np.array([_kind(each) for each in payloads], np.uint8),
        offsets=np.array([_offset(each) for each in payloads], np.uint64),
        lengths=np.array([_length(each) for each in payloads], np.uint64),
        chunk_ids=np.frombuffer(b"".join(chunk_ids), ID12),
        inline=_inline_column(payloads),
        locations=_column([_location(each) for each in payloads]) if virtual else None,
        etags=_column([_etag(each) for each in payloads]) if virtual else None,
        modified=np.array([_modified(each) for each in payloads], np.uint32) if virtual else None,
    )


def payload_of(table: RefTable, row: int) -> ChunkPayload | None:
    """What a row refers to; None where it takes a reference away."""
    kind = int(table.kinds[row])
    if kind == DELETED:
        return None
    offset, length = int(table.offsets[row]), int(table.lengths[row])
    match RefKind(kind):
        case RefKind.INLINE:
            assert table.inline is not None
            return InlineChunk(table.inline[row].as_py())
        case RefKind.NATIVE:
            assert table.chunk_ids is not None
            return NativeChunk(ChunkId(table.chunk_ids[row].tobytes()), offset, length)
        case RefKind.VIRTUAL:
            assert table.locations is not None
            location = table.locations[row].as_py()
            return VirtualChunk(location, offset, length, _checksum(table, row))


def _checksum(table: RefTable, row: int) -> Checksum | None:
    etag = None if table.etags is None else table.etags[row].as_py()
    if etag is not None:
        return ETag(etag)
    seconds = 0 if table.modified is None else int(table.modified[row])
    return LastModified(seconds) if seconds else None


def _chosen(column: pa.Array | None, rows: Rows) -> pa.Array | None:
    if column is None:
        return None
    if isinstance(rows, slice):
        first, last, _ = rows.indices(len(column))
        return column.slice(first, last - first)
    return column.filter(pa.array(rows)) if rows.dtype == np.bool_ else column.take(pa.array(rows))


def _joined_numbers(
    tables: Sequence[RefTable],
    column: Callable[[RefTable], npt.NDArray[S] | None],
    dtype: np.dtype[S],
) -> npt.NDArray[S] | None:
    """A column that some tables lack: zeros stand for their rows."""
    found = [column(table) for table in tables]
    if all(each is None for each in found):
        return None
    parts = [
        np.zeros(len(table), dtype) if each is None else each
        for table, each in zip(tables, found, strict=True)
    ]
    return np.concatenate(parts)


def _joined_values(
    tables: Sequence[RefTable], column: Callable[[RefTable], pa.Array | None], dtype: pa.DataType
) -> pa.Array | None:
    """A column that some tables lack: nulls stand for their rows. Dictionaries stay ones."""
    found = [column(table) for table in tables]
    if all(each is None for each in found):
        return None
    if any(each is not None and pa.types.is_dictionary(each.type) for each in found):
        dtype = pa.dictionary(pa.int32(), dtype)
    parts = [
        pa.nulls(len(table), dtype) if each is None else _cast(each, dtype)
        for table, each in zip(tables, found, strict=True)
    ]
    return pa.chunked_array(parts, dtype).unify_dictionaries().combine_chunks()


def _cast(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    if column.type == dtype:
        return column
    if not pa.types.is_dictionary(dtype):
        return column.cast(dtype)
    if not pa.types.is_dictionary(column.type):
        column = column.cast(dtype.value_type).dictionary_encode()
    values = column.dictionary.cast(dtype.value_type)
    return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), values)


def _kind(payload: ChunkPayload | None) -> int:
    return DELETED if payload is None else kind_of(payload)


def _offset(payload: ChunkPayload | None) -> int:
    return payload.offset if isinstance(payload, NativeChunk | VirtualChunk) else 0


def _length(payload: ChunkPayload | None) -> int:
    match payload:
        case None:
            return 0
        case InlineChunk(data):
            return len(data)
        case NativeChunk(length=length) | VirtualChunk(length=length):
            return length


def _inline_column(payloads: Sequence[ChunkPayload | None]) -> pa.Array | None:
    values = [each.data if isinstance(each, InlineChunk) else None for each in payloads]
    found = any(value is not None for value in values)
    return pa.array(values, pa.large_binary()) if found else None


def _column(values: Sequence[str | None]) -> pa.Array:
    return pa.array(values, pa.large_string()).dictionary_encode()


def _location(payload: ChunkPayload | None) -> str | None:
    return payload.location if isinstance(payload, VirtualChunk) else None


def _etag(payload: ChunkPayload | None) -> str | None:
    if isinstance(payload, VirtualChunk) and isinstance(payload.checksum, ETag):
        return payload.checksum.value
    return None


def _modified(payload: ChunkPayload | None) -> int:
    if isinstance(payload, VirtualChunk) and isinstance(payload.checksum, LastModified):
        return payload.checksum.seconds
    return 0
