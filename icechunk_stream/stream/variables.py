"""Variables of a layout: which column goes into which array, and how the array is made."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.cf_time import check_units
from icechunk_stream.stream.checks import (
    check_column,
    check_length,
    check_node_name,
    free_attributes,
)
from icechunk_stream.stream.dtypes import STRING, TIME, check_dtype
from icechunk_stream.stream.frozen import FrozenMap, given_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Scalar: TypeAlias = bool | int | float | str
# zarr's own word for "choose by the type of the array".
Codecs: TypeAlias = Any | Literal["auto"]


@dataclass(frozen=True, slots=True)
class Variable:
    """How the array of a variable is made where it is missing; one that exists is honoured.

    The names are those of xarray's ``encoding``.

    Attributes:
        dtype: Type that is stored (with ``scale_factor``, the packed one); None for that of the
            column. ``datetime64`` stores 64-bit counts of ``units``.
        dims: Its dimensions in their order; None for all of the layout.
        column: The column of the rows, if its name is not the variable's.
        fill_value: Stored where there is no value, which reads as missing. None means NaN in
            floats, the lowest number in times and packed integers (the highest unsigned one), and
            in other types zeros and empty texts, which do not read as missing.
        scale_factor: What stored numbers are multiplied by when they are read.
        add_offset: What is added to them after that.
        units: Units of time, as in "seconds since 1970-01-01"; other units go into ``attrs``.
        calendar: A Gregorian calendar's name, for times.
        attrs: Attributes of the array.
        chunks: Lengths of chunks along some dimensions, before those of the layout.
        shards: Lengths of shards along some dimensions, before those of the layout.
        compressors: As in ``zarr.create_array``.
        filters: As in ``zarr.create_array``.
    """

    dtype: str | None = None
    dims: tuple[str, ...] | None = None
    column: str | None = None
    fill_value: Scalar | None = None
    scale_factor: float | None = None
    add_offset: float | None = None
    units: str | None = None
    calendar: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=FrozenMap)
    chunks: Mapping[str, int] = field(default_factory=FrozenMap)
    shards: Mapping[str, int] = field(default_factory=FrozenMap)
    compressors: Codecs = field(default="auto", hash=False)
    filters: Codecs = field(default="auto", hash=False)

    def __post_init__(self) -> None:
        what = "a variable"
        dtype = check_dtype(self.dtype, what)
        if self.column is not None:
            check_column(self.column, what)
        normal = {
            "dtype": dtype,
            "dims": _dims(self.dims),
            "fill_value": _fill_value(self.fill_value, dtype),
            "scale_factor": _number(self.scale_factor, "scale_factor"),
            "add_offset": _number(self.add_offset, "add_offset"),
            "attrs": free_attributes(self.attrs, what),
            "chunks": lengths(self.chunks, "chunks"),
            "shards": lengths(self.shards, "shards"),
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)
        _check_encoding(self)

    def __repr__(self) -> str:
        return given_fields(self)

    @property
    def is_packed(self) -> bool:
        return self.scale_factor is not None or self.add_offset is not None


def as_variable(value: object) -> Variable:
    """A variable, or one of a type alone."""
    return value if isinstance(value, Variable) else Variable(check_dtype(value, "a variable"))


def lengths(given: Mapping[str, int] | None, what: str) -> FrozenMap[str, int]:
    """Lengths of chunks or shards by dimension."""
    pairs = (given or {}).items()
    return FrozenMap({dim: check_length(value, f"{what}[{dim!r}]") for dim, value in pairs})


def _dims(dims: Sequence[str] | None) -> tuple[str, ...] | None:
    if dims is None:
        return None
    if isinstance(dims, str) or not dims or len(set(dims)) < len(dims):
        raise LayoutError(f"dims are {dims!r}: give a tuple of one or more distinct dimensions")
    return tuple(check_node_name(dim, "a dimension") for dim in dims)


def _number(value: object, what: str) -> float | None:
    if value is None:
        return None
    number = value.item() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise LayoutError(f"{what} is {value!r}: give a finite number")
    if what == "scale_factor" and number == 0:
        raise LayoutError("scale_factor is 0: every value would be stored as the same")
    return float(number)


def _fill_value(value: object, dtype: str | None) -> Scalar | None:
    """A plain scalar that the type holds; NaN in floats is what is meant without one."""
    plain = value.item() if isinstance(value, np.ndarray | np.generic) else value
    if plain is None or (isinstance(plain, float) and math.isnan(plain) and _may_be_float(dtype)):
        return None
    if not isinstance(plain, bool | int | float | str) or not _fits(plain, dtype):
        message = f"the fill_value {value!r} is none of the type {dtype or 'of any column'}"
        raise LayoutError(f"{message}: give one that the array can store")
    return plain


def _may_be_float(dtype: str | None) -> bool:
    return dtype is None or dtype.startswith("float")


def _fits(value: Scalar, dtype: str | None) -> bool:
    match value:
        case _ if dtype is None:
            return True
        case str():
            return dtype == STRING
        case bool():
            return dtype == "bool"
        case _ if dtype in (STRING, "bool"):
            return False
        case _:
            return _fits_number(value, np.dtype("int64" if dtype == TIME else dtype))


def _fits_number(value: float, dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "f":
        return math.isinf(value) or abs(value) <= float(np.finfo(dtype).max)
    limits = np.iinfo(dtype)
    return value == round(value) and int(limits.min) <= value <= int(limits.max)


def _check_encoding(variable: Variable) -> None:
    dtype = variable.dtype
    if variable.units is not None:
        check_units(variable.units)
        if dtype not in (None, TIME, "int64", "float64"):
            message = f"units={variable.units!r} are of time, and dtype is {dtype!r}"
            raise LayoutError(f"{message}: use 'datetime64', 'int64' or 'float64'")
    if variable.is_packed and dtype in (STRING, TIME, "bool"):
        raise LayoutError(f"scale_factor and add_offset do not go with the dtype {dtype!r}")
    if variable.is_packed and variable.units is not None:
        raise LayoutError("scale_factor and add_offset do not go with units of time: leave them")
