"""Columns of references to objects outside of the repository, as callers give them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from operator import index as whole
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.format.chunk_refs import ETag, LastModified, RefKind
from icechunk_stream.format.ref_rows import chosen_rows, table_of
from icechunk_stream.format.ref_tables import RefTable
from icechunk_stream.virtual.specs import MAX_INDEX, MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.format.chunk_refs import Checksum
    from icechunk_stream.virtual.specs import VirtualChunkSpec

    Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Box:
    """Chunks side by side: how many along every axis, and from where on."""

    shape: tuple[int, ...]
    begin: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.begin):
            raise _bad(f"{len(self.begin)} offsets are given for {len(self.shape)} axes")
        for size, begin in zip(map(whole, self.shape), map(whole, self.begin), strict=True):
            if size < 0 or begin < 0 or begin + size > MAX_INDEX + 1:
                raise _bad(f"the chunks {begin} to {begin + size} are asked for along one axis")

    def __len__(self) -> int:
        return prod(self.shape)

    def indices(self) -> npt.NDArray[np.uint32]:
        """Indices of the chunks, the last axis fastest."""
        indices = np.empty((len(self), len(self.shape)), np.uint32)
        axes = indices.reshape(*self.shape, len(self.shape))
        for axis, (size, begin) in enumerate(zip(self.shape, self.begin, strict=True)):
            numbers = np.arange(begin, begin + size, dtype=np.uint32)
            axes[..., axis] = numbers.reshape(-1, *(1,) * (len(self.shape) - axis - 1))
        return indices


def table_of_box(
    box: Box,
    locations: Sequence[str],
    offsets: Numbers,
    lengths: Numbers,
    checksum: Checksum | None,
) -> RefTable:
    """A row for each chunk of the box that has a location."""
    column = _strings(locations)
    table = RefTable(
        indices=box.indices(),
        kinds=np.full(len(column), RefKind.VIRTUAL, np.uint8),
        offsets=_numbers(offsets, "offsets"),
        lengths=_numbers(lengths, "lengths"),
        locations=column,
    )
    _check_sizes(box, table)
    present = pc.not_equal(pc.binary_length(column), 0)
    if not pc.all(present, min_count=0).as_py():
        table = chosen_rows(table, present.to_numpy(zero_copy_only=False))
    return _with_checksum(table, checksum)


def table_of_specs(specs: Sequence[VirtualChunkSpec], rank: int) -> RefTable:
    for spec in specs:
        if len(spec.index) != rank:
            message = f"the chunk {tuple(spec.index)} is of an array with {rank} dimensions"
            raise InvalidInputError(message, ErrorKind.INVALID_CHUNK_INDEX)
    table = table_of(rank, ((tuple(spec.index), spec.chunk) for spec in specs))
    return table if specs else replace(table, locations=pa.array([], pa.large_string()))


def _strings(locations: Sequence[str]) -> pa.Array:
    """A column of strings. Arrow's own way from a list would import pandas first."""
    count = len(locations)
    bounds = np.zeros(count + 1, np.int64)
    try:
        data = "".join(locations).encode()
        np.cumsum(np.fromiter(map(len, locations), np.int64, count), out=bounds[1:])
        if bounds[-1] != len(data):
            lengths = (len(location.encode()) for location in locations)
            np.cumsum(np.fromiter(lengths, np.int64, count), out=bounds[1:])
    except (TypeError, UnicodeEncodeError) as error:
        raise _bad(f"a location is no string ({error}); write '' to leave a chunk out") from error
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), count, buffers)


def _numbers(values: Numbers, what: str) -> Numbers:
    column = np.asarray(values)
    if column.ndim != 1 or column.dtype.kind not in "iu" or (column < 0).any():
        raise _bad(f"{what} are {column.dtype} of the shape {column.shape}: give 1-D uint64")
    return column.astype(np.uint64)


def _check_sizes(box: Box, table: RefTable) -> None:
    sizes = {len(box), len(table.kinds), len(table.offsets), len(table.lengths)}
    if len(sizes) != 1:
        given = f"{len(table.kinds)} locations, {len(table.offsets)} offsets"
        raise _bad(f"{given} and {len(table.lengths)} lengths for {len(box)} chunks")
    if (table.offsets > np.uint64(MAX_OFFSET) - table.lengths).any():
        raise _bad("an offset and a length add up to more than 64 bits")


def _with_checksum(table: RefTable, checksum: Checksum | None) -> RefTable:
    """The same checksum for every row."""
    count = len(table)
    match checksum:
        case None:
            return table
        case ETag(value):
            numbers = pa.array(np.zeros(count, np.int32))
            values = pa.array([value], pa.large_string())
            return replace(table, etags=pa.DictionaryArray.from_arrays(numbers, values))
        case LastModified(seconds):
            return replace(table, modified=np.full(count, seconds, np.uint32))


def _bad(why: str) -> InvalidInputError:
    return InvalidInputError(f"invalid virtual chunks: {why}", ErrorKind.INVALID_VIRTUAL_REF)
