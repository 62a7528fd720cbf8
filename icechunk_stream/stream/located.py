"""Where the cells of rows lie: in which units, and at which place in these."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.stream.row_blocks import row_blocks
from icechunk_stream.stream.targets import index_column

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from icechunk_stream.stream.targets import Plan

    Numbers = npt.NDArray[Any]

_MAX_NUMBER = 2**62
# Numbers below this are sorted by radix, several times as fast.
_RADIX = 2**16
# Numbers below this fit into 32 bits.
_SHORT = 2**32
# No index is that high.
_NONE = 2**63 - 1


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
    numbers = rows.numbers if order is None else rows.numbers[order]
    cells = rows.cells if order is None else rows.cells[order]
    is_start = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=is_start[1:])
    first = np.flatnonzero(is_start)
    starts = np.append(first, len(numbers))
    touched = numbers[first].astype(np.int64)
    cells = cells + np.repeat(rows.shifts(touched), np.diff(starts))
    return Located(rows.units(touched), cells, starts, order)


def _in_any_order(rows: _Numbered) -> Located:
    is_touched = np.zeros(rows.count, np.bool_)
    is_touched[rows.numbers] = True
    touched, cells = np.flatnonzero(is_touched), rows.cells
    if len(touched) < rows.count:
        shifts = np.zeros(rows.count, np.int64)
        shifts[touched] = rows.shifts(touched)
        cells = cells + shifts[rows.numbers]
    return Located(rows.units(touched), cells)


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

    ``cells`` are flat positions in units of ``size`` cells that lie side by side by their numbers.
    ``distinct`` are the units by number, where these are not simply counted.
    """

    along: tuple[_Along, ...]
    numbers: Numbers
    cells: Numbers
    count: int
    size: int
    distinct: Numbers | None = None

    @property
    def are_sorted(self) -> bool:
        return bool((self.numbers[1:] >= self.numbers[:-1]).all())

    def units(self, numbers: Numbers) -> Numbers:
        """The units of some numbers."""
        if self.distinct is not None:
            return self.distinct[numbers]
        places = np.unravel_index(numbers, [each.extent for each in self.along])
        pairs = zip(places, self.along, strict=True)
        return np.stack([place + each.first for place, each in pairs], axis=1)

    def shifts(self, touched: Numbers) -> Numbers:
        """By how much cells move where the units of these numbers alone lie side by side."""
        return (np.arange(len(touched)) - touched) * self.size


def _numbered(batch: pa.RecordBatch, plan: Plan) -> _Numbered:
    axes = zip(plan.dims, plan.shape, plan.unit, strict=True)
    along = tuple(_Along.of(_indices(batch, name, length), size) for name, length, size in axes)
    extents, size = tuple(each.extent for each in along), math.prod(plan.unit)
    count, distinct = math.prod(extents), None
    numbers, cells = np.empty(len(batch), _kind(count)), np.empty(len(batch), np.int64)
    if count >= _MAX_NUMBER:
        places = np.stack([each.indices // each.size for each in along], axis=1)
        distinct, inverse = np.unique(places, axis=0, return_inverse=True)
        # Some releases of numpy give it a second axis.
        numbers, count = inverse.reshape(-1), len(distinct)
    for rows in row_blocks(len(batch)):
        units, rests = zip(*(each.divided(rows) for each in along), strict=True)
        if distinct is None:
            numbers[rows] = _flat(units, extents, numbers.dtype)
        # Where cells are beyond 64 bits, shifts bring them back.
        cells[rows] = _flat(rests, plan.unit, _kind(size))
        cells[rows] += numbers[rows].astype(np.int64) * size
    return _Numbered(along, numbers, cells, count, size, distinct)


@dataclass(frozen=True, slots=True, eq=False)
class _Along:
    """Indices of rows along a dimension, which lie in ``extent`` units from ``first`` on."""

    indices: Numbers
    size: int
    first: int
    extent: int

    @classmethod
    def of(cls, indices: Numbers, size: int) -> Self:
        first = int(indices.min(initial=_NONE)) // size
        return cls(indices, size, first, max(int(indices.max(initial=0)) // size - first + 1, 1))

    def divided(self, rows: slice) -> tuple[Numbers, Numbers]:
        """The unit of each of some rows, counted from the first one, and its place in it."""
        numbers = self.indices[rows] - self.first * self.size
        if self.extent * self.size < _SHORT:
            # Several times as fast.
            numbers = numbers.astype(np.uint32)
        units = numbers // self.size
        return units, numbers - units * self.size


def _flat(along: Iterable[Numbers], lengths: Iterable[int], kind: np.dtype[Any]) -> Numbers:
    """Indices along several dimensions as one number."""
    flat: Numbers = np.zeros((), kind)
    for indices, length in zip(along, lengths, strict=True):
        flat = flat * length + indices.astype(kind, copy=False)
    return flat


def _kind(count: int) -> np.dtype[Any]:
    """A type that has all numbers below ``count``."""
    return np.dtype(np.uint32 if count < _SHORT else np.int64)


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
