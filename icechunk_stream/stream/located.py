"""Where the cells of rows lie: in which units, and at which place in these."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.stream.targets import index_column

if TYPE_CHECKING:
    import numpy.typing as npt

    from icechunk_stream.stream.targets import Plan

    Numbers = npt.NDArray[Any]

_MAX_NUMBER = 2**62
# Numbers below this are sorted by radix, several times as fast.
_RADIX = 2**16
# Numbers below this fit into 32 bits.
_SHORT = 2**32


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Where rows lie among the units that they touch.

    ``cells`` are flat positions in these units, side by side. Unit ``i`` has the rows from
    ``starts[i]`` to ``starts[i + 1]``; where ``starts`` is None, rows are in any order. ``order``
    brought the rows into this one, if theirs was another.
    """

    units: Numbers
    cells: Numbers
    starts: Numbers | None = None
    order: Numbers | None = None


def locate(batch: pa.RecordBatch, plan: Plan, capacity: int = 0) -> Located:
    """Where the cells of rows lie; they are brought into order where that is needed."""
    rows = _numbered(batch, plan)
    if rows.are_sorted:
        return _by_unit(rows, None)
    if rows.count <= capacity:
        return _in_any_order(rows)
    return _by_unit(rows, stable_order(rows.numbers, rows.count))


def _by_unit(rows: _Numbered, order: Numbers | None) -> Located:
    numbers, within = rows.numbers, rows.within
    if order is not None:
        numbers, within = numbers[order], within[order]
    is_start = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=is_start[1:])
    starts = np.append(np.flatnonzero(is_start), len(numbers))
    first = starts[:-1] if order is None else order[starts[:-1]]
    ranks = np.repeat(np.arange(len(first)), np.diff(starts))
    return Located(rows.units(first), ranks * rows.size + within, starts, order)


def _in_any_order(rows: _Numbered) -> Located:
    last = np.full(rows.count, -1)
    last[rows.numbers] = np.arange(len(rows.numbers))
    is_touched = last >= 0
    ranks = rows.numbers if is_touched.all() else (np.cumsum(is_touched) - 1)[rows.numbers]
    cells = ranks.astype(np.int64) * rows.size + rows.within
    return Located(rows.units(last[is_touched]), cells)


def unit_numbers(batch: pa.RecordBatch | pa.Table, plan: Plan) -> npt.NDArray[np.int64]:
    """The number of each row's unit among all units of the plan, which come in their order."""
    numbers = np.zeros(len(batch), np.int64)
    for name, length, size in zip(plan.dims, plan.shape, plan.unit, strict=True):
        numbers *= -(-length // size)
        numbers += _indices(batch, name, length) // size
    return numbers


def stable_order(numbers: Numbers, count: int) -> Numbers:
    """What sorts numbers from 0 up to ``count``: by radix, or as one key with the row."""
    rows = len(numbers)
    if count <= _RADIX:
        return np.argsort(numbers.astype(np.uint16), kind="stable")
    if count * rows >= _MAX_NUMBER:
        return np.argsort(numbers, kind="stable")
    keys = numbers.astype(np.int64) * rows + np.arange(rows)
    keys.sort()
    keys %= rows
    return keys


@dataclass(frozen=True, slots=True, eq=False)
class _Numbered:
    """Rows with the number of their unit, below ``count`` and in the order of units.

    ``within`` are flat positions in a unit of ``size`` cells.
    """

    plan: Plan
    indices: tuple[Numbers, ...]
    numbers: Numbers
    count: int
    within: Numbers

    @property
    def size(self) -> int:
        return math.prod(self.plan.unit)

    @property
    def are_sorted(self) -> bool:
        return bool((self.numbers[1:] >= self.numbers[:-1]).all())

    def units(self, rows: Numbers) -> Numbers:
        """The units of some rows."""
        pairs = zip(self.indices, self.plan.unit, strict=True)
        return np.stack([along[rows] // size for along, size in pairs], axis=1)


def _numbered(batch: pa.RecordBatch, plan: Plan) -> _Numbered:
    numbers: Numbers = np.zeros(len(batch), np.uint32)
    within, count = numbers, 1
    indices = []
    for name, length, size in zip(plan.dims, plan.shape, plan.unit, strict=True):
        along = _indices(batch, name, length)
        first = int(along.min(initial=length)) // size
        extent = max(int(along.max(initial=0)) // size - first + 1, 1)
        units, rest = _divided(along - first * size, size, extent)
        if count * extent >= _MAX_NUMBER:
            numbers, count = np.unique(numbers, return_inverse=True)[1], len(batch)
        numbers = _wide_enough(numbers, count * extent) * extent + units
        within = _wide_enough(within, math.prod(plan.unit)) * size + rest
        count *= extent
        indices.append(along)
    return _Numbered(plan, tuple(indices), numbers, count, within)


def _divided(numbers: Numbers, size: int, extent: int) -> tuple[Numbers, Numbers]:
    """Quotients below ``extent``, and rests: with 32 bits several times as fast."""
    if extent * size < _SHORT:
        numbers = numbers.astype(np.uint32)
    quotients = numbers // size
    return quotients, numbers - quotients * size


def _wide_enough(numbers: Numbers, count: int) -> Numbers:
    """Numbers in a type that has all below ``count``."""
    return numbers if count < _SHORT else numbers.astype(np.int64)


def _indices(rows: pa.RecordBatch | pa.Table, dimension: str, length: int) -> Numbers:
    name = index_column(dimension)
    column = rows.column(name)
    if column.null_count or not pa.types.is_int64(column.type):
        message = f"the column {name!r} has {column.null_count} nulls and the type {column.type}"
        raise InvalidInputError(f"{message}: place the rows first, and leave out bad ones")
    indices: Numbers = column.to_numpy()
    if len(indices) and not (indices.min() >= 0 and indices.max() < length):
        row = int(np.flatnonzero((indices < 0) | (indices >= length))[0])
        message = (
            f"the row {row} has the index {indices[row]} along {dimension!r}, whose length is"
            f" {length}: grow the dimension first, and leave out bad rows"
        )
        raise InvalidInputError(message)
    return indices
