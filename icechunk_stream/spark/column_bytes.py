"""Columns of rows as bytes: each run of rows is one value of a few binary columns, uncopied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.integer[Any]]

_BYTE = 8


def parts_of(kind: pa.DataType) -> int:
    """How many binary columns a column becomes: what is valid, values, and lengths of long ones."""
    return 2 if _width(kind) else 3


def to_parts(column: pa.Array, ends: Numbers) -> list[pa.Array]:
    """Binary columns with a value for the rows from each of ``ends`` to the next."""
    width = _width(column.type)
    if width:
        return [_validity(column, ends), _runs(_as_bytes(column), ends, width)]
    texts = column.cast(pa.large_binary())
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    lengths = pa.array(np.diff(offsets).astype(np.int32))
    data = texts.buffers()[2] or pa.py_buffer(b"")
    chars = pa.Array.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(offsets[ends].astype(np.int32)), data]
    )
    return [_validity(column, ends), _runs(lengths, ends, 4), chars]


def from_parts(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """The rows of all runs, one after the other."""
    width = _width(kind)
    data, sizes = _joined(parts[1])
    counts = sizes // (width or 4)
    total = int(counts.sum())
    valid = _bitmap(parts[0], counts)
    if not width:
        offsets = np.zeros(total + 1, np.int64)
        np.cumsum(np.frombuffer(data, np.int32), out=offsets[1:])
        buffers = [valid, pa.py_buffer(offsets), _joined(parts[2])[0]]
        return pa.Array.from_buffers(pa.large_binary(), total, buffers).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(pa.uint8(), total, [valid, data]).cast(kind)
    return pa.Array.from_buffers(kind, total, [valid, data])


def sizes_of(runs: pa.Array) -> Numbers:
    """How many bytes each run has."""
    return np.diff(_ends(runs))


def _width(kind: pa.DataType) -> int:
    """Bytes of a value; 0 where some are longer than others."""
    if pa.types.is_boolean(kind):
        return 1
    long = pa.types.is_string(kind) or pa.types.is_binary(kind)
    long = long or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return 0 if long else int(kind.bit_width) // _BYTE


def _as_bytes(column: pa.Array) -> pa.Array:
    return column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column


def _runs(column: pa.Array, ends: Numbers, width: int) -> pa.Array:
    """The values of a column as they lie in memory, cut into runs."""
    offsets = ((ends + column.offset) * width).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), column.buffers()[1]]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def _validity(column: pa.Array, ends: Numbers) -> pa.Array:
    """A byte for each row, or none where all are valid."""
    if not column.null_count:
        return pa.repeat(pa.scalar(b""), len(ends) - 1)
    return _runs(column.is_valid().cast(pa.uint8()), ends, 1)


def _bitmap(validity: pa.Array, counts: Numbers) -> pa.Buffer | None:
    data, sizes = _joined(validity)
    if not len(data):
        return None
    valid = np.ones(int(counts.sum()), np.bool_)
    valid[np.repeat(sizes > 0, counts)] = np.frombuffer(data, np.bool_)
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _joined(runs: pa.Array) -> tuple[pa.Buffer, Numbers]:
    """The bytes of all runs, and how many each has."""
    ends, data = _ends(runs), runs.buffers()[2] or pa.py_buffer(b"")
    first, last = int(ends[0]), int(ends[-1])
    return data.slice(first, last - first), np.diff(ends)


def _ends(runs: pa.Array) -> Numbers:
    kind = np.int64 if pa.types.is_large_binary(runs.type) else np.int32
    ends: Numbers = np.frombuffer(runs.buffers()[1], kind)
    return ends[runs.offset :][: len(runs) + 1]
