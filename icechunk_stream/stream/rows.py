"""Rows of a batch as columns in stored form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.stream.located import Located, locate
from icechunk_stream.stream.targets import DELETE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.stream.tally import Tally
    from icechunk_stream.stream.targets import Plan

    Numbers = npt.NDArray[Any]
    Mask = npt.NDArray[np.bool_]
    Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Values of one variable in stored form; what rows that are not valid have means nothing."""

    values: Values
    is_valid: Mask | None

    def chosen(self, rows: slice | Mask | Numbers) -> Column:
        return Column(self.values[rows], None if self.is_valid is None else self.is_valid[rows])


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Rows that can be stored."""

    columns: tuple[Column, ...]
    orders: Values | None
    located: Located


def stored_rows(
    batch: pa.RecordBatch, plan: Plan, empties: Sequence[object], tally: Tally, capacity: int = 0
) -> StoredRows:
    """The rows in stored form; those that cannot be stored go to the tally.

    Rows that clear their cells give each variable the one of ``empties`` that is its own. Rows of
    up to ``capacity`` units stay in their order; else those of one unit come side by side.
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
    located, orders = locate(batch, plan, capacity), _orders(batch, plan)
    if located.order is not None:
        columns = [column.chosen(located.order) for column in columns]
        orders = None if orders is None else orders[located.order]
    return StoredRows(tuple(columns), orders, located)


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
