"""Start, step and tolerance of a regular dimension, in one of three kinds of number."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

import numpy as np

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.cf_time import (
    TimeUnits,
    nanoseconds,
    parse_duration,
    shortest_duration,
)

Point: TypeAlias = int | float | np.datetime64
Span: TypeAlias = int | float | np.timedelta64

_MAX = 2**63 - 1
_FIXED_UNITS = frozenset({"W", "D", "h", "m", "s", "ms", "us", "ns"})
_CALENDAR_UNITS = frozenset({"Y", "M"})
_TOO_FINE = re.compile(r"\.\d{7}")


def grid(start: object, step: object, tolerance: object) -> tuple[Point, Span, Span]:
    """What a user wrote, as three integers, three floats, or a time and two durations."""
    start, step, tolerance = (_of_numpy(value) for value in (start, step, tolerance))
    if isinstance(start, str | date | np.datetime64):
        off = "0s" if _is_zero(tolerance) else tolerance
        return _point(start), _duration(step, "step"), _duration(off, "tolerance")
    numbers = _number(start, "start"), _number(step, "step"), _number(tolerance, "tolerance")
    if all(isinstance(number, int) for number in numbers):
        return numbers
    return float(numbers[0]), float(numbers[1]), float(numbers[2])


def check_grid(start: Point, step: Span, tolerance: Span) -> None:
    """Refuse what no grid can have, and mixtures of kinds."""
    kinds = {_kind(value) for value in (start, step, tolerance)}
    if len(kinds) > 1:
        message = f"start {start!r}, step {step!r} and tolerance {tolerance!r} are of several kinds"
        raise LayoutError(f"{message}: make the dimension with regular(start, step, tolerance)")
    zero: Any = np.timedelta64(0, "s") if isinstance(step, np.timedelta64) else 0
    if not step > zero:
        raise LayoutError(f"the step of a regular dimension is {step}: it must be above zero")
    if not tolerance >= zero:
        raise LayoutError(f"the tolerance is {tolerance}: it must not be negative")
    if tolerance * 2 > step:
        message = (
            f"the tolerance {tolerance} is more than half of the step {step}: a label could belong"
            " to two cells; make it smaller"
        )
        raise LayoutError(message)


def check_grid_units(units: str | None, start: Point, step: Span, tolerance: Span) -> None:
    """Refuse units in which the grid points are no whole counts."""
    if units is None:
        return
    if not isinstance(start, np.datetime64):
        message = (
            f"units={units!r} are for times, and start is the number {start!r}: give start as a"
            " time, or other units as attrs={'units': ...}"
        )
        raise LayoutError(message)
    parsed = TimeUnits.parse(units)
    if parsed.instant(start) is None:
        raise _too_coarse(units, "start", str(start))
    for name, span in (("step", step), ("tolerance", tolerance)):
        if parsed.duration(np.timedelta64(span)) is None:
            raise _too_coarse(units, name, str(span))


def point_text(point: Point) -> str:
    """A start as it can be written in ``regular()``."""
    if not isinstance(point, np.datetime64):
        return repr(point)
    return repr(str(point).removesuffix(".000000").removesuffix("T00:00:00"))


def span_text(span: Span) -> str:
    """A step as it can be written in ``regular()``."""
    if not isinstance(span, np.timedelta64):
        return repr(span)
    nanos = nanoseconds(span)
    units = (("h", 3_600 * 10**9), ("min", 60 * 10**9), ("s", 10**9), ("us", 1_000), ("ns", 1))
    name, size = next((name, size) for name, size in units if nanos % size == 0)
    return repr(f"{nanos // size}{name}")


def _of_numpy(value: object) -> object:
    """Times and durations of pandas, which have nanoseconds, as numpy's."""
    for name in ("to_datetime64", "to_timedelta64"):
        if hasattr(value, name):
            return getattr(value, name)()
    return value


def _kind(value: object) -> str:
    match value:
        case np.datetime64() | np.timedelta64():
            return "time"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case _:
            return type(value).__name__


def _point(start: str | date | np.datetime64) -> np.datetime64:
    match start:
        case str():
            return _point(_parsed(start))
        case datetime():
            in_utc = start.astimezone(UTC).replace(tzinfo=None) if start.tzinfo else start
            return np.datetime64(in_utc, "us")
        case date():
            return np.datetime64(start, "us")
        case _:
            return _instant(start)


def _parsed(text: str) -> datetime:
    message = (
        f"the start {text!r} is no time: write it as in '2024-01-01' or '2024-01-01T06:00'"
        " (numpy.datetime64 for nanoseconds)"
    )
    if _TOO_FINE.search(text):
        raise LayoutError(message)
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise LayoutError(message) from error


def _instant(start: np.datetime64) -> np.datetime64:
    unit, _ = np.datetime_data(start.dtype)
    if np.isnat(start) or unit not in _FIXED_UNITS | _CALENDAR_UNITS:
        raise LayoutError(f"the start {start!r} is no time: give one in nanoseconds or coarser")
    in_microseconds = start.astype("datetime64[us]")
    return start if in_microseconds != start else in_microseconds


def _duration(value: object, what: str) -> np.timedelta64:
    match value:
        case str():
            return parse_duration(value)
        case timedelta():
            return np.timedelta64(value, "us")
        case np.timedelta64() if np.datetime_data(value.dtype)[0] in _FIXED_UNITS:
            if not np.isnat(value):
                return shortest_duration(nanoseconds(value))
    message = (
        f"the {what} {value!r} is no duration: start is a time, so write it as in '1h', or as a"
        " timedelta of a fixed length (not months or years)"
    )
    raise LayoutError(message)


def _number(value: object, what: str) -> int | float:
    number = value.item() if isinstance(value, np.number) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        message = f"the {what} {value!r} is no number: start, step and tolerance are of one kind"
        raise LayoutError(message)
    if not math.isfinite(number) or (isinstance(number, int) and abs(number) > _MAX):
        raise LayoutError(f"the {what} {value!r} is out of range: give a finite number of 64 bits")
    return number


def _is_zero(value: object) -> bool:
    return isinstance(value, int | float) and value == 0


def _too_coarse(units: str, name: str, value: str) -> LayoutError:
    return LayoutError(
        f"the {name} {value} is no whole count of {units!r}: choose finer units, or leave them out"
    )
