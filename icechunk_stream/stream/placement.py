"""Labels of rows to indices along axes, and the labels by which axes grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.errors import BadRowsError, LayoutError
from icechunk_stream.stream.axes import Axis, NewLabels
from icechunk_stream.stream.bad_rows import label_texts
from icechunk_stream.stream.converting import is_text, plain_column
from icechunk_stream.stream.dimensions import Append, Regular
from icechunk_stream.stream.grid_places import grid_labels, has_grid_labels, place_on_grid
from icechunk_stream.stream.label_index import MISSING
from icechunk_stream.stream.reasons import Placed, Reason
from icechunk_stream.stream.row_blocks import row_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = [
    "NewLabels",
    "Placed",
    "Reason",
    "coordinate_values",
    "label_column",
    "new_labels",
    "place",
]

_EXAMPLES = 5
# Kinds of dtypes that hold every text.
_ANY_TEXT = "OT"


@dataclass(frozen=True, slots=True, eq=False)
class _Labels:
    """Labels as rows have them, and in stored form; bad ones have a reason."""

    given: pa.Array
    stored: pa.Array
    reasons: NDArray[np.uint8]

    def chosen(self, mask: NDArray[np.bool_]) -> _Labels:
        keep = pa.array(mask)
        return _Labels(self.given.filter(keep), self.stored.filter(keep), self.reasons[mask])


def place(column: pa.Array, axis: Axis) -> Placed:
    """The index of each row along an axis; one that appends has grown by ``new_labels`` before."""
    column = plain_column(column)
    if column.null_count == len(column):
        return _nowhere(len(column))
    if isinstance(axis.dimension, Regular) and has_grid_labels(column.type, axis.dimension):
        return _place_in_blocks(column, axis.dimension, axis.size + axis.max_growth)
    if _is_short_span(column):
        return _place_numbers(column.to_numpy(), column.type, axis)
    codes = column.dictionary_encode()
    distinct = _place_distinct(codes.dictionary, axis)
    rows = codes.indices.fill_null(len(codes.dictionary)).to_numpy()
    indices = np.append(distinct.indices, MISSING)
    reasons = np.append(distinct.reasons, np.uint8(Reason.NULL_LABEL))
    return Placed(indices[rows], reasons[rows])


def new_labels(columns: Iterable[pa.Array], axis: Axis) -> NewLabels:
    """The labels of a whole batch by which an axis that appends grows.

    More than ``max_growth`` of them are none, since nothing tells the right ones from the wrong.

    Raises:
        BadRowsError: there are late ones, and ``on_late`` is "fail".
    """
    parts = [_missing(column, axis) for column in columns if column.null_count < len(column)]
    if not parts:
        return NewLabels(_known(axis).slice(0, 0))
    labels = _distinct(parts)
    late = axis.is_late(labels.stored)
    if late.any() and _fails_if_late(axis):
        raise _late(labels.chosen(late).given, axis)
    stored = labels.chosen(~late).stored
    return NewLabels(stored if len(stored) <= axis.max_growth else stored.slice(0, 0))


def coordinate_values(axis: Axis, start: int, stop: int) -> NDArray[Any]:
    """What the coordinate array stores from a position up to another."""
    if isinstance(axis.dimension, Regular):
        labels = grid_labels(axis.dimension, start, stop)
    else:
        labels = _known(axis).slice(start, stop - start)
        if not pa.types.is_string(labels.type):
            return np.asarray(labels.to_numpy())
    encoded = axis.encoding.encode(labels)
    if encoded.reasons.any():
        label = label_texts(labels.filter(pa.array(encoded.reasons != 0)).slice(0, 1))[0]
        message = f"the coordinate array of the dimension {axis.name!r} cannot store {label}"
        raise LayoutError(f"{message}: make it with a wider type, or finer units")
    return encoded.values


def label_column(axis: Axis, indices: NDArray[np.int64]) -> pa.Array:
    """The labels that rows with these indices have, as the encoding of the axis decodes them."""
    if isinstance(axis.dimension, Regular):
        first = int(indices.min(initial=axis.size))
        labels = grid_labels(axis.dimension, first, int(indices.max(initial=first - 1)) + 1)
        return labels.take(pa.array(indices - first))
    stored = _known(axis).take(pa.array(indices))
    return stored if pa.types.is_string(stored.type) else axis.encoding.decode(stored.to_numpy())


def _is_short_span(column: pa.Array) -> bool:
    """Whether a table of all integers from the lowest one up has no more entries than rows."""
    if not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
        return False
    numbers = column.to_numpy() if not column.null_count else np.zeros(0)
    return bool(len(numbers)) and int(numbers.max()) - int(numbers.min()) < len(numbers)


def _place_numbers(numbers: NDArray[np.integer[Any]], kind: pa.DataType, axis: Axis) -> Placed:
    """Place integers by a table, where others have to be hashed."""
    low, high = int(numbers.min()), int(numbers.max())
    is_there = np.zeros(high - low + 1, np.bool_)
    for rows in row_blocks(len(numbers)):
        is_there[numbers[rows].astype(np.int64) - low] = True
    known = np.flatnonzero(is_there)
    distinct = _place_distinct(pa.array(known + low, kind), axis)
    table = Placed(np.full(len(is_there), MISSING), np.zeros(len(is_there), np.uint8))
    table.indices[known], table.reasons[known] = distinct.indices, distinct.reasons
    placed = Placed(np.empty(len(numbers), np.int64), np.empty(len(numbers), np.uint8))
    for rows in row_blocks(len(numbers)):
        at = numbers[rows].astype(np.int64) - low
        placed.indices[rows], placed.reasons[rows] = table.indices[at], table.reasons[at]
    return placed


def _place_in_blocks(column: pa.Array, regular: Regular, limit: int) -> Placed:
    indices, reasons = np.empty(len(column), np.int64), np.empty(len(column), np.uint8)
    for rows in row_blocks(len(column)):
        placed = place_on_grid(column[rows], regular, limit)
        indices[rows], reasons[rows] = placed.indices, placed.reasons
    return Placed(indices, reasons)


def _nowhere(count: int) -> Placed:
    return Placed(np.full(count, MISSING), np.full(count, Reason.NULL_LABEL, dtype=np.uint8))


def _place_distinct(given: pa.Array, axis: Axis) -> Placed:
    labels = _stored(given, axis)
    good = np.flatnonzero(labels.reasons == Reason.FINE)
    found = _place_good(labels.stored.take(pa.array(good)), axis)
    indices = np.full(len(given), MISSING)
    indices[good] = found.indices
    labels.reasons[good] = found.reasons
    return Placed(indices, labels.reasons)


def _place_good(stored: pa.Array, axis: Axis) -> Placed:
    if isinstance(axis.dimension, Regular):
        labels = axis.encoding.decode(stored.to_numpy())
        return place_on_grid(labels, axis.dimension, axis.size + axis.max_growth)
    indices = axis.index.find(stored)
    reasons = np.zeros(len(stored), dtype=np.uint8)
    lost = indices == MISSING
    reasons[lost] = _why_missing(stored.filter(pa.array(lost)), axis)
    return Placed(indices, reasons)


def _why_missing(labels: pa.Array, axis: Axis) -> NDArray[np.uint8]:
    if not isinstance(axis.dimension, Append):
        return np.full(len(labels), Reason.UNKNOWN_LABEL, dtype=np.uint8)
    late = axis.is_late(labels)
    return np.where(late, np.uint8(Reason.LATE_LABEL), np.uint8(Reason.BEYOND_GROWTH))


def _missing(column: pa.Array, axis: Axis) -> _Labels:
    """Labels of a column that the axis does not have and could store."""
    column = plain_column(column)
    labels = _stored(column.unique().drop_null(), axis)
    labels = labels.chosen(labels.reasons == Reason.FINE)
    return labels.chosen(axis.index.find(labels.stored) == MISSING)


def _distinct(parts: list[_Labels]) -> _Labels:
    """Labels of several columns in ascending order, each once."""
    stored = pa.concat_arrays([part.stored for part in parts])
    order = pc.sort_indices(stored)
    stored = stored.take(order)
    given = pa.concat_arrays([part.given for part in parts]).take(order)
    other = pc.not_equal(stored.slice(1), stored.slice(0, max(len(stored) - 1, 0)))
    first = np.append([True], other.to_numpy(zero_copy_only=False))[: len(stored)]
    return _Labels(given, stored, np.zeros(len(stored), dtype=np.uint8)).chosen(first)


def _stored(given: pa.Array, axis: Axis) -> _Labels:
    """Distinct labels, none of them null, in the form in which the coordinate array has them."""
    if is_text(given.type) and axis.encoding.dtype.kind in _ANY_TEXT:
        return _Labels(given, given.cast(pa.string()), np.zeros(len(given), dtype=np.uint8))
    try:
        encoded = axis.encoding.encode(given)
    except LayoutError as error:
        message = f"the column {axis.column!r} of the dimension {axis.name!r}: {error.message}"
        raise LayoutError(message) from error
    unreadable = encoded.reasons != 0
    reasons = np.where(unreadable, np.uint8(Reason.UNREADABLE_LABEL), np.uint8(Reason.FINE))
    if pa.types.is_floating(given.type):
        reasons[pc.is_nan(given).to_numpy(zero_copy_only=False)] = Reason.NAN_LABEL
    return _Labels(given, axis.encoding.labels(encoded.values), reasons)


def _known(axis: Axis) -> pa.Array:
    assert axis.labels is not None, axis.name
    return axis.labels


def _fails_if_late(axis: Axis) -> bool:
    return isinstance(axis.dimension, Append) and axis.dimension.on_late == "fail"


def _late(labels: pa.Array, axis: Axis) -> BadRowsError:
    examples = ", ".join(label_texts(labels.slice(0, _EXAMPLES)))
    more = ", ..." if len(labels) > _EXAMPLES else ""
    what = "1 new label" if len(labels) == 1 else f"{len(labels)} new labels"
    return BadRowsError(
        f"{what} of the dimension {axis.name!r} in the column {axis.column!r} would come after a"
        f" greater one: {examples}{more}. What to do: {Reason.LATE_LABEL.advice}"
    )
