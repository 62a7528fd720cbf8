"""Which manifests of a cell should be one, for those who read them, and where to cut large ones.

Straight cuts part manifests into neighbours. Neighbours join until they are full, and what is full
is left alone, so that doing it again finds nothing to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.intp]
    Boxes = npt.NDArray[np.int64]
    Sizes = npt.NDArray[np.int64]

# What straight cuts part badly is laid out anew, up to so many full manifests at once.
ANEW = 8
_DEEPEST = 100


def regrouped(boxes: Boxes, sizes: Sizes, most: int) -> list[Numbers]:
    """Manifests by number, in groups that should be one of ``most`` references or more.

    A group that would be twice as large, or more, is one to ``cut``.
    """
    return _parted(np.arange(len(sizes)), boxes, sizes, most, 0)


def cut(indices: npt.NDArray[np.uint32], most: int) -> list[Numbers]:
    """Rows in parts of ``most`` or more, whose boxes do not overlap."""
    return _cut(indices, np.arange(len(indices)), most, 0)


def _parted(numbers: Numbers, boxes: Boxes, sizes: Sizes, most: int, depth: int) -> list[Numbers]:
    total = int(sizes[numbers].sum())
    if len(numbers) == 1 or total < most:
        return [numbers]
    is_small = total <= ANEW * most
    slabs = _slabs(numbers, boxes)
    if len(slabs) == 1 or depth == _DEEPEST:
        return [numbers] if is_small or len(slabs) == 1 else list(numbers[:, None])
    found = _in_row(slabs, boxes, sizes, most, depth)
    return [numbers] if is_small and len(found) > -(-total // most) + 1 else found


def _in_row(
    slabs: Sequence[Numbers], boxes: Boxes, sizes: Sizes, most: int, depth: int
) -> list[Numbers]:
    """Slabs side by side: small ones join, until they are full or a full one comes."""
    done: list[Numbers] = []
    open_: list[Numbers] = []
    is_one = False
    for slab in slabs:
        is_full = sizes[slab].sum() >= most
        if is_full and open_:
            _close(done, open_, joins=is_one)
        if is_full:
            inner = _parted(slab, boxes, sizes, most, depth + 1)
            done += inner
            is_one = len(inner) == 1
        else:
            open_.append(slab)
            if sum(int(sizes[each].sum()) for each in open_) >= most:
                _close(done, open_, joins=False)
                is_one = True
    if open_:
        _close(done, open_, joins=False)
    return done


def _close(done: list[Numbers], open_: list[Numbers], *, joins: bool) -> None:
    """Small slabs become a group, or a part of the full one before them."""
    before = [done.pop()] if joins else []
    done.append(np.concatenate([*before, *open_]))
    open_.clear()


def _slabs(numbers: Numbers, boxes: Boxes) -> list[Numbers]:
    """Parts between which the first axis that can be cut is cut."""
    for axis in range(boxes.shape[1]):
        low, high = boxes[numbers, axis].T
        order = np.argsort(low, kind="stable")
        begins = low[order][1:] >= np.maximum.accumulate(high[order])[:-1]
        if begins.any():
            return np.split(numbers[order], np.flatnonzero(begins) + 1)
    return [numbers]


def _cut(indices: npt.NDArray[np.uint32], rows: Numbers, most: int, axis: int) -> list[Numbers]:
    """Stretches along an axis; those that are still too large are cut along the next one."""
    if len(rows) < 2 * most or axis == indices.shape[1]:
        return [rows]
    at = indices[rows, axis]
    order = np.argsort(at, kind="stable")
    parts = np.split(rows[order], _bounds(at[order], most))
    return [each for part in parts for each in _cut(indices, part, most, axis + 1)]


def _bounds(at: npt.NDArray[np.uint32], most: int) -> list[int]:
    """Where parts of sorted values begin: no value is in two of them."""
    ends = np.flatnonzero(at[1:] != at[:-1]) + 1
    bounds: list[int] = []
    first = 0
    while True:
        place = int(np.searchsorted(ends, first + most))
        if place == len(ends) or len(at) - int(ends[place]) < most:
            return bounds
        first = int(ends[place])
        bounds.append(first)
