"""The attributes by which CF and xarray say how an array stores values: read and made."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.cf_time import GREGORIAN, TimeUnits
from icechunk_stream.stream.encodings import Encoding, Flags, How, Packed, Plain, Text, Times
from icechunk_stream.stream.times import REFORM

if TYPE_CHECKING:
    from collections.abc import Mapping

    Attributes = Mapping[str, Any]

PROLEPTIC = "proleptic_gregorian"
_BYTES = 8


def encoding_of(dtype: np.dtype[Any], attrs: Attributes, path: str) -> Encoding:
    """How an array with these attributes stores values.

    Raises:
        LayoutError: it does so in a way that the sink does not write.
    """
    if attrs.get("_Unsigned") is not None:
        raise _refused(path, "has the attribute _Unsigned", "an unsigned dtype")
    if dtype.kind in "SUTO":
        return Encoding(dtype, Text())
    if dtype.kind not in "biuf":
        raise _refused(path, f"has the dtype {dtype}", "booleans, numbers, texts or CF times")
    return Encoding(dtype, _how(dtype, attrs, path), _fill(dtype, attrs, path))


def fill_attribute(value: object, dtype: np.dtype[Any]) -> object:
    """The attribute ``_FillValue`` as xarray writes it for Zarr v3."""
    if dtype.kind == "f":
        packed = struct.pack("<d", float(value))  # type: ignore[arg-type]
        return base64.standard_b64encode(packed).decode()
    if dtype.kind in "iu":
        return int(value)  # type: ignore[call-overload]
    return bool(value) if dtype.kind == "b" else value


def time_attributes(units: str, calendar: str | None) -> dict[str, str]:
    return {"units": units, "calendar": calendar or PROLEPTIC}


def _how(dtype: np.dtype[Any], attrs: Attributes, path: str) -> How:
    scale, offset = (_factor(attrs, name, path) for name in ("scale_factor", "add_offset"))
    if TimeUnits.is_time(attrs.get("units")):
        if scale is not None or offset is not None:
            raise _refused(path, "packs times", "times without scale_factor and add_offset")
        return _times(attrs, path)
    if scale is not None or offset is not None:
        return Packed(scale, offset)
    if attrs.get("dtype") == "bool" and dtype.kind in "iu":
        return Flags()
    return Plain()


def _times(attrs: Attributes, path: str) -> Times:
    units = TimeUnits.parse(attrs["units"])
    calendar = str(attrs.get("calendar", "standard")).lower()
    if calendar not in GREGORIAN:
        raise _refused(path, f"has the calendar {calendar!r}", "a Gregorian calendar")
    if calendar == PROLEPTIC:
        return Times(units)
    if units.epoch < REFORM:
        what = f"counts from before 1582 in the calendar {calendar!r}"
        raise _refused(path, what, f"the calendar {PROLEPTIC!r}, or a later date")
    return Times(units, REFORM)


def _factor(attrs: Attributes, name: str, path: str) -> float | None:
    value = attrs.get(name)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refused(path, f"has {name} {value!r}", "a finite number")
    if name == "scale_factor" and value == 0:
        raise _refused(path, "has the scale_factor 0", "another one")
    return float(value)


def _fill(dtype: np.dtype[Any], attrs: Attributes, path: str) -> float | None:
    name = "_FillValue" if "_FillValue" in attrs else "missing_value"
    value = attrs.get(name)
    if isinstance(value, str) and dtype.kind == "f" and name == "_FillValue":
        value = _from_base64(value, path)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, int | float):
        raise _refused(path, f"has {name} {value!r}", "a number of its dtype")
    return _of_type(value, dtype, f"{path} has {name}")


def _of_type(value: float, dtype: np.dtype[Any], what: str) -> float:
    if dtype.kind == "f":
        return float(dtype.type(value))
    limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if value != int(value) or not int(limits[0]) <= value <= int(limits[1]):
        raise LayoutError(f"{what} {value!r}, which its dtype {dtype} cannot hold: correct it")
    return int(value)


def _from_base64(text: str, path: str) -> float:
    try:
        data = base64.standard_b64decode(text)
    except (binascii.Error, ValueError):
        data = b""
    if len(data) != _BYTES:
        raise _refused(path, f"has the _FillValue {text!r}", "one that xarray writes")
    return float(struct.unpack("<d", data)[0])


def _refused(path: str, what: str, instead: str) -> LayoutError:
    return LayoutError(f"the array {path} {what}, which the sink does not write: use {instead}")
