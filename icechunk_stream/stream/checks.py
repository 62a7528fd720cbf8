"""Checks of what a user writes into a layout; every message says what to write instead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.cf_time import TimeUnits
from icechunk_stream.stream.frozen import FrozenMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

T = TypeVar("T")

_MAX_LENGTH = 2**63 - 1
# Attributes by which CF and xarray say how the values of an array are encoded.
_ENCODING = frozenset(
    ("_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned", "calendar", "dtype")
)


def check_node_name(name: object, what: str) -> str:
    """A name that a zarr node may have."""
    if not isinstance(name, str) or not name:
        raise LayoutError(f"{what} is named {name!r}: give it a name of one character or more")
    if "/" in name or name.startswith("__") or not name.strip(".") or name == "zarr.json":
        message = (
            f"{what} is named {name!r}, which no zarr array can be: leave out slashes and a leading"
            " '__', and use more than dots; a column of the rows may have any name (column=)"
        )
        raise LayoutError(message)
    return _unicode(name, what)


def check_column(name: object, what: str) -> str:
    """The name of a column of the rows."""
    if not isinstance(name, str) or not name:
        raise LayoutError(f"the column of {what} is {name!r}: give the name of a column")
    if name.startswith("#"):
        message = (
            f"the column of {what} is {name!r}: names that begin with '#' are taken for the indices"
            " of rows; rename the column before the sink"
        )
        raise LayoutError(message)
    return _unicode(name, f"the column of {what}")


def check_choice(value: object, choices: tuple[str, ...], what: str) -> None:
    if value not in choices:
        allowed = ", ".join(map(repr, choices))
        raise LayoutError(f"{what} is {value!r}: choose one of {allowed}")


def check_length(value: object, what: str) -> int:
    """A count of cells, at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise LayoutError(f"{what} is {value!r}: give a whole number")
    if not 1 <= value <= _MAX_LENGTH:
        raise LayoutError(f"{what} is {value}: at least 1 is needed")
    return int(value)


def check_known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse names that nothing has."""
    has = tuple(known)
    unknown = [name for name in names if name not in has]
    if unknown:
        raise LayoutError(f"{what} {unknown[0]!r} is no dimension: choose from {', '.join(has)}")


def free_attributes(attrs: Mapping[str, Any] | None, what: str) -> FrozenMap[str, Any]:
    """Attributes that say nothing of how values are stored: that has options of its own."""
    frozen = frozen_attributes(attrs, what)
    taken = [key for key in frozen if key in _ENCODING]
    if TimeUnits.is_time(frozen.get("units")):
        taken.append("units")
    if taken:
        message = (
            f"the attribute {taken[0]!r} of {what} says how values are stored: leave it out of"
            " attrs, and use the options dtype, units, calendar, fill_value, scale_factor and"
            " add_offset"
        )
        raise LayoutError(message)
    return frozen


def frozen_attributes(attrs: Mapping[str, Any] | None, what: str) -> FrozenMap[str, Any]:
    """Attributes as they are stored in JSON, numpy's scalars and arrays as plain values."""
    plain = {key: _plain(value) for key, value in (attrs or {}).items()}
    for key, value in plain.items():
        if not isinstance(key, str):
            raise LayoutError(f"an attribute of {what} is named {key!r}: use a string")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            message = (
                f"the attribute {key!r} of {what} is {value!r}, which JSON cannot hold: use"
                " strings, finite numbers, lists and mappings of these"
            )
            raise LayoutError(message) from error
    return FrozenMap(plain)


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _unicode(name: str, what: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        message = f"{what} is named {name!r}: it holds a lone surrogate; write it in valid Unicode"
        raise LayoutError(message) from error
    return name
