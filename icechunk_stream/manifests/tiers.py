"""Which neighbouring manifests merge: as in a number written with digits, like sizes carry over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.manifests.stretches import was_cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icechunk_stream.manifests.policy import Tiered


def merge_of(sizes: Sequence[int], policy: Tiered) -> slice | None:
    """The neighbours that should become one manifest, given the sizes of those in a row.

    All that together fill a manifest do, unless a few were cut apart on purpose; else those at the
    end, where ``ratio`` or more are of like size. With too many manifests, the smallest ones are
    taken as alike.
    """
    is_crowded = len(sizes) >= policy.most - 1
    first = 0
    while (full := _filling(sizes[first:], policy.cell_refs)) is not None:
        if is_crowded or not was_cut(sizes[first : first + full.stop], policy):
            return _moved(full, first)
        first += full.stop
    unit = 1
    while True:
        found = _alike(sizes[first:], unit, policy.ratio)
        if found is not None or not is_crowded:
            return _moved(found, first)
        unit *= policy.ratio


def _moved(found: slice | None, by: int) -> slice | None:
    return None if found is None else slice(found.start + by, found.stop + by)


def _filling(sizes: Sequence[int], cell_refs: int) -> slice | None:
    """The first ones that together are full."""
    total = 0
    for number, size in enumerate(sizes):
        total += size
        if total >= cell_refs:
            return slice(0, number + 1) if number else None
    return None


def _alike(sizes: Sequence[int], unit: int, ratio: int) -> slice | None:
    """The last ones, if enough are of like size; what they make may carry over to those before."""
    if not sizes:
        return None
    start, total, found = len(sizes) - 1, sizes[-1], None
    while True:
        first, sum_, level = start, total, _level(total, unit, ratio)
        while first > 0 and _level(sizes[first - 1], unit, ratio) <= level:
            first -= 1
            sum_ += sizes[first]
        if start - first + 1 < ratio:
            return found
        start, total, found = first, sum_, slice(first, len(sizes))


def _level(size: int, unit: int, ratio: int) -> int:
    level = 0
    while size >= unit:
        unit *= ratio
        level += 1
    return level
