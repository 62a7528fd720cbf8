"""Rows of a batch with their indices along every axis, and the axes as they grow by them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from icechunk_stream.stream.bad_rows import BadRows
from icechunk_stream.stream.dimensions import Append, Regular
from icechunk_stream.stream.placement import new_labels, place
from icechunk_stream.stream.rejected import rejected
from icechunk_stream.stream.targets import index_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icechunk_stream.stream.axes import Axis


@dataclass(frozen=True, slots=True, eq=False)
class PlacedRows:
    """Good rows with a column ``#<dimension>`` for each axis, and what was bad.

    ``rejected`` has the first of the bad rows.
    """

    table: pa.Table
    axes: tuple[Axis, ...]
    bad: BadRows
    rejected: tuple[pa.Table, ...] = ()


def place_rows(table: pa.Table, axes: Sequence[Axis]) -> PlacedRows:
    """Find the index of every row along every axis.

    Axes that are appended to come last: a row that has no place along another one adds no label.
    """
    rows = PlacedRows(table.combine_chunks(), (), BadRows())
    for axis in sorted(axes, key=lambda axis: isinstance(axis.dimension, Append)):
        rows = _along(rows, axis)
    by_name = {axis.name: axis for axis in rows.axes}
    return replace(rows, axes=tuple(by_name[axis.name] for axis in axes))


def _along(rows: PlacedRows, axis: Axis) -> PlacedRows:
    labels = _column(rows.table, axis.column)
    if isinstance(axis.dimension, Append):
        axis = axis.grown(new_labels([labels], axis))
    placed = place(labels, axis)
    indices = pa.array(placed.indices, pa.int64())
    table = rows.table.append_column(index_column(axis.name), indices)
    bad, out = rows.bad, rows.rejected
    if placed.reasons.any():
        bad = bad.with_column(rows.table, axis, placed.reasons)
        out = (*out, rejected(rows.table, axis.column, placed.reasons))
        table = table.filter(pa.array(placed.reasons == 0))
    return PlacedRows(table, (*rows.axes, _reached(axis, table)), bad, out)


def _reached(axis: Axis, table: pa.Table) -> Axis:
    """A regular axis is as long as the rows need it."""
    if not isinstance(axis.dimension, Regular) or not len(table):
        return axis
    last = int(np.max(table[index_column(axis.name)].to_numpy()))
    return axis.resized(max(axis.size, last + 1))


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
