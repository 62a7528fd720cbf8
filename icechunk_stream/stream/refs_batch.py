"""References that a task sends to the driver: Arrow record batches, and tables for a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from icechunk_stream.errors import InternalError
from icechunk_stream.format.chunk_refs import InlineChunk, NativeChunk, RefKind
from icechunk_stream.format.ids import ID12, OBJECT_ID_SIZE
from icechunk_stream.format.ref_rows import DELETED
from icechunk_stream.format.ref_tables import RefTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

# ``kind`` is a ``RefKind``, or ``DELETED``; a column says nothing of rows of another kind.
REFS = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("index", pa.list_(pa.field("item", pa.uint32(), nullable=False)), nullable=False),
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("chunk_id", pa.binary(OBJECT_ID_SIZE), nullable=False),
        pa.field("offset", pa.uint64(), nullable=False),
        pa.field("length", pa.uint64(), nullable=False),
        pa.field("inline", pa.binary()),
    ]
)
Refs: TypeAlias = pa.RecordBatch
_NO_ID = bytes(OBJECT_ID_SIZE)


class RefRows:
    """References that were made one by one, on their way into a record batch."""

    def __init__(self) -> None:
        self._rows: list[tuple[object, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, path: str, index: Sequence[int], placed: InlineChunk | NativeChunk) -> None:
        self._rows.append((path, index, *_columns(placed)))

    def delete(self, path: str, index: Sequence[int]) -> None:
        self._rows.append((path, index, DELETED, _NO_ID, 0, 0, None))

    def take(self) -> Refs:
        """What was added since the last call."""
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(REFS)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, REFS, strict=True)]
        self._rows = []
        return pa.RecordBatch.from_arrays(arrays, schema=REFS)


def _columns(placed: InlineChunk | NativeChunk) -> tuple[object, ...]:
    match placed:
        case NativeChunk(id, offset, length):
            return (int(RefKind.NATIVE), id.raw, offset, length, None)
        case InlineChunk(data):
            return (int(RefKind.INLINE), _NO_ID, 0, len(data), data)


def ref_tables(batches: Iterable[Refs]) -> dict[str, RefTable]:
    """The references of each array, in the order of paths and of chunk indices."""
    table = pa.Table.from_batches(batches, REFS).combine_chunks()
    if not len(table):
        return {}
    paths = table["path"].combine_chunks().dictionary_encode()
    numbers = paths.indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers))
    tables = {}
    for path, rows in zip(paths.dictionary.to_pylist(), np.split(order, ends[:-1]), strict=True):
        tables[path] = _table(path, table.take(pa.array(rows)))
    return dict(sorted(tables.items()))


def _table(path: str, rows: pa.Table) -> RefTable:
    indices = _indices(path, rows["index"].combine_chunks())
    order = np.lexsort(indices.T[::-1])
    ordered = indices[order]
    _check_distinct(path, ordered)
    rows = rows.take(pa.array(order))
    kinds = rows["kind"].to_numpy()
    return RefTable(
        indices=np.ascontiguousarray(ordered),
        kinds=kinds,
        offsets=rows["offset"].to_numpy(),
        lengths=rows["length"].to_numpy(),
        chunk_ids=_chunk_ids(rows["chunk_id"].combine_chunks()),
        inline=_inline(rows["inline"].combine_chunks(), kinds),
    )


def _indices(path: str, column: pa.ListArray) -> npt.NDArray[np.uint32]:
    ranks = np.unique(column.value_lengths().to_numpy())
    if len(ranks) != 1:
        message = f"references of {path} have {ranks.tolist()} dimensions: please report this bug"
        raise InternalError(message)
    indices: npt.NDArray[np.uint32] = column.flatten().to_numpy().reshape(len(column), ranks[0])
    return indices


def _check_distinct(path: str, indices: npt.NDArray[np.uint32]) -> None:
    """Two tasks that wrote one chunk would each lack the other's rows."""
    twice = np.flatnonzero((indices[1:] == indices[:-1]).all(axis=1))
    if len(twice):
        message = (
            f"the chunk {tuple(indices[twice[0]].tolist())} of {path} was written twice in one"
            " batch: give all rows of a unit to one task, one after the other"
        )
        raise InternalError(message)


def _chunk_ids(column: pa.Array) -> npt.NDArray[np.void]:
    return np.frombuffer(column.buffers()[1], ID12, len(column), column.offset * OBJECT_ID_SIZE)


def _inline(column: pa.Array, kinds: npt.NDArray[np.uint8]) -> pa.Array | None:
    return column.cast(pa.large_binary()) if (kinds == RefKind.INLINE).any() else None
