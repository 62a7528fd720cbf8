"""Axes as a plain-Python dictionary of labels, and the label types that tests draw."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from icechunk_stream.stream.cf_time import TimeUnits
from icechunk_stream.stream.encodings import Encoding, Text, Times
from icechunk_stream.stream.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from icechunk_stream.stream.dimensions import OnLate

EPOCH = datetime.fromisoformat("1970-01-01")
TEN_YEARS = timedelta(days=3650)


@dataclass(frozen=True)
class Kind:
    """Labels of one type: the columns' type, how they are stored, and a strategy."""

    column: pa.DataType
    encoding: Encoding
    labels: st.SearchStrategy[Any]

    def to_stored(self, label: Any) -> Any:
        match label:
            case datetime() if label.tzinfo:
                return self.to_stored(label.astimezone(UTC).replace(tzinfo=None))
            case datetime():
                return (label - EPOCH) // timedelta(microseconds=1)
            case date():
                return (label - EPOCH.date()) // timedelta(microseconds=1)
            case _:
                return label

    def array(self, labels: Iterable[Any]) -> pa.Array:
        return pa.array(list(labels), self.column)


def number(dtype: str, fill: float | None = None) -> Encoding:
    return Encoding(np.dtype(dtype), fill=fill)


def of_times(units: str, dtype: str = "int64") -> Encoding:
    return Encoding(np.dtype(dtype), Times(TimeUnits.parse(units)))


TEXTS = Encoding(np.dtypes.StringDType(), Text())
TIMES = of_times("microseconds since 1970-01-01")
_TIME = st.datetimes(EPOCH - TEN_YEARS, EPOCH + TEN_YEARS)
_DATE = st.dates((EPOCH - TEN_YEARS).date(), (EPOCH + TEN_YEARS).date())
_INT = st.integers(-20, 20)
KINDS = {
    "int64": Kind(pa.int64(), number("int64"), st.integers(-(2**63), 2**63 - 1) | _INT),
    "int16": Kind(pa.int16(), number("int16"), _INT),
    "int64 in int16": Kind(pa.int64(), number(">i2"), _INT),
    "float64": Kind(pa.float64(), number("float64"), st.floats() | _INT.map(float)),
    "float64, NaN filled": Kind(pa.float64(), number("float64", 0.0), st.floats(-5, 5)),
    "float32": Kind(pa.float32(), number("float32"), st.floats(-5, 5, width=32)),
    "text": Kind(pa.string(), TEXTS, st.text(max_size=3)),
    "text of fixed length": Kind(
        pa.large_string(), Encoding(np.dtype("U4"), Text()), st.text("abcä", max_size=4)
    ),
    "time": Kind(pa.timestamp("us"), TIMES, _TIME),
    "time in UTC": Kind(
        pa.timestamp("us", "UTC"), TIMES, _TIME.map(lambda time: time.replace(tzinfo=UTC))
    ),
    "date": Kind(pa.date32(), TIMES, _DATE),
}


def is_nan(label: Any) -> bool:
    return isinstance(label, float) and math.isnan(label)


@dataclass
class Model:
    """An axis that appends, as a list of labels and a dictionary of their indices."""

    on_late: OnLate = "append"
    max_growth: int = 100_000
    has_order: bool = True
    labels: list[Any] = field(default_factory=list)

    def late(self, labels: Iterable[Any]) -> list[Any]:
        ordered = self.has_order and self.labels == sorted(set(self.labels))
        if self.on_late == "append" or not ordered or not self.labels:
            return []
        return [label for label in labels if label < self.labels[-1]]

    def new(self, batch: Iterable[Any]) -> list[Any]:
        """The labels of a batch that the axis does not have, sorted."""
        labels = {label for label in batch if label is not None and not is_nan(label)}
        return sorted(labels - set(self.labels))

    def grow(self, batch: Iterable[Any]) -> list[Any]:
        """Add the new labels of a batch, unless they are late or too many; which they were."""
        new = self.new(batch)
        late = self.late(new)
        kept = [label for label in new if label not in late]
        grown = kept if len(kept) <= self.max_growth else []
        self.labels += grown
        return grown

    def place(self, label: Any) -> tuple[int, Reason]:
        if label is None:
            return -1, Reason.NULL_LABEL
        if is_nan(label):
            return -1, Reason.NAN_LABEL
        if label in self.labels:
            return self.labels.index(label), Reason.FINE
        return -1, Reason.LATE_LABEL if self.late([label]) else Reason.BEYOND_GROWTH
