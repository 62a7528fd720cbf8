"""Indices along a regular dimension by arithmetic: exact for integers and times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.cf_time import arrow_nanos, nanoseconds
from icechunk_stream.stream.dimensions import Regular
from icechunk_stream.stream.reasons import Placed, Reason
from icechunk_stream.stream.times import is_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers: TypeAlias = NDArray[np.int64]
    Flags: TypeAlias = NDArray[np.bool_]

_MAX = 2**63 - 1
_MILLISECOND = 10**6
_DAY = 86_400 * 10**9
# Rounding of a product and a sum, and of the start and the step as numbers of 64 bits.
_EPSILON = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class _Grid:
    """Cells ``start + n * step`` for n below ``limit``, in integers of one unit."""

    start: int
    step: int
    tolerance: int
    limit: int


def place_on_grid(labels: pa.Array, regular: Regular, limit: int) -> Placed:
    """Indices below ``limit``. A null label is bad.

    Raises:
        LayoutError: the labels are not of the grid's kind.
    """
    if not has_grid_labels(labels.type, regular):
        wanted = "times" if regular.is_time else "numbers"
        raise LayoutError(f"labels of type {labels.type} on a grid of {wanted}: cast the column")
    placed = _place(labels, regular, limit)
    if labels.null_count:
        placed.reasons[labels.is_null().to_numpy(zero_copy_only=False)] = Reason.NULL_LABEL
    placed.indices[placed.reasons != Reason.FINE] = -1
    return placed


def has_grid_labels(kind: pa.DataType, regular: Regular) -> bool:
    """Whether a column of a type has labels that can be computed with as they are."""
    if regular.is_time:
        return is_time(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def grid_labels(regular: Regular, start: int, stop: int) -> pa.Array:
    """The labels of the grid points from an index up to another."""
    first: Any = regular.start
    return pa.array(first + np.arange(start, stop) * regular.step)


def _place(labels: pa.Array, regular: Regular, limit: int) -> Placed:
    match regular:
        case Regular(np.datetime64() as first, np.timedelta64() as span, np.timedelta64() as off):
            return _place_times(
                labels, (nanoseconds(first), nanoseconds(span), nanoseconds(off)), limit
            )
        case Regular(int(start), int(step), int(tolerance)) if pa.types.is_integer(labels.type):
            return _place_counts(_integers(labels), 1, _Grid(start, step, tolerance, limit))
        case _:
            return _place_floats(labels, regular, limit)


def _place_times(labels: pa.Array, grid: tuple[int, int, int], limit: int) -> Placed:
    """On a grid in nanoseconds, in the coarsest unit that is exact for it and the labels."""
    nanos = _tick(labels.type)
    unit = min(nanos, 1 if any(value % 1_000 for value in grid) else 1_000)
    start, step, tolerance = (value // unit for value in grid)
    counts = labels.cast(pa.int32()) if pa.types.is_date32(labels.type) else labels.cast(pa.int64())
    return _place_counts(_integers(counts), nanos // unit, _Grid(start, step, tolerance, limit))


def _tick(kind: pa.DataType) -> int:
    """Nanoseconds of one count of a type of times."""
    if pa.types.is_timestamp(kind):
        return arrow_nanos(kind.unit)
    return _DAY if pa.types.is_date32(kind) else _MILLISECOND


def _integers(labels: pa.Array) -> Integers:
    """Integers of 64 bits; greater ones are the greatest of these."""
    values = labels.fill_null(0).to_numpy()
    if pa.types.is_uint64(labels.type):
        values = np.minimum(values, np.uint64(_MAX))
    return np.asarray(values, dtype=np.int64)


def _place_counts(counts: Integers, factor: int, grid: _Grid) -> Placed:
    """Place counts of ``factor`` units of the grid."""
    if grid.step > _MAX:
        message = f"the step {grid.step} of the dimension does not fit into 64 bits"
        raise LayoutError(f"{message}: cast the column to timestamps in microseconds")
    low = grid.start - grid.tolerance
    first = int(counts.min(initial=_MAX)) * factor
    last = int(counts.max(initial=-_MAX)) * factor
    if max(-(2**63), last - _MAX) <= low <= first and last <= _MAX:
        return _place_above(counts * factor - low if factor > 1 else counts - low, grid)
    return _place_anywhere(counts, factor, grid)


def _place_above(labels: Integers, grid: _Grid) -> Placed:
    """Place labels that are counted from the lowest one of cell 0, none of which is below it."""
    steps = labels.view(np.uint64) // np.uint64(grid.step)
    rest = labels - steps.view(np.int64) * grid.step
    off_grid, beyond = rest > 2 * grid.tolerance, steps >= grid.limit
    return Placed(steps.view(np.int64), _reasons(np.False_, beyond, off_grid))


def _place_anywhere(counts: Integers, factor: int, grid: _Grid) -> Placed:
    """Place counts; those that no 64 bits hold are far outside."""
    clipped = np.clip(counts, -(2**63 // factor), (_MAX - 1) // factor)
    placed = _place_integers(clipped * factor, grid)
    outside = np.flatnonzero(clipped != counts)
    below = counts[outside] < 0
    placed.reasons[outside] = np.where(below, Reason.BEFORE_START, Reason.BEYOND_GROWTH)
    return placed


def _place_integers(labels: Integers, grid: _Grid) -> Placed:
    """Whole steps above the lowest label of cell 0, as a difference of quotients: no overflow."""
    low = grid.start - grid.tolerance
    high = low + grid.limit * grid.step
    whole, rest = divmod(low, grid.step)
    steps = labels // grid.step
    above = labels - steps * grid.step - rest
    borrowed = above < 0
    indices = (steps.view(np.uint64) - np.uint64(whole % 2**64)).view(np.int64) - borrowed
    off_grid = above + borrowed * grid.step > 2 * grid.tolerance
    return Placed(indices, _reasons(labels < low, labels >= high, off_grid))


def _place_floats(labels: pa.Array, regular: Regular, limit: int) -> Placed:
    start, step, tolerance = (float(x) for x in (regular.start, regular.step, regular.tolerance))
    values = labels.cast(pa.float64(), safe=False).fill_null(start).to_numpy()
    with np.errstate(over="ignore"):
        steps = np.nan_to_num(np.floor((values - start) / step + 0.5))
        inside = np.clip(steps, 0, limit)
        points = start + inside * step
        slack = _EPSILON * (abs(start) + inside * step)
        slack += _precision(labels.type) * np.abs(np.nan_to_num(values))
    allowed = tolerance + slack
    off_grid = (np.abs(values - points) > allowed) | (2 * slack >= step)
    beyond = (inside == limit) & (values >= points - allowed)
    reasons = _reasons((steps <= 0) & (values < start - allowed), beyond, off_grid)
    reasons[np.isnan(values)] = Reason.NAN_LABEL
    return Placed(inside.astype(np.int64), reasons)


def _precision(kind: pa.DataType) -> float:
    """How far a label may be off for want of digits, as a part of it."""
    if pa.types.is_integer(kind):
        return _EPSILON
    return float(np.finfo(kind.to_pandas_dtype()).eps)


def _reasons(before: Flags | np.bool_, beyond: Flags, off_grid: Flags) -> NDArray[np.uint8]:
    reasons = np.zeros(len(off_grid), np.uint8)
    for flags, reason in (
        (off_grid, Reason.OFF_GRID),
        (beyond, Reason.BEYOND_GROWTH),
        (before, Reason.BEFORE_START),
    ):
        if flags.any():
            reasons[flags] = reason
    return reasons
