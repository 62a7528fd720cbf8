"""The indices of all rows of a DataFrame along axes: labels go to the driver, each of them once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as sql

from icechunk_stream.spark.arithmetic import Arithmetic, arithmetic
from icechunk_stream.spark.task_work import quoted
from icechunk_stream.stream.dimensions import Append, Fixed
from icechunk_stream.stream.frozen import FrozenMap
from icechunk_stream.stream.placed_rows import place_rows
from icechunk_stream.stream.placement import label_column
from icechunk_stream.stream.rejected import BAD_COLUMN, BAD_REASON, MAX_BAD_ROWS, bad_rows_of
from icechunk_stream.stream.row_source import Rejected
from icechunk_stream.stream.targets import index_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from pyspark.sql import Column, DataFrame

    from icechunk_stream.stream.axes import Axis

    Numbers = npt.NDArray[np.int64]

_LABEL = "#label"
# Labels of a fixed axis that go to executors without a look at the batch.
FEW_LABELS = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Touched:
    """Indices of rows along an axis, or those at both ends of a span."""

    indices: Numbers
    is_span: bool

    def units(self, size: int) -> int:
        """How many units of this length they lie in at most."""
        units = np.unique(self.indices // size)
        return int(units[-1] - units[0] + 1) if self.is_span and len(units) else len(units)


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Rows with a column ``#<dimension>`` for each axis, and those that have no place.

    ``touched`` are the indices of their labels along each axis.
    """

    df: DataFrame
    axes: tuple[Axis, ...] = ()
    touched: FrozenMap[str, Touched] = field(default_factory=FrozenMap)
    rejected: Rejected = field(default_factory=Rejected)

    def along(self, df: DataFrame, axis: Axis, touched: Touched) -> Located:
        """With one more axis."""
        known = FrozenMap({**self.touched, axis.name: touched})
        return replace(self, df=df, axes=(*self.axes, axis), touched=known)


def locate(df: DataFrame, axes: Sequence[Axis], schema: pa.Schema) -> Located:
    """Rows with their indices along all axes; null for labels that come only in another pass.

    Axes that are appended to come last: a row that is bad along another one adds no label.
    """
    ordered = sorted(axes, key=lambda axis: isinstance(axis.dimension, Append))
    tables = {axis.name: _all_labels(axis, schema) for axis in ordered}
    whole = {name: table for name, table in tables.items() if table is not None}
    looked_up = df
    for axis in ordered:
        if axis.name in whole:
            looked_up = _looked_up(looked_up, axis, whole[axis.name])
    labels = _labels(looked_up, ordered, frozenset(whole))
    located = Located(looked_up)
    for number, axis in enumerate(ordered):
        rejected = len(located.rejected.rows)
        located = _along(located, axis, labels.get(axis.name))
        if len(located.rejected.rows) > rejected:
            rest = [axis for axis in ordered[number + 1 :] if axis.name in labels]
            labels |= _labels(located.df, rest)
    by_name = {axis.name: axis for axis in located.axes}
    return replace(located, axes=tuple(by_name[axis.name] for axis in axes))


def _all_labels(axis: Axis, schema: pa.Schema) -> pa.Table | None:
    """The labels of a fixed axis and their indices, where the rows may have all of them."""
    kind = schema.field(axis.column).type
    is_exact = pa.types.is_integer(kind) or pa.types.is_string(kind)
    if not isinstance(axis.dimension, Fixed) or axis.size > FEW_LABELS or not is_exact:
        return None
    indices = np.arange(axis.size)
    try:
        labels = label_column(axis, indices).cast(kind)
    except pa.ArrowInvalid:
        return None
    return pa.table([labels, pa.array(indices)], [axis.column, index_column(axis.name)])


def _labels(
    rows: DataFrame,
    axes: Sequence[Axis],
    whole: frozenset[str] = frozenset(),
    *,
    by_arithmetic: bool = True,
) -> dict[str, pa.Array]:
    """The labels of rows along each axis; those at both ends where arithmetic does the others.

    Axes of ``whole`` are among them only if rows have labels that were not looked up.
    """
    if not axes:
        return {}
    simple = {axis.name: arithmetic(rows, axis) if by_arithmetic else None for axis in axes}
    asked = [_asked(axis, simple[axis.name], axis.name in whole) for axis in axes]
    parts = [part.alias(str(at)) for at, part in enumerate(part for pair in asked for part in pair)]
    row = rows.agg(*parts).toArrow()
    found, again = {}, []
    for at, axis in enumerate(axes):
        is_off = bool(row.column(2 * at + 1)[0].as_py())
        if is_off and (axis.name in whole or simple[axis.name] is not None):
            again.append(axis)
        elif axis.name not in whole:
            labels = row.column(2 * at).chunk(0).flatten().drop_null()
            found[axis.name] = _and_null(labels) if is_off else labels
    return found | _labels(rows, again, by_arithmetic=False)


def _asked(axis: Axis, simple: Arithmetic | None, is_looked_up: bool) -> tuple[Column, Column]:
    """The labels that are needed, and whether there are null or bad ones besides."""
    column = sql.col(quoted(axis.column))
    if is_looked_up:
        labels, is_off = sql.lit(None), sql.col(quoted(index_column(axis.name))).isNull()
    elif simple is None:
        labels, is_off = sql.collect_set(column), column.isNull()
    else:
        labels, is_off = sql.array(sql.min(column), sql.max(column)), simple.is_off
    return labels, sql.coalesce(sql.bool_or(is_off), sql.lit(False))


def _and_null(labels: pa.Array) -> pa.Array:
    return pa.concat_arrays([labels, pa.nulls(1, labels.type)])


def _along(located: Located, axis: Axis, labels: pa.Array | None) -> Located:
    """Rows with their indices along one more axis; without labels, they have them already."""
    if labels is None:
        return located.along(located.df, axis, Touched(np.arange(axis.size), is_span=True))
    name = index_column(axis.name)
    rows, simple = located.df.drop(name), arithmetic(located.df, axis)
    found = place_rows(pa.table({axis.column: labels}), [axis])
    if found.bad.groups and simple is not None:
        # Between two ends that are bad others may be good, or bad for other reasons.
        labels = _labels(rows, [axis], by_arithmetic=False)[axis.name]
        found = place_rows(pa.table({axis.column: labels}), [axis])
    if found.bad.groups:
        rows, bad = _parted(rows, axis.column, pa.concat_tables(found.rejected))
        located = replace(located, rejected=located.rejected.joined(bad))
    at = found.table.column(name).to_numpy()
    if simple is not None and simple.gives(found.table.column(axis.column), at):
        with_index = rows.withColumn(name, simple.index)
        return located.along(with_index, found.axes[0], Touched(at, is_span=True))
    with_index = _looked_up(rows, axis, found.table)
    return located.along(with_index, found.axes[0], Touched(at, is_span=False))


def _parted(rows: DataFrame, column: str, bad: pa.Table) -> tuple[DataFrame, Rejected]:
    """Rows without those that have bad labels, and these."""
    blame = _named(bad.drop_columns([BAD_COLUMN]))
    blame = blame.set_column(1, BAD_REASON, blame.column(BAD_REASON).cast(pa.int16()))
    reasons = sql.broadcast(rows.sparkSession.createDataFrame(blame))
    found = rows.join(reasons, _is_same(column), "inner").drop(_LABEL)
    blamed = _blamed(found.limit(MAX_BAD_ROWS + 1).toArrow(), column)
    good = rows.join(reasons, _is_same(column), "left_anti")
    return good, Rejected(bad_rows_of([blamed]), (blamed,))


def _looked_up(rows: DataFrame, axis: Axis, found: pa.Table) -> DataFrame:
    """Rows with the index of each label; null for labels that are not found, or are null."""
    indices = sql.broadcast(rows.sparkSession.createDataFrame(_named(found)))
    # Keys that may not be null are looked up as plain numbers.
    is_same = sql.col(quoted(axis.column)) == sql.col(quoted(_LABEL))
    return rows.join(indices, is_same, "left_outer").drop(_LABEL)


def _is_same(column: str) -> Column:
    """As ``_looked_up``, but nulls are the same as well."""
    return sql.col(quoted(column)).eqNullSafe(sql.col(quoted(_LABEL)))


def _named(found: pa.Table) -> pa.Table:
    """What was found of labels, which come first, under a name that no column of rows has."""
    return found.rename_columns([_LABEL, *found.column_names[1:]])


def _blamed(rows: pa.Table, column: str) -> pa.Table:
    """Rows with the column to blame, and reasons as they were before Spark held them."""
    at = rows.schema.get_field_index(BAD_REASON)
    rows = rows.set_column(at, BAD_REASON, rows.column(at).cast(pa.uint8()))
    return rows.append_column(BAD_COLUMN, pa.repeat(pa.scalar(column), len(rows)))
