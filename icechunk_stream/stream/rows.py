"""Rows of a batch as columns in stored form, and where their cells lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.stream.targets import DELETE, index_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.stream.tally import Tally
    from icechunk_stream.stream.targets import Plan

    Numbers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
    Values = npt.NDArray[Any]

_MAX_NUMBER = 2**62
# Numbers below this are sorted by radix, several times as fast.
_RADIX = 2**16


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Values of one variable in stored form; what rows that are not valid have means nothing."""

    values: Values
    is_valid: Mask | None

    def chosen(self, rows: slice | Mask) -> Column:
        return Column(self.values[rows], None if self.is_valid is None else self.is_valid[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Rows by unit: unit ``i`` has those from ``starts[i]`` to ``starts[i + 1]``.

    ``cells`` are flat positions within a unit.
    """

    units: Numbers
    starts: Numbers
    cells: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Rows that can be stored."""

    columns: tuple[Column, ...]
    orders: Values | None
    located: Located


def stored_rows(
    batch: pa.RecordBatch, plan: Plan, empties: Sequence[object], tally: Tally
) -> StoredRows:
    """The rows in stored form; those that cannot be stored go to the tally.

    Rows that clear their cells give each variable the one of ``empties`` that is its own.
    """
    _check_columns(batch.schema, plan)
    deleted = _deleted(batch)
    encoded = [target.encoding.encode(batch.column(target.column)) for target in plan.targets]
    columns = [
        _column(each.values, batch.column(target.column), deleted, empty)
        for each, target, empty in zip(encoded, plan.targets, empties, strict=True)
    ]
    reasons = [
        _reasons(each.reasons, column, deleted)
        for each, column in zip(encoded, columns, strict=True)
    ]
    if any(each.any() for each in reasons):
        good = tally.take_bad(batch, reasons)
        batch = batch.filter(pa.array(good))
        columns = [column.chosen(good) for column in columns]
    tally.rows += len(batch)
    return StoredRows(tuple(columns), _orders(batch, plan), locate(batch, plan))


def locate(batch: pa.RecordBatch, plan: Plan) -> Located:
    """Where the cells of rows lie."""
    cells = np.zeros(len(batch), np.int64)
    is_start = np.zeros(len(batch), np.bool_)
    is_start[:1] = True
    along = []
    for name, length, size in zip(plan.dims, plan.shape, plan.unit, strict=True):
        indices = _indices(batch, name, length)
        units = indices // size
        cells *= size
        cells += indices
        cells -= units * size
        is_start[1:] |= units[1:] != units[:-1]
        along.append(units)
    starts = np.flatnonzero(is_start)
    units = np.stack([axis[starts] for axis in along], axis=1)
    return Located(units, np.append(starts, len(batch)), cells)


def sorted_by_unit(table: pa.Table, plan: Plan) -> pa.Table:
    """The rows with those of one unit side by side, in their old order within it."""
    numbers, count = _unit_numbers(table, plan)
    if (numbers[1:] >= numbers[:-1]).all():
        return table
    return table.combine_chunks().take(pa.array(stable_order(numbers, count)))


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


def _unit_numbers(table: pa.Table, plan: Plan) -> tuple[Numbers, int]:
    """A number for the unit of each row, in the order of units, and one above all of them."""
    numbers = np.zeros(len(table), np.int64)
    count = 1
    for name, length, size in zip(plan.dims, plan.shape, plan.unit, strict=True):
        units = _indices(table, name, length) // size
        first, last = int(units.min(initial=length)), int(units.max(initial=0))
        extent = max(last - first + 1, 1)
        if count * extent >= _MAX_NUMBER:
            numbers = np.unique(numbers, return_inverse=True)[1]
            count = len(table)
        numbers = numbers * extent + (units - first)
        count *= extent
    return numbers, count


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


def _check_columns(schema: pa.Schema, plan: Plan) -> None:
    missing = [name for name in plan.columns if name not in schema.names]
    if missing:
        message = (
            f"the rows lack the column {missing[0]!r}, they have {', '.join(schema.names)}: give"
            " rows with the plan's columns"
        )
        raise InvalidInputError(message)


def _deleted(batch: pa.RecordBatch) -> Mask | None:
    """Rows that clear their cells; a null does not."""
    if DELETE not in batch.schema.names:
        return None
    column = batch.column(DELETE).fill_null(False)
    deleted: Mask = column.to_numpy(zero_copy_only=False)
    return deleted if deleted.any() else None


def _column(values: Values, column: pa.Array, deleted: Mask | None, empty: object) -> Column:
    is_valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    if deleted is None:
        return Column(values, is_valid)
    values = values.copy()
    values[deleted] = empty
    return Column(values, None if is_valid is None else is_valid | deleted)


def _reasons(
    reasons: npt.NDArray[np.uint8], column: Column, deleted: Mask | None
) -> npt.NDArray[np.uint8]:
    """Why rows cannot be stored: values that nobody stores are never bad."""
    if not reasons.any():
        return reasons
    matters = np.ones(len(reasons), np.bool_) if column.is_valid is None else column.is_valid
    return np.where(matters if deleted is None else matters & ~deleted, reasons, 0)


def _orders(batch: pa.RecordBatch, plan: Plan) -> Values | None:
    """What orders rows for one cell; nulls and NaN come before all else."""
    name = plan.policies.order_by
    if name is None or plan.policies.duplicates == "error":
        return None
    column = batch.column(name)
    if pa.types.is_floating(column.type):
        orders = column.cast(pa.float64()).fill_null(float("-inf")).to_numpy()
        return np.where(np.isnan(orders), -np.inf, orders)
    counts: Values = _counts(column, name).fill_null(np.iinfo(np.int64).min).to_numpy()
    return counts


def _counts(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.int64())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_temporal(kind):
        return column.cast(pa.int64())
    message = (
        f"the column {name!r} is {kind}, which cannot order rows for one cell: choose a number or"
        " a time for order_by"
    )
    raise InvalidInputError(message)
