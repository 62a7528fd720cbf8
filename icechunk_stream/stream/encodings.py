"""How an array stores the values of a column: CF times, packing, fill values, texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.converting import (
    Encoded,
    Unstorable,
    fine,
    fit,
    is_text,
    numbers,
    plain_column,
    rounded,
)
from icechunk_stream.stream.times import is_time, time_counts, times_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from icechunk_stream.stream.cf_time import TimeUnits

__all__ = ["Encoded", "Encoding", "Flags", "Packed", "Plain", "Text", "Times", "Unstorable"]


@dataclass(frozen=True, slots=True)
class Plain:
    """Numbers as they are."""


@dataclass(frozen=True, slots=True)
class Flags:
    """True and false as the integers 1 and 0, which xarray reads as booleans."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Numbers less an offset, divided by a factor."""

    scale_factor: float | None
    add_offset: float | None


@dataclass(frozen=True, slots=True)
class Times:
    """Counts of units since a date; none before ``first``, in nanoseconds since 1970."""

    units: TimeUnits
    first: int = -(2**127)


@dataclass(frozen=True, slots=True)
class Text:
    """Texts, of any length or of the array's fixed one."""


How: TypeAlias = Plain | Flags | Packed | Times | Text


@dataclass(frozen=True, slots=True)
class Encoding:
    """How values are stored in an array of ``dtype``.

    ``fill`` is what NaN and missing values are stored as; None where they have no form, or NaN is
    NaN. The result equals what xarray writes with the same ``encoding``, but that a value which
    would be cut, wrapped or (floats to floats apart) rounded in silence is refused.
    """

    dtype: np.dtype[Any]
    how: How = Plain()
    fill: float | None = None

    @property
    def units(self) -> TimeUnits | None:
        """The units of times; None for anything else."""
        return self.how.units if isinstance(self.how, Times) else None

    @property
    def stored_type(self) -> pa.DataType:
        """Arrow's type of stored values."""
        if isinstance(self.how, Text):
            return pa.string()
        return pa.from_numpy_dtype(self.dtype.newbyteorder("="))

    def encode(self, column: pa.Array | pa.ChunkedArray) -> Encoded:
        """The values of a column as the array stores them.

        Raises:
            LayoutError: the array holds no values of the column's type.
        """
        column = plain_column(column)
        match self.how:
            case Plain():
                return fit(numbers(column, self.dtype), self.dtype, self.fill)
            case Flags():
                flags = np.dtype(np.bool_)
                found = fit(numbers(column, flags), flags, None)
                return found.with_values(found.values.astype(self.dtype))
            case Packed():
                return self._packed(column, self.how)
            case Times():
                return self._times(column, self.how)
            case Text():
                return _encode_text(column, self.dtype)
            case _:
                assert_never(self.how)

    def decode(self, values: NDArray[Any]) -> pa.Array:
        """What stored values stand for, null where they are the fill value."""
        match self.how:
            case Text():
                return self.labels(values)
            case Times():
                decoded = times_of(values, self.how.units)
            case Packed():
                floats = values.astype(np.float64) * (self.how.scale_factor or 1.0)
                decoded = pa.array(floats + (self.how.add_offset or 0.0))
            case Flags():
                decoded = pa.array(values != 0)
            case Plain():
                decoded = self.labels(values)
            case _:
                assert_never(self.how)
        if self.fill is None:
            return decoded
        return pc.if_else(pa.array(values == self.fill), pa.scalar(None), decoded)

    def labels(self, values: NDArray[Any]) -> pa.Array:
        """Values that were read from the array, in stored form as an Arrow array."""
        if isinstance(self.how, Text):
            texts = [_as_text(value) for value in values.tolist()]
            return pa.array(texts, pa.string())
        return pa.array(values.astype(self.dtype.newbyteorder("="), copy=False))

    def check_column(self, kind: pa.DataType, where: str) -> None:
        """Refuse a column whose type the array cannot hold.

        Raises:
            LayoutError: no value of the type can be stored.
        """
        try:
            self.encode(pa.array([], kind))
        except LayoutError as error:
            raise LayoutError(f"{where}: {error.message}") from error

    def _packed(self, column: pa.Array, how: Packed) -> Encoded:
        found = numbers(column, np.dtype(np.float64))
        values = found.values
        # As xarray does: without a fill value it computes with 64 bits, else in the data's type.
        if values.dtype != np.float32 or self.fill is None:
            values = values.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            values = values - how.add_offset if how.add_offset is not None else values
            values = values / how.scale_factor if how.scale_factor is not None else values
        if self.dtype.kind == "f":
            return fit(found.with_values(values), self.dtype, self.fill)
        packed = rounded(found.with_values(np.round(values)), self.dtype, self.fill)
        return self._told_from_fill(packed, ~np.isnan(values))

    def _times(self, column: pa.Array, how: Times) -> Encoded:
        found = time_counts(column, how.units, self.dtype, how.first)
        return self._told_from_fill(found, np.ones(len(found.values), np.bool_))

    def _told_from_fill(self, found: Encoded, present: NDArray[np.bool_]) -> Encoded:
        """Refuse computed values that would read as missing."""
        if self.fill is None:
            return found
        hidden = present & (found.values == self.fill)
        return found.refused(hidden, Unstorable.READS_AS_MISSING)


def kind_of(column: pa.DataType) -> str | None:
    """The dtype of an array made for a column; None where there is none."""
    if pa.types.is_dictionary(column):
        return kind_of(column.value_type)
    if is_text(column):
        return "string"
    if is_time(column):
        return "datetime64"
    if pa.types.is_decimal(column):
        return "float64"
    if pa.types.is_boolean(column) or pa.types.is_integer(column) or pa.types.is_floating(column):
        return str(np.dtype(column.to_pandas_dtype()).name)
    return None


def _encode_text(column: pa.Array, dtype: np.dtype[Any]) -> Encoded:
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    if not is_text(column.type):
        raise LayoutError(f"a column of type {column.type} does not go into an array of texts")
    codes = column.dictionary_encode()
    found = _text_values(codes.dictionary, dtype)
    rows = codes.indices.fill_null(len(codes.dictionary)).to_numpy()
    values = np.append(found.values, np.zeros(1, dtype))
    return Encoded(values[rows], np.append(found.reasons, np.uint8(0))[rows])


def _text_values(texts: pa.Array, dtype: np.dtype[Any]) -> Encoded:
    """Distinct texts; those of fixed length lose zeros at their end, so none may have them."""
    given = texts.to_pylist()
    if dtype.kind == "S":
        given = [text.encode() for text in given]
    found = fine(np.array(given, dtype=dtype))
    if dtype.kind not in "SU":
        return found
    bytes_each = 4 if dtype.kind == "U" else 1
    lengths = pc.utf8_length(texts) if dtype.kind == "U" else pc.binary_length(texts)
    too_long = pc.greater(lengths, dtype.itemsize // bytes_each).to_numpy(zero_copy_only=False)
    cut = pc.ends_with(texts, "\0").to_numpy(zero_copy_only=False)
    return found.refused(too_long, Unstorable.TOO_LONG).refused(cut, Unstorable.INEXACT)


def _as_text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
