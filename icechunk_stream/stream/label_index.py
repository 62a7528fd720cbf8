"""Where labels lie: sorted runs that are extended batch by batch, and never sorted again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.errors import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indices: TypeAlias = NDArray[np.int64]

MISSING = -1
# A run is at least so many times as long as the next: few runs to search, and few merges.
_RATIO = 4
# Hashing a whole run of texts takes as long as bisecting it for a part of as many labels.
_HASHED = 4


@dataclass(frozen=True, slots=True)
class _Run:
    """Labels in ascending order, and the index of each along the axis."""

    labels: pa.Array
    indices: Indices

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, slots=True)
class LabelIndex:
    """Finds labels among those of an axis; ``ascending`` tells whether the axis is in order."""

    runs: tuple[_Run, ...] = ()
    ascending: bool = True

    @classmethod
    def build(cls, labels: pa.Array) -> Self:
        """Index the labels of a whole axis; NaN is never found.

        Raises:
            InvalidInputError: a label is there twice.
        """
        if not len(labels):
            return cls()
        if _ascends(labels):
            return cls((_Run(labels, np.arange(len(labels))),))
        order = pc.sort_indices(labels)
        run = _Run(labels.take(order), order.to_numpy().astype(np.int64))
        _refuse_twins(run)
        return cls((run,), ascending=False)

    def find(self, labels: pa.Array) -> Indices:
        """The index of each label, or MISSING. The labels are of the axis' type, none is null."""
        found = np.full(len(labels), MISSING, dtype=np.int64)
        for run in self.runs:
            missing = np.flatnonzero(found == MISSING)
            if missing.size:
                found[missing] = _find_in(run, _take(labels, missing))
        return found

    def extended(self, labels: pa.Array, first: int) -> Self:
        """With new labels, in ascending order and unknown so far, at the indices from ``first``."""
        if not len(labels):
            return self
        ascending = self.ascending and self._lies_below(labels[0].as_py())
        runs = (*self.runs, _Run(labels, np.arange(first, first + len(labels))))
        return type(self)(_merged(runs), ascending=ascending)

    def _lies_below(self, label: object) -> bool:
        return all(run.labels[-1].as_py() < label for run in self.runs)


def _ascends(labels: pa.Array) -> bool:
    count = len(labels) - 1
    return bool(pc.all(pc.less(labels.slice(0, count), labels.slice(1)), min_count=0).as_py())


def _refuse_twins(run: _Run) -> None:
    same = pc.equal(run.labels.slice(0, len(run) - 1), run.labels.slice(1))
    twins = np.flatnonzero(same.to_numpy(zero_copy_only=False))
    if twins.size:
        first, second = sorted(run.indices[twins[0] : twins[0] + 2].tolist())
        message = f"the label {run.labels[twins[0]]} is there twice, at {first} and {second}"
        raise InvalidInputError(f"{message}: rows could belong to either; make labels distinct")


def _find_in(run: _Run, labels: pa.Array) -> Indices:
    if pa.types.is_string(labels.type) and _HASHED * len(labels) > len(run):
        at = pc.index_in(labels, value_set=run.labels).fill_null(MISSING).to_numpy()
        return np.where(at == MISSING, MISSING, run.indices[at])
    at = np.minimum(_search(run.labels, labels), len(run) - 1)
    same = pc.equal(_take(run.labels, at), labels).to_numpy(zero_copy_only=False)
    return np.where(same, run.indices[at], MISSING)


def _merged(runs: tuple[_Run, ...]) -> tuple[_Run, ...]:
    while len(runs) > 1 and len(runs[-2]) < _RATIO * len(runs[-1]):
        runs = (*runs[:-2], _merge(runs[-2], runs[-1]))
    return runs


def _merge(left: _Run, right: _Run) -> _Run:
    at = _search(left.labels, right.labels)
    order = np.insert(np.arange(len(left)), at, np.arange(len(left), len(left) + len(right)))
    labels = pa.concat_arrays([left.labels, right.labels])
    return _Run(_take(labels, order), np.concatenate([left.indices, right.indices])[order])


def _search(ascending: pa.Array, labels: pa.Array) -> Indices:
    """How many of the ascending ones lie below each label."""
    if pa.types.is_string(ascending.type):
        return _search_text(ascending, labels)
    at: Indices = np.searchsorted(ascending.to_numpy(), labels.to_numpy())
    return at


def _search_text(ascending: pa.Array, labels: pa.Array) -> Indices:
    """Bisection, a step for all labels at once: Arrow compares text, numpy would copy all of it."""
    low = np.zeros(len(labels), dtype=np.int64)
    high = np.full(len(labels), len(ascending), dtype=np.int64)
    for _ in range(len(ascending).bit_length()):
        middle = (low + high) // 2
        probed = _take(ascending, np.minimum(middle, len(ascending) - 1))
        below = pc.less(probed, labels).to_numpy(zero_copy_only=False) & (low < high)
        low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
    return low


def _take(labels: pa.Array, indices: Indices) -> pa.Array:
    return labels.take(pa.array(indices))
