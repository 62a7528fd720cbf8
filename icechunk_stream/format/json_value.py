"""JSON-like values: the only ones that metadata may hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from icechunk_stream.errors import InvalidInputError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MAX_DEPTH = 128
MAX_ITEMS = 1_000_000
LOWEST_INT = -(2**63)
HIGHEST_INT = 2**64 - 1


def plain_json(value: object, where: str, max_depth: int = MAX_DEPTH) -> Json:
    """A copy of plain dicts, lists and scalars; raises ``InvalidInputError`` for anything else.

    Keys are in the order of their UTF-8 bytes, as the format wants them.
    """
    match value:
        case None | bool():
            return value
        case int():
            return _plain_int(value, where)
        case float():
            return _plain_float(value, where)
        case str():
            return plain_text(value, where)
        case list() | tuple() | Mapping() if max_depth <= 0:
            raise InvalidInputError(f"{where} is nested too deeply; flatten it")
        case list() | tuple():
            return [plain_json(item, where, max_depth - 1) for item in value]
        case Mapping():
            keys = sorted(plain_text(key, f"a key of {where}") for key in value)
            return {key: plain_json(value[key], where, max_depth - 1) for key in keys}
        case _:
            raise _not_json(where, f"a {type(value).__name__}", "convert it to text or a number")


def plain_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _not_json(where, f"the {type(value).__name__} {value!r}", "use a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _not_json(where, "a surrogate", "use valid Unicode") from None
    return str(value)


def _plain_int(value: int, where: str) -> int:
    if LOWEST_INT <= value <= HIGHEST_INT:
        return int(value)
    bits = value.bit_length()
    raise InvalidInputError(f"{where} holds an integer of {bits} bits, more than the format's 64")


def _plain_float(value: float, where: str) -> float:
    if math.isfinite(value):
        return float(value)
    raise _not_json(where, str(value), "use null or text")


def _not_json(where: str, what: str, advice: str) -> InvalidInputError:
    return InvalidInputError(f"{where} holds {what}, which is not JSON; {advice}")
