"""Groups and arrays that a layout needs and a repository lacks, made through zarr."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import zarr

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.cf_attributes import fill_attribute, time_attributes
from icechunk_stream.stream.dimensions import Dimension, Fixed, Regular
from icechunk_stream.stream.dtypes import STRING, TIME
from icechunk_stream.stream.encodings import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zarr import Array

    from icechunk_stream.store import IcechunkStore
    from icechunk_stream.stream.layout import Rows
    from icechunk_stream.stream.variables import Variable

NaT = -(2**63)
_UNITS = {"ns": "nanoseconds since 1970-01-01", "us": "microseconds since 1970-01-01"}
_DAYS = "days since 1970-01-01"


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """What zarr makes an array of."""

    path: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    fill_value: Any
    attributes: Mapping[str, Any]
    shards: tuple[int, ...] | None = None
    codecs: Mapping[str, Any] = field(default_factory=dict)


def make_array(store: IcechunkStore, spec: ArraySpec) -> Array[Any]:
    """The new array, which holds nothing yet."""
    return zarr.create_array(
        store,
        name=spec.path,
        shape=spec.shape,
        chunks=spec.chunks,
        shards=spec.shards,
        dtype=spec.dtype,
        fill_value=spec.fill_value,
        attributes=dict(spec.attributes),
        dimension_names=spec.dims,
        zarr_format=3,
        **spec.codecs,
    )


def make_groups(store: IcechunkStore, missing: list[str], attributes: Mapping[str, Any]) -> None:
    """The groups of these paths, outer ones first; the last one has the attributes."""
    for path in missing:
        last = dict(attributes) if path == missing[-1] else {}
        zarr.create_group(store, path=path, zarr_format=3, attributes=last)


def coordinate_spec(
    path: str, name: str, dimension: Dimension, column: pa.DataType | None
) -> ArraySpec:
    """The coordinate array of a dimension: empty, or of the length of its fixed labels."""
    coordinate, labels = dimension.coordinate, _label_type(dimension, column)
    dtype = coordinate.dtype or kind_of(labels)
    if dtype is None:
        message = f"the dimension {name!r} takes its type from a column of type {labels}"
        raise LayoutError(f"{message}: give dtype, or cast the column")
    attributes = dict(coordinate.attrs)
    units = coordinate.units or (_time_units(dimension, labels) if _is_time(dtype, labels) else "")
    if units:
        attributes |= time_attributes(units, coordinate.calendar)
    stored = "int64" if dtype == TIME else dtype
    fill, marks = (0, {}) if units else _plain_fill(stored)
    known = dimension.labels if isinstance(dimension, Fixed) else None
    size = 0 if known is None else len(known)
    return ArraySpec(path, (name,), (size,), (coordinate.chunk,), stored, fill, attributes | marks)


def variable_spec(
    path: str, name: str, layout: Rows, sizes: Mapping[str, int], column: pa.DataType | None
) -> ArraySpec:
    """The array of a variable, as long as its dimensions are."""
    variable, dims = layout.variable(name), layout.dims_of(name)
    dtype = variable.dtype or (None if column is None else kind_of(column))
    if dtype is None:
        message = f"the variable {name!r} has no dtype, and its column is of type {column}"
        raise LayoutError(f"{message}: give it one, as in Variable('float32')")
    units = _variable_units(variable, dtype, column)
    stored = "int64" if dtype == TIME else dtype
    fill, marks = _variable_fill(variable, stored, is_time=bool(units))
    attributes = dict(variable.attrs) | _packing(variable)
    if units:
        attributes |= time_attributes(units, variable.calendar)
    return ArraySpec(
        path=path,
        dims=dims,
        shape=tuple(sizes[dim] for dim in dims),
        chunks=layout.chunk_shape(name),
        dtype=stored,
        fill_value=fill,
        attributes=attributes | marks,
        shards=layout.shard_shape(name),
        codecs={"compressors": variable.compressors, "filters": variable.filters},
    )


def _label_type(dimension: Dimension, column: pa.DataType | None) -> pa.DataType:
    match dimension:
        case Regular():
            return pa.array([dimension.start]).type
        case Fixed(labels=labels) if labels is not None:
            return labels.type
        case _ if column is not None:
            return column
        case _:
            return pa.null()


def _is_time(dtype: str, labels: pa.DataType) -> bool:
    return dtype == TIME or (dtype in ("int64", "float64") and kind_of(labels) == TIME)


def _time_units(dimension: Dimension, labels: pa.DataType) -> str:
    spans = (dimension.step, dimension.tolerance) if isinstance(dimension, Regular) else ()
    units = {np.datetime_data(span.dtype)[0] for span in spans if isinstance(span, np.timedelta64)}
    return _UNITS["ns"] if "ns" in units else _units_for(labels)


def _variable_units(variable: Variable, dtype: str, column: pa.DataType | None) -> str:
    if variable.units is not None or dtype != TIME:
        return variable.units or ""
    return _UNITS["us"] if column is None else _units_for(column)


def _units_for(times: pa.DataType) -> str:
    """Units in which times of a type are whole."""
    if pa.types.is_date32(times):
        return _DAYS
    return _UNITS["ns" if pa.types.is_timestamp(times) and times.unit == "ns" else "us"]


def _variable_fill(variable: Variable, dtype: str, *, is_time: bool) -> tuple[Any, dict[str, Any]]:
    """The fill value, and the attribute by which it reads as missing."""
    fill: Any = variable.fill_value
    if dtype == STRING:
        return fill or "", {}
    kind = np.dtype(dtype)
    if fill is None and is_time and kind.kind == "i":
        fill = NaT
    elif fill is None and variable.is_packed and kind.kind in "iu":
        limits = np.iinfo(kind)
        fill = int(limits.min if kind.kind == "i" else limits.max)
    if fill is None:
        return _plain_fill(dtype)
    return fill, {"_FillValue": fill_attribute(fill, kind)}


def _plain_fill(dtype: str) -> tuple[Any, dict[str, Any]]:
    """As xarray has it: NaN reads as missing, other values do not."""
    if dtype == STRING:
        return "", {}
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return float("nan"), {"_FillValue": fill_attribute(float("nan"), kind)}
    return (False if kind.kind == "b" else 0), {}


def _packing(variable: Variable) -> dict[str, float]:
    pairs = {"scale_factor": variable.scale_factor, "add_offset": variable.add_offset}
    return {name: value for name, value in pairs.items() if value is not None}
