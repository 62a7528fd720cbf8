"""Dimensions of a layout: where a label of a row lies along an axis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from icechunk_stream.stream.cf_time import check_units
from icechunk_stream.stream.checks import check_choice, check_column, check_length, free_attributes
from icechunk_stream.stream.dtypes import check_dtype
from icechunk_stream.stream.frozen import FrozenMap
from icechunk_stream.stream.grids import check_grid, check_grid_units, grid, point_text, span_text
from icechunk_stream.stream.labels import arrow_labels, check_labels

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, timedelta

    import pyarrow as pa

    from icechunk_stream.stream.grids import Point, Span

OnLate: TypeAlias = Literal["fail", "append", "quarantine"]
# Labels in a chunk of a coordinate array: a batch rewrites only the last one.
LABELS_PER_CHUNK = 16_384


@dataclass(frozen=True, slots=True)
class Coordinate:
    """The coordinate array of a dimension, to be made; labels decide what None leaves open."""

    column: str | None = None
    dtype: str | None = None
    units: str | None = None
    calendar: str | None = None
    chunk: int = LABELS_PER_CHUNK
    attrs: Mapping[str, Any] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        what = "a dimension"
        if self.column is not None:
            check_column(self.column, what)
        if self.units is not None:
            check_units(self.units)
        check_length(self.chunk, "the chunk of a coordinate")
        object.__setattr__(self, "dtype", check_dtype(self.dtype, what))
        object.__setattr__(self, "attrs", free_attributes(self.attrs, what))


@dataclass(frozen=True, slots=True)
class Regular:
    """Labels ``start + n * step``: the index of a row is arithmetic, wherever the row comes.

    ``start``, ``step`` and ``tolerance`` are all integers, all floats, or a ``datetime64`` with two
    ``timedelta64`` in microseconds, or nanoseconds where that is needed.
    """

    start: Point
    step: Span
    tolerance: Span
    coordinate: Coordinate = field(default_factory=Coordinate)

    def __post_init__(self) -> None:
        check_grid(self.start, self.step, self.tolerance)
        check_grid_units(self.coordinate.units, self.start, self.step, self.tolerance)

    @property
    def is_time(self) -> bool:
        return isinstance(self.start, np.datetime64)

    def __repr__(self) -> str:
        tolerance = f", tolerance={span_text(self.tolerance)}" if self.tolerance else ""
        return f"regular({point_text(self.start)}, {span_text(self.step)}{tolerance})"


@dataclass(frozen=True, slots=True)
class Append:
    """Labels in the order in which they came; those of one batch are sorted.

    ``on_late`` says what becomes of a new time or number below the last label. Text has no order
    that matters: a new name is never late.
    """

    on_late: OnLate = "fail"
    coordinate: Coordinate = field(default_factory=Coordinate)

    def __post_init__(self) -> None:
        check_choice(self.on_late, ("fail", "append", "quarantine"), "on_late")

    def __repr__(self) -> str:
        return f"append(on_late={self.on_late!r})"


@dataclass(frozen=True, slots=True)
class Fixed:
    """Labels that are all known; None means those of the coordinate array that exists."""

    labels: pa.Array | None = field(default=None, hash=False)
    coordinate: Coordinate = field(default_factory=Coordinate)

    def __post_init__(self) -> None:
        if self.labels is not None:
            check_labels(self.labels)

    def __repr__(self) -> str:
        if self.labels is None:
            return "fixed()"
        first, last, count = self.labels[0], self.labels[-1], len(self.labels)
        return f"fixed(<{count} labels of {self.labels.type}, {first} ... {last}>)"


Dimension: TypeAlias = Regular | Append | Fixed


def regular(
    start: float | str | date | np.datetime64,
    step: float | str | timedelta | np.timedelta64,
    tolerance: float | str | timedelta | np.timedelta64 = 0,
    *,
    column: str | None = None,
    units: str | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Regular:
    """A dimension whose labels are ``start + n * step``; it grows at its end.

    Args:
        start: The first label: a number, a date or time (UTC where it has no zone), or its text as
            in "2024-01-01" or "2024-01-01T06:00".
        step: From one label to the next: a number, a duration, or its text as in "1h".
        tolerance: How far off its grid point a label may be, at most half of a step.
        column: The column of the rows with the labels, if its name is not the dimension's.
        units: Units of time of the coordinate array, as in "hours since 2000-01-01", if it is made;
            otherwise microseconds since 1970.
        attrs: Attributes of the coordinate array, if it is made.
    """
    coordinate = Coordinate(column, units=units, attrs=attrs or {})
    return Regular(*grid(start, step, tolerance), coordinate)


def append(
    on_late: OnLate = "fail",
    *,
    dtype: object = None,
    column: str | None = None,
    units: str | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Append:
    """A dimension to whose end new labels go.

    Args:
        on_late: For a new label below the last one: "fail" the batch, "append" it nevertheless (the
            coordinate is then no longer sorted), or make its rows bad rows ("quarantine").
        dtype: Type of the coordinate array, if it is made; otherwise that of the column.
        column: The column of the rows with the labels, if its name is not the dimension's.
        units: Units of time of the coordinate array, if it is made.
        attrs: Attributes of the coordinate array, if it is made.
    """
    return Append(
        on_late, Coordinate(column, check_dtype(dtype, "a dimension"), units, attrs=attrs or {})
    )


def fixed(
    labels: Any = None,  # noqa: ANN401 - whatever numpy or Arrow make an array of
    *,
    dtype: object = None,
    column: str | None = None,
    units: str | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Fixed:
    """A dimension whose labels are all known: rows with other labels are bad rows.

    Args:
        labels: The labels in their order; left out where the coordinate array exists already.
        dtype: Type of the coordinate array, if it is made; otherwise that of the labels.
        column: The column of the rows with the labels, if its name is not the dimension's.
        units: Units of time of the coordinate array, if it is made.
        attrs: Attributes of the coordinate array, if it is made.
    """
    known = None if labels is None else arrow_labels(labels)
    return Fixed(
        known, Coordinate(column, check_dtype(dtype, "a dimension"), units, attrs=attrs or {})
    )
