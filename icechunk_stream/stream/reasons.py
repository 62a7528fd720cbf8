"""Why a row has no place on an axis: numbers for columns, texts for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Reason(IntEnum):
    """Why the label of a row has no index; FINE says that it has one.

    The numbers differ from those of ``Unstorable``: both may stand in one column.
    """

    FINE = 0
    NULL_LABEL = 16
    NAN_LABEL = 17
    UNREADABLE_LABEL = 18
    OFF_GRID = 19
    BEFORE_START = 20
    BEYOND_GROWTH = 21
    UNKNOWN_LABEL = 22
    LATE_LABEL = 23

    @property
    def text(self) -> str:
        """What is the matter, to go on after "the label"."""
        return _TEXTS[self]

    @property
    def advice(self) -> str:
        """What a user can do about it."""
        return _ADVICE[self]


_TEXTS = {
    Reason.FINE: "has its place",
    Reason.NULL_LABEL: "is null",
    Reason.NAN_LABEL: "is NaN",
    Reason.UNREADABLE_LABEL: "does not fit the type or the units of the coordinate array",
    Reason.OFF_GRID: "lies between two grid points",
    Reason.BEFORE_START: "lies before the start of the dimension",
    Reason.BEYOND_GROWTH: "lies beyond what one batch may add to the dimension",
    Reason.UNKNOWN_LABEL: "is not among those of the fixed dimension",
    Reason.LATE_LABEL: "is new and lies before the last one",
}
_ADVICE = {
    Reason.FINE: "",
    Reason.NULL_LABEL: "give every row a label",
    Reason.NAN_LABEL: "give every row a label",
    Reason.UNREADABLE_LABEL: "cast the column, or write to an array of a wider type",
    Reason.OFF_GRID: "round the labels, or give the dimension a tolerance",
    Reason.BEFORE_START: "start the dimension earlier",
    Reason.BEYOND_GROWTH: "look for a wrong clock, raise max_growth, or start the dimension later",
    Reason.UNKNOWN_LABEL: "correct the labels, or make the dimension with append()",
    Reason.LATE_LABEL: "choose on_late='append' or 'quarantine'",
}


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The index of every row along an axis, and why a row has none (its index is then -1)."""

    indices: NDArray[np.int64]
    reasons: NDArray[np.uint8]
