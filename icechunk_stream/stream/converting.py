"""Columns of Arrow to numpy's numbers: parsed, in range, and never rounded without being told."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.errors import LayoutError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]

_INTEGER = r"^[+-]?\d{1,20}$"
_FLOAT = r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)$"
_WIDE_DIGITS = 76


class Unstorable(IntEnum):
    """Why the value of a row cannot be stored; FINE says that it can."""

    FINE = 0
    OUT_OF_RANGE = 1
    INEXACT = 2
    UNREADABLE = 3
    TOO_LONG = 4
    READS_AS_MISSING = 5

    @property
    def text(self) -> str:
        """What is the matter, to go on after "the value"."""
        return _TEXTS[self]


_TEXTS = {
    Unstorable.FINE: "can be stored",
    Unstorable.OUT_OF_RANGE: "is out of the range of the array's type",
    Unstorable.INEXACT: "would be rounded by the type or the units of the array",
    Unstorable.UNREADABLE: "is a text that stands for no number or time",
    Unstorable.TOO_LONG: "is longer than the texts that the array holds",
    Unstorable.READS_AS_MISSING: "is NaN, or would read as missing, where the array has no room",
}


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Values in the type of an array, and why a row has none; those of bad rows mean nothing.

    A null is no reason: whoever asks knows from the column.
    """

    values: NDArray[Any]
    reasons: NDArray[np.uint8]

    def refused(self, bad: Flags, reason: Unstorable) -> Encoded:
        """With a reason for further rows; a row keeps the first."""
        if not bad.any():
            return self
        reasons = np.where(bad & (self.reasons == 0), np.uint8(reason), self.reasons)
        return Encoded(self.values, reasons)

    def with_values(self, values: NDArray[Any]) -> Encoded:
        return Encoded(values, self.reasons)


def fine(values: NDArray[Any]) -> Encoded:
    return Encoded(values, np.zeros(len(values), np.uint8))


def plain_column(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array without dictionaries."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def numbers(column: pa.Array, dtype: np.dtype[Any]) -> Encoded:
    """A column as numbers, in a type of its own, on the way to an array's type.

    Raises:
        LayoutError: the column holds no numbers.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return fine(np.zeros(len(column), np.int8))
    if pa.types.is_float16(kind):
        # Limits of integers overflow in 16 bits.
        return fine(_numpy(column).astype(np.float32))
    if pa.types.is_boolean(kind):
        return fine(_numpy(column.cast(pa.uint8())))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return fine(_numpy(column))
    if pa.types.is_decimal(kind):
        return _decimals(column, dtype)
    if is_text(kind):
        return _texts(column, dtype)
    raise LayoutError(f"a column of type {kind} does not go into an array of {dtype}: cast it")


def fit(found: Encoded, dtype: np.dtype[Any], fill: float | None) -> Encoded:
    """Numbers in the type of an array, NaN as its fill value."""
    match found.values.dtype.kind, dtype.kind:
        case "f", "f":
            return _narrowed(found, dtype, fill)
        case "f", _:
            return _whole(found, dtype, fill)
        case _, "f":
            return _as_float(found, dtype)
        case _:
            return in_range(found, dtype)


def in_range(found: Encoded, dtype: np.dtype[Any]) -> Encoded:
    """Integers in another type."""
    values = found.values
    low, high = (0, 1) if dtype.kind == "b" else _limits(dtype)
    outside = (values < low) | (values > high)
    kept = np.where(outside, 0, values) if outside.any() else values
    return found.refused(outside, Unstorable.OUT_OF_RANGE).with_values(kept.astype(dtype))


def rounded(found: Encoded, dtype: np.dtype[Any], fill: float | None) -> Encoded:
    """Whole floats in an integer type, NaN as its fill value."""
    values, missing = found.values, np.isnan(found.values)
    if fill is None:
        found = found.refused(missing, Unstorable.READS_AS_MISSING)
    low, high = _limits(dtype)
    # Both are powers of two, so exact in every floating point type.
    outside = ~missing & ~((values >= float(low)) & (values < float(high + 1)))
    kept = np.where(missing | outside, 0, values).astype(dtype)
    if fill is not None:
        kept[missing] = fill
    return found.refused(outside, Unstorable.OUT_OF_RANGE).with_values(kept)


def cast_or_null(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in another type, null where a value has no such form."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, kind)
        half = len(column) // 2
        parts = cast_or_null(column[:half], kind), cast_or_null(column[half:], kind)
        return pa.concat_arrays(parts)


def matching(column: pa.Array, pattern: str) -> pa.Array:
    """Texts of a pattern; others are null."""
    return pc.if_else(pc.match_substring_regex(column, pattern), column, pa.scalar(None))


def _numpy(column: pa.Array) -> NDArray[Any]:
    filled = column.fill_null(0) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _decimals(column: pa.Array, dtype: np.dtype[Any]) -> Encoded:
    if dtype.kind == "f":
        return fine(_numpy(column.cast(pa.float64())))
    wide = column.cast(pa.decimal256(_WIDE_DIGITS, column.type.scale)).fill_null(Decimal(0))
    low, high = (
        pa.scalar(Decimal(limit), wide.type) for limit in _limits(np.dtype(_widest(dtype)))
    )
    inexact = _mask(pc.not_equal(pc.round(wide), wide))
    outside = _mask(pc.or_(pc.less(wide, low), pc.greater(wide, high)))
    kept = pc.if_else(pa.array(inexact | outside), pa.scalar(Decimal(0), wide.type), wide)
    found = fine(_numpy(kept.cast(_widest(dtype))))
    found = found.refused(outside, Unstorable.OUT_OF_RANGE)
    return found.refused(inexact, Unstorable.INEXACT)


def _texts(column: pa.Array, dtype: np.dtype[Any]) -> Encoded:
    texts = pc.utf8_trim_whitespace(column)
    if dtype.kind == "b":
        read = cast_or_null(texts, pa.bool_()).cast(pa.uint8())
    elif dtype.kind == "f":
        read = cast_or_null(matching(texts, _FLOAT), pa.float64())
    else:
        plus_free = pc.replace_substring_regex(matching(texts, _INTEGER), r"^\+", "")
        read = cast_or_null(plus_free, pa.from_numpy_dtype(_widest(dtype)))
    unread = _mask(pc.and_(read.is_null(), column.is_valid()))
    return fine(_numpy(read)).refused(unread, Unstorable.UNREADABLE)


def _widest(dtype: np.dtype[Any]) -> str:
    return "uint64" if dtype == np.uint64 else "int64"


def _mask(flags: pa.Array) -> Flags:
    return np.asarray(flags.to_numpy(zero_copy_only=False))


def _narrowed(found: Encoded, dtype: np.dtype[Any], fill: float | None) -> Encoded:
    if found.values.dtype != dtype:
        with np.errstate(over="ignore"):
            values = found.values.astype(dtype)
        outside = np.isinf(values) & np.isfinite(found.values)
        found = found.refused(outside, Unstorable.OUT_OF_RANGE).with_values(values)
    if fill is None:
        return found
    return found.with_values(np.where(np.isnan(found.values), dtype.type(fill), found.values))


def _whole(found: Encoded, dtype: np.dtype[Any], fill: float | None) -> Encoded:
    values = found.values
    inexact = np.isfinite(values) & (np.trunc(values) != values)
    if dtype.kind == "b":
        outside = ~inexact & ~np.isnan(values) & (values != 0) & (values != 1)
        checked = found.refused(np.isnan(values), Unstorable.READS_AS_MISSING)
        checked = checked.refused(outside, Unstorable.OUT_OF_RANGE).with_values(values == 1)
    else:
        checked = rounded(found, dtype, fill)
    return checked.refused(inexact, Unstorable.INEXACT)


def _as_float(found: Encoded, dtype: np.dtype[Any]) -> Encoded:
    source = found.values.dtype
    with np.errstate(over="ignore"):
        values = found.values.astype(dtype)
    low, high = _limits(source)
    wide = values.astype(np.float64)
    safe = (wide >= float(low)) & (wide < float(high + 1))
    changed = ~safe | (np.where(safe, wide, 0).astype(source) != found.values)
    checked = found.refused(np.isinf(values), Unstorable.OUT_OF_RANGE).with_values(values)
    return checked.refused(changed, Unstorable.INEXACT)
