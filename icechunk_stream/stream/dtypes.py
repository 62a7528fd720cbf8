"""Names of the types that arrays are made with."""

from __future__ import annotations

import numpy as np

from icechunk_stream.errors import LayoutError

STRING = "string"
TIME = "datetime64"
_TEXT = ("string", "str", "utf8", "object")


def check_dtype(dtype: object, what: str) -> str | None:
    """The name of a type as layouts keep it: numpy's, ``string``, or ``datetime64`` for CF times.

    Raises:
        LayoutError: no array of the sink holds it.
    """
    if dtype is None:
        return None
    if dtype is str or (isinstance(dtype, str) and dtype in _TEXT):
        return STRING
    try:
        found = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError as error:
        raise _unknown(dtype, what) from error
    return _name(found, what)


def _name(dtype: np.dtype[np.generic], what: str) -> str:
    match dtype.kind:
        case "b" | "i" | "u" | "f" if dtype.itemsize <= np.dtype("f8").itemsize:
            return str(dtype.newbyteorder("=").name)
        case "U" | "T" | "O":
            return STRING
        case "M":
            return TIME
        case _:
            raise _unknown(dtype, what)


def _unknown(dtype: object, what: str) -> LayoutError:
    return LayoutError(
        f"{what} has the dtype {dtype!r}, which the sink does not write: use bool, an integer or"
        " floating point type of at most 64 bits, 'string', or 'datetime64'"
    )
