"""CF units of time: counts of a fixed duration since a date, in exact integers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

import numpy as np

from icechunk_stream.errors import LayoutError

# Nanoseconds of the units that UDUNITS, and so xarray, knows by these names.
_NANOS = {
    "nanosecond": 1,
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": 1_000_000_000,
    "minute": 60_000_000_000,
    "hour": 3_600_000_000_000,
    "day": 86_400_000_000_000,
    "week": 604_800_000_000_000,
}
_SHORT = {
    "ns": "nanosecond",
    "us": "microsecond",
    "ms": "millisecond",
    "msec": "millisecond",
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
    "W": "week",
}
_SINCE = re.compile(r"\s*(\w+)\s+since\s+(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[T\s]+(\S.*?))?\s*")
_DURATION = re.compile(r"\s*(\d*)\s*([A-Za-z]+)\s*")
_SHORT_YEAR = re.compile(r"since\s+\d{1,3}-")
_LONE_DIGIT = re.compile(r"(?<![\d.])(\d)(?!\d)")
_NUMPY = {"m": "min", "D": "d"}
GREGORIAN = frozenset({"standard", "gregorian", "proleptic_gregorian"})


@dataclass(frozen=True, slots=True)
class TimeUnits:
    """Units ``<unit> since <date>``: nanoseconds of a count, and of the date since 1970 in UTC."""

    text: str
    nanos: int
    epoch: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the ``units`` attribute of a time coordinate.

        Raises:
            LayoutError: it is not of the form "hours since 2000-01-01 12:00".
        """
        match = _SINCE.fullmatch(text)
        nanos = None if match is None else _unit_nanos(match[1])
        if match is None or nanos is None or nanos > _NANOS["day"]:
            raise _bad_units(text)
        return cls(text, nanos, _epoch(text, match))

    @classmethod
    def is_time(cls, text: object) -> bool:
        """Whether a ``units`` attribute is one of dates, as "seconds since 1970-01-01" is."""
        match = _SINCE.fullmatch(text) if isinstance(text, str) else None
        return match is not None and _unit_nanos(match[1]) is not None

    def duration(self, value: np.timedelta64) -> int | None:
        """How many counts a duration is; None where it is no whole number of them."""
        count, rest = divmod(nanoseconds(value), self.nanos)
        return None if rest else count

    def instant(self, value: np.datetime64) -> int | None:
        """The count of a point in time; None where it lies between two."""
        count, rest = divmod(nanoseconds(value) - self.epoch, self.nanos)
        return None if rest else count


def check_units(text: str) -> None:
    """Refuse units of time with which no array is to be made: xarray warns of a short year."""
    TimeUnits.parse(text)
    if _SHORT_YEAR.search(text):
        raise LayoutError(f"the year in {text!r} is short: write it with four digits")


def nanoseconds(value: np.datetime64 | np.timedelta64) -> int:
    """Nanoseconds of a duration, or since 1970, of any size."""
    unit, count = np.datetime_data(value.dtype)
    return int(value.astype(np.int64)) * count * _NANOS[_SHORT[_NUMPY.get(unit, unit)]]


def arrow_nanos(unit: str) -> int:
    """Nanoseconds of one tick of an Arrow timestamp."""
    return _NANOS[_SHORT[unit]]


def parse_duration(text: str) -> np.timedelta64:
    """A step as people write it: "1h", "15 min", "6 hours", "day"."""
    match = _DURATION.fullmatch(text)
    nanos = None if match is None else _unit_nanos(match[2])
    if match is None or nanos is None:
        known = ", ".join(("s", "min", "h", "d", *(f"{name}s" for name in _NANOS)))
        raise LayoutError(f"no duration is in {text!r}: write a number and one of {known}")
    return shortest_duration(nanos * int(match[1] or 1))


def shortest_duration(nanos: int) -> np.timedelta64:
    """A duration in microseconds where that is exact, else in nanoseconds."""
    if nanos % 1_000:
        return np.timedelta64(nanos, "ns")
    return np.timedelta64(nanos // 1_000, "us")


def _unit_nanos(name: str) -> int | None:
    lower = name.lower()
    singular = lower.removesuffix("s") if len(lower) > 2 else lower  # noqa: PLR2004 - us, ms, ns
    return _NANOS.get(_SHORT.get(singular, singular))


def _epoch(text: str, match: re.Match[str]) -> int:
    year, month, day = (int(match[number]) for number in (2, 3, 4))
    clock = _LONE_DIGIT.sub(r"0\1", match[5] or "00:00").replace(" ", "").replace("UTC", "Z")
    clock = "00:00Z" if clock == "Z" else clock
    try:
        date = datetime.fromisoformat(f"{year:04}-{month:02}-{day:02}T{clock}")
    except ValueError as error:
        raise _bad_units(text) from error
    in_utc = date.astimezone(UTC) if date.tzinfo else date
    return nanoseconds(np.datetime64(in_utc.replace(tzinfo=None), "us"))


def _bad_units(text: str) -> LayoutError:
    return LayoutError(
        f"{text!r} are no units of time: write them as in 'seconds since 1970-01-01' or"
        " 'hours since 2000-01-01 12:00'"
    )
