"""Where a large manifest is cut when late data change a short stretch of it.

Late data come again where they came before. With what lies around the stretch in manifests of its
own, the next late batch writes little anew. These stay apart, as long as they are few: either they
are full, or known by their sizes, since what a stream appends never precedes what is much larger.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.manifests.policy import Tiered

    Indices = npt.NDArray[np.uint32]
    Numbers = npt.NDArray[np.intp]
    Mask = npt.NDArray[np.bool_]
    Masks = tuple[Mask, Mask, Mask]

# A stretch has at least this part of a cell's references, and what follows it this one.
_STRETCH, _AFTER = 16, 4


def cut_around(indices: Indices, changed: Indices, policy: Tiered) -> list[Numbers] | None:
    """Rows before, in and after the stretch that holds what changed; None where it is too long."""
    if not policy.is_full(len(indices)):
        return None
    found = (
        _stretch(indices[:, axis], changed[:, axis], policy) for axis in range(indices.shape[1])
    )
    masks = min((each for each in found if each is not None), key=_rows_in, default=None)
    return None if masks is None else [np.flatnonzero(mask) for mask in masks if mask.any()]


def was_cut(sizes: Sequence[int], policy: Tiered) -> bool:
    """Whether neighbours of these sizes are what a cut left, and few enough to stay apart."""
    large = max(policy.cell_refs // _AFTER, 1)
    return len(sizes) <= policy.ratio and any(
        size >= large and size > 2 * before for before, size in pairwise(sizes)
    )


def stays_apart(sizes: Sequence[int], policy: Tiered) -> bool:
    """Whether what is in a cell that nothing is added to may stay as a cut left it."""
    first, *others = sizes
    return was_cut(sizes, policy) or (policy.is_full(first) and len(others) == 1)


def _stretch(at: Indices, changed: Indices, policy: Tiered) -> Masks | None:
    """What lies before, in and after a stretch of an axis, if cutting there is worth it."""
    in_order = np.sort(at)
    begin = int(np.searchsorted(in_order, changed.min()))
    end = int(np.searchsorted(in_order, changed.max(), side="right"))
    least = max(policy.cell_refs // _STRETCH, 1)
    begin -= (max(least - (end - begin), 0) + 1) // 2
    begin = _tie(in_order, begin) if begin > least else 0
    end = _tie(in_order, max(end, begin + least))
    if not was_cut((end - begin, len(at) - end), policy):
        end = len(at)
        if not policy.is_full(begin):
            return None
    is_before, is_after = at < in_order[begin], at > in_order[end - 1]
    return is_before, ~(is_before | is_after), is_after


def _rows_in(masks: Masks) -> int:
    return int(np.count_nonzero(masks[1]))


def _tie(in_order: npt.NDArray[np.uint32], place: int) -> int:
    """The first place with the value that stands at a place: equal ones stay together."""
    if place >= len(in_order):
        return len(in_order)
    return int(np.searchsorted(in_order, in_order[place]))
