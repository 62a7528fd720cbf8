"""Strings and byte vectors of a flatbuffer as Arrow columns that point into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from icechunk_stream.format.flat import OFFSET_SIZE, FlatBuffer

if TYPE_CHECKING:
    import numpy.typing as npt

# Arrow's layout of a view: short values stand in the view, long ones name buffer and offset.
_VIEW = np.dtype([("size", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
_SHORT = 12


def byte_column(buffer: FlatBuffer, at: npt.NDArray[np.integer]) -> pa.Array:
    """The byte vectors at checked positions; long ones are not copied."""
    return _column(buffer, at.astype(np.intp), pa.binary_view())


def text_column(buffer: FlatBuffer, at: npt.NDArray[np.integer]) -> pa.Array:
    """The strings at checked positions, verified to be UTF-8."""
    texts = _column(buffer, at.astype(np.intp), pa.string_view())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise buffer.error("a string is not UTF-8") from error
    return texts


def _column(buffer: FlatBuffer, at: npt.NDArray[np.intp], dtype: pa.DataType) -> pa.Array:
    views = np.zeros(len(at), _VIEW)
    sizes = buffer.words[at >> 2].astype(np.intp)
    starts = at + OFFSET_SIZE
    short = sizes <= _SHORT
    views["size"] = sizes
    views["offset"] = np.where(short, 0, starts)
    prefixes = np.ndarray((max(len(buffer) - 3, 0),), "V4", buffer.data, 0, (1,))
    views["prefix"][~short] = prefixes[starts[~short]]
    if short.any():
        views.view("V16")[short] = _short_views(buffer, starts[short], sizes[short])
    buffers = [None, pa.py_buffer(views), pa.py_buffer(buffer.data)]
    return pa.Array.from_buffers(dtype, len(at), buffers)


def _short_views(
    buffer: FlatBuffer, starts: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp]
) -> npt.NDArray[np.void]:
    within = np.arange(_SHORT)
    octets = buffer.octets[np.minimum(starts[:, None] + within, len(buffer) - 1)]
    views = np.zeros((len(starts), OFFSET_SIZE + _SHORT), np.uint8)
    views[:, :OFFSET_SIZE] = sizes.astype("<u4")[:, None].view(np.uint8)
    views[:, OFFSET_SIZE:] = np.where(within < sizes[:, None], octets, 0)
    return views.view("V16").ravel()
