"""Times in files: microseconds since 1970-01-01 UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What datetime can hold with a year to spare; anything later is damage, not a date.
MAX_MICROS = int((datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) / timedelta(microseconds=1))


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def to_micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def to_text(time: datetime) -> str:
    """RFC 3339 with as many digits as the time needs: none, milliseconds or microseconds."""
    micros = time.microsecond
    places = "seconds" if micros == 0 else "milliseconds" if micros % 1000 == 0 else "microseconds"
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=places) + "Z"
