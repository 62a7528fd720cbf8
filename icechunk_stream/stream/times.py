"""Times of Arrow to counts of CF units, in integers that do not overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.cf_time import TimeUnits, arrow_nanos
from icechunk_stream.stream.converting import (
    Encoded,
    Unstorable,
    cast_or_null,
    fine,
    fit,
    is_text,
    matching,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MIN, _MAX = -(2**63), 2**63 - 1
_DAY = 86_400 * 10**9
_MILLISECOND = 10**6
# 1582-10-15, before which the calendar "standard" has other days than Arrow's.
REFORM = -141_427 * _DAY

_ISO = r"^\d{4}-\d\d-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?)?"
_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"
_NANOS = r"\.\d{7}"


def time_counts(column: pa.Array, units: TimeUnits, dtype: np.dtype[Any], first: int) -> Encoded:
    """Counts of units for a column of times; those before ``first``, in nanoseconds, are refused.

    Raises:
        LayoutError: the column holds no times.
    """
    if is_text(column.type):
        parsed = _parsed(column)
        unread = pc.and_(parsed.is_null(), column.is_valid()).to_numpy(zero_copy_only=False)
        found = time_counts(parsed, units, dtype, first)
        return found.refused(unread, Unstorable.UNREADABLE)
    ticks, nanos = _ticks(column)
    early = ticks < max(_MIN, -(-first // nanos))
    found = _counts(ticks, nanos, units, dtype).refused(early, Unstorable.OUT_OF_RANGE)
    # The lowest number of 64 bits is NaT to numpy.
    nat = (ticks == _MIN) | (found.values == _MIN)
    return fit(found.refused(nat, Unstorable.OUT_OF_RANGE), dtype, None)


def times_of(counts: NDArray[Any], units: TimeUnits) -> pa.Array:
    """Counts as timestamps; null where there is none of 64 bits."""
    unit = "ns" if units.nanos % 1_000 or units.epoch % 1_000 else "us"
    tick = arrow_nanos(unit)
    if counts.dtype.kind == "f":
        missing = ~np.isfinite(counts)
        whole = np.where(missing, 0, counts) * (units.nanos / tick)
        outside = missing | (np.abs(whole) > 2.0**62)
        ticks = np.where(outside, 0, np.rint(whole)).astype(np.int64) + units.epoch // tick
        return pa.array(ticks, pa.timestamp(unit), mask=outside)
    found = _scaled(counts.astype(np.int64), units.nanos // tick, -(units.epoch // tick))
    return pa.array(found.values, pa.timestamp(unit), mask=found.reasons != 0)


def is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _parsed(column: pa.Array) -> pa.Array:
    """Texts of ISO 8601 as timestamps in UTC; null where they are none."""
    texts = pc.utf8_trim_whitespace(column)
    fine_digits = pc.any(pc.match_substring_regex(texts, _NANOS)).as_py()
    unit = "ns" if fine_digits else "us"
    zoned = cast_or_null(matching(texts, _ISO + _ZONE), pa.timestamp(unit, "UTC"))
    local = cast_or_null(matching(texts, _ISO + "$"), pa.timestamp(unit))
    return pc.coalesce(local, zoned.cast(pa.timestamp(unit)))


def _ticks(column: pa.Array) -> tuple[NDArray[np.int64], int]:
    """Counts since 1970 of a unit, and its nanoseconds."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64), 1
    if pa.types.is_timestamp(kind):
        return _integers(column.cast(pa.int64())), arrow_nanos(kind.unit)
    if pa.types.is_date32(kind):
        return _integers(column.cast(pa.int32())), _DAY
    if pa.types.is_date64(kind):
        return _integers(column.cast(pa.int64())), _MILLISECOND
    raise LayoutError(f"a column of type {kind} does not go into an array of times: cast it")


def _integers(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(column.fill_null(0).to_numpy(), np.int64)


def _counts(
    ticks: NDArray[np.int64], nanos: int, units: TimeUnits, dtype: np.dtype[Any]
) -> Encoded:
    """(ticks * nanos - epoch) / units.nanos; one of the two durations divides the other."""
    if units.nanos <= nanos:
        offset, rest = divmod(units.epoch, units.nanos)
        found = _scaled(ticks, nanos // units.nanos, offset)
        return _off_by(found, rest / units.nanos, dtype)
    offset, rest = divmod(units.epoch, nanos)
    ratio = units.nanos // nanos
    if dtype.kind == "f":
        shifted = _off_by(_scaled(ticks, 1, offset), rest / nanos, dtype)
        return shifted.with_values(shifted.values / ratio)
    whole, part = divmod(offset, ratio)
    found = _scaled(ticks // ratio, 1, whole)
    inexact = ticks % ratio != part
    return _off_by(found.refused(inexact, Unstorable.INEXACT), rest / nanos, dtype)


def _off_by(found: Encoded, fraction: float, dtype: np.dtype[Any]) -> Encoded:
    """Less a part of one count, which only floats have."""
    if not fraction:
        return found
    if dtype.kind == "f":
        return found.with_values(found.values - fraction)
    return found.refused(np.ones(len(found.values), np.bool_), Unstorable.INEXACT)


def _scaled(values: NDArray[np.int64], factor: int, offset: int) -> Encoded:
    """``values * factor - offset`` modulo 2**64, which is exact for all that are not refused."""
    low, high = -((-_MIN - offset) // factor), (_MAX + offset) // factor
    outside = (values < max(low, _MIN)) | (values > min(high, _MAX))
    if low > _MAX or high < _MIN:
        outside[:] = True
    wrapped = values.view(np.uint64) * np.uint64(factor % 2**64) - np.uint64(offset % 2**64)
    return fine(wrapped.view(np.int64)).refused(outside, Unstorable.OUT_OF_RANGE)
