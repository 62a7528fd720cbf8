"""Boxes of chunk indices, and whether two of them overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Boxes = npt.NDArray[np.int64]
    Groups = npt.NDArray[np.intp]

# Straight cuts part what splitting and appending make; what they cannot part is compared in pairs.
_MAX_CUTS = 64
_MAX_PAIRS = 2**24


def inside(
    indices: npt.NDArray[np.integer], counts: Sequence[int] | npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Which indices a grid of so many chunks along every axis has.

    Axis by axis: an array of numpy's for each row costs more than the comparison.
    """
    found = np.ones(len(indices), np.bool_)
    for axis, count in enumerate(counts):
        found &= indices[:, axis] < np.uint64(count)
    return found


def overlap(extents: npt.NDArray[np.uint32]) -> bool:
    """Whether two boxes share an index, or are too entangled to tell.

    The axes of ``extents`` are box, dimension, and from or to.
    """
    count, rank, _ = extents.shape
    if not rank:
        return bool(count > 1)
    boxes, groups = extents.astype(np.int64), np.zeros(count, np.intp)
    cuts = uncut = 0
    while len(boxes) > 1 and uncut < rank and cuts < _MAX_CUTS:
        before = len(boxes), _number(groups)
        boxes, groups = _cut(boxes, groups, cuts % rank)
        cuts += 1
        uncut = uncut + 1 if before == (len(boxes), _number(groups)) else 0
    return _any_pair_overlaps(boxes, groups)


def _cut(boxes: Boxes, groups: Groups, axis: int) -> tuple[Boxes, Groups]:
    """Split each group wherever nothing reaches across, and drop the boxes that are then alone."""
    order = np.lexsort((boxes[:, axis, 0], groups))
    boxes, groups = boxes[order], groups[order]
    base = groups << 33
    reach = np.maximum.accumulate(base + boxes[:, axis, 1])
    begins = np.ones(len(boxes), np.bool_)
    begins[1:] = base[1:] + boxes[1:, axis, 0] >= reach[:-1]
    groups = np.cumsum(begins) - 1
    together = np.bincount(groups)[groups] > 1
    return boxes[together], np.unique(groups[together], return_inverse=True)[1]


def _number(groups: Groups) -> int:
    return int(groups[-1]) + 1 if len(groups) else 0


def _any_pair_overlaps(boxes: Boxes, groups: Groups) -> bool:
    """Compare each box with the next one of its group, then with the one after that, and so on."""
    if int((np.bincount(groups) ** 2).sum()) > _MAX_PAIRS:
        return True
    at = np.arange(len(boxes))
    for step in range(1, len(boxes)):
        at = at[at + step < len(boxes)]
        at = at[groups[at + step] == groups[at]]
        if not len(at):
            return False
        one, other = boxes[at], boxes[at + step]
        below = (one[:, :, 0] < other[:, :, 1]) & (other[:, :, 0] < one[:, :, 1])
        if below.all(axis=1).any():
            return True
    return False
