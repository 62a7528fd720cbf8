"""Bad rows of a batch for people: how many, why, and the first examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from icechunk_stream.errors import BadRowsError
from icechunk_stream.stream.converting import Unstorable
from icechunk_stream.stream.reasons import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from icechunk_stream.stream.axes import Axis

_EXAMPLES = 5
_SHOWN = 60
_UNSTORABLE = frozenset(map(int, Unstorable))
_STORABLE = "correct the values, or store them in a wider type"


@dataclass(frozen=True, slots=True)
class BadGroup:
    """Rows that are bad for one reason; ``examples`` are what the first of them have."""

    column: str
    reason: Reason | Unstorable
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        rows = "1 row" if self.count == 1 else f"{self.count} rows"
        what = "label" if isinstance(self.reason, Reason) else "value"
        told = f"{rows} whose {what} in the column {self.column!r} {self.reason.text}"
        if not self.examples:
            return told
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{told} ({', '.join(self.examples)}{more})"

    @property
    def advice(self) -> str:
        return self.reason.advice if isinstance(self.reason, Reason) else _STORABLE

    def joined(self, other: Self) -> Self:
        """With the rows of another part of the batch."""
        examples = (*self.examples, *other.examples)[:_EXAMPLES]
        return replace(self, count=self.count + other.count, examples=examples)


@dataclass(frozen=True, slots=True)
class BadRows:
    """The bad rows of a batch by column and reason; each row counts once."""

    groups: tuple[BadGroup, ...] = ()

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def late(self) -> int:
        """How many of them are bad for coming late."""
        return sum(group.count for group in self.groups if group.reason == Reason.LATE_LABEL)

    def with_column(self, table: pa.Table, axis: Axis, reasons: NDArray[np.uint8]) -> BadRows:
        """With the rows of a table that have no place along an axis."""
        return self.with_reasons(axis.column, table.column(axis.column), reasons)

    def with_reasons(
        self, column: str, values: pa.Array | pa.ChunkedArray, reasons: NDArray[np.uint8]
    ) -> BadRows:
        """With the rows of a column that have a ``Reason`` or are ``Unstorable``."""
        if not reasons.any():
            return self
        return self.joined(BadRows(tuple(_groups(column, values, reasons))))

    def joined(self, other: BadRows) -> BadRows:
        """With those of another part of the batch."""
        groups = {(group.column, group.reason): group for group in self.groups}
        for group in other.groups:
            known = groups.get((group.column, group.reason))
            groups[group.column, group.reason] = known.joined(group) if known else group
        return BadRows(tuple(groups.values()))

    def refuse(self) -> None:
        """Fail the batch if there are any.

        Raises:
            BadRowsError: with the counts, the reasons, and the first labels.
        """
        if self.groups:
            raise BadRowsError(str(self))

    def __str__(self) -> str:
        rows = "1 row has" if self.count == 1 else f"{self.count} rows have"
        found = "; ".join(map(str, self.groups))
        advice = "; ".join(dict.fromkeys(group.advice for group in self.groups))
        return f"{rows} no place in the arrays: {found}. What to do: {advice}"


def label_texts(labels: pa.Array | pa.ChunkedArray) -> tuple[str, ...]:
    """Labels as people read them, times in UTC."""
    if pa.types.is_timestamp(labels.type):
        labels = labels.cast(pa.timestamp(labels.type.unit))
    texts = labels.cast(pa.string()).to_pylist()
    return tuple("null" if text is None else _short(text) for text in texts)


def reason_of(number: int) -> Reason | Unstorable:
    """What a number in a column of reasons stands for."""
    return Unstorable(number) if number in _UNSTORABLE else Reason(number)


def _groups(
    column: str, values: pa.Array | pa.ChunkedArray, reasons: NDArray[np.uint8]
) -> list[BadGroup]:
    groups = []
    for number in np.unique(reasons[reasons != Reason.FINE]).tolist():
        reason = reason_of(number)
        rows = np.flatnonzero(reasons == number)
        examples = label_texts(values.take(pa.array(rows[:_EXAMPLES])))
        groups.append(BadGroup(column, reason, len(rows), _telling(reason, examples)))
    return groups


def _telling(reason: Reason | Unstorable, examples: tuple[str, ...]) -> tuple[str, ...]:
    """A null is a null: no example says more."""
    return () if reason in {Reason.NULL_LABEL, Reason.NAN_LABEL} else examples


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
