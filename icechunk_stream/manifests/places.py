"""Into which manifests changed references go, where those of a cell lie side by side.

Manifests that follow one another along an axis part it into their own stretches and the gaps
between them. A row in a manifest's stretch goes there, rows in a gap make a new manifest: no two
boxes overlap then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from icechunk_stream.manifests.policy import Tiered

    Numbers = npt.NDArray[np.intp]
    Mask = npt.NDArray[np.bool_]
    Boxes = npt.NDArray[np.int64]

# A last manifest of so few references takes what comes after it, if it is written anyway.
_SMALL = 256
_BLOCK = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The manifests of one cell: their boxes, and about how many references each has."""

    boxes: Boxes
    sizes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Changed references of the cell; those that are not ``present`` are deleted."""

    indices: npt.NDArray[np.uint32]
    present: Mask

    def __len__(self) -> int:
        return len(self.present)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """What becomes one manifest: some of the members, and rows."""

    members: tuple[int, ...]
    rows: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Placing:
    """Groups of rows, and rows of untouched members, each side by side and in order."""

    groups: tuple[Group, ...]
    untouched: tuple[tuple[int, ...], ...]


def place(members: Members, rows: Rows, policy: Tiered) -> Placing:
    """Part rows among members and new manifests, along the axis where that rewrites least."""
    if not len(members):
        kept = np.flatnonzero(rows.present)
        return Placing(tuple(_cut(rows, kept, 0, policy.cell_refs)), ())
    axes = range(rows.indices.shape[1])
    if not axes:
        return Placing(
            tuple(_by_boxes(members, rows, np.arange(1), np.arange(len(rows)), policy)), ()
        )
    best = _along(0, members, rows)
    for axis in axes[1:]:
        if not best.cost:
            break
        best = min(best, _along(axis, members, rows), key=lambda along: along.cost)
    return best.placing(members, rows, policy)


@dataclass(frozen=True, slots=True, eq=False)
class _Along:
    """Members in clusters that follow one another along an axis, and the place of each row.

    Place ``2 * i + 1`` is the ``i``-th cluster, ``2 * i`` the gap before it; rows with the place -1
    delete what is not there. In a cluster of several members, these overlap along the axis.
    """

    axis: int
    clusters: tuple[Numbers, ...]
    places: Numbers
    cost: int

    def placing(self, members: Members, rows: Rows, policy: Tiered) -> Placing:
        order = np.argsort(self.places, kind="stable")
        firsts = np.flatnonzero(np.diff(self.places[order], prepend=-2))
        by_place = {
            int(self.places[part[0]]): part for part in np.split(order, firsts[1:]) if len(part)
        }
        by_place.pop(-1, None)
        self._join_the_end(by_place, members)
        groups = list(self._groups(by_place, members, rows, policy))
        return Placing(tuple(groups), tuple(self._untouched(by_place)))

    def _join_the_end(self, by_place: dict[int, Numbers], members: Members) -> None:
        last = 2 * len(self.clusters) - 1
        if last not in by_place or last + 1 not in by_place or len(self.clusters[-1]) > 1:
            return
        size = int(members.sizes[self.clusters[-1][0]])
        if size + len(by_place[last]) + len(by_place[last + 1]) <= _SMALL:
            by_place[last] = np.concatenate([by_place[last], by_place.pop(last + 1)])

    def _groups(
        self, by_place: dict[int, Numbers], members: Members, rows: Rows, policy: Tiered
    ) -> Iterator[Group]:
        for at, chosen in by_place.items():
            cluster = self.clusters[at // 2] if at % 2 else None
            if cluster is None:
                yield from _cut(rows, chosen, self.axis, policy.cell_refs)
            elif len(cluster) == 1:
                yield Group((int(cluster[0]),), chosen)
            else:
                yield from _by_boxes(members, rows, cluster, chosen, policy)
        for number, cluster in enumerate(self.clusters):
            if len(cluster) >= policy.most - 1 and 2 * number + 1 not in by_place:
                yield from _by_boxes(members, rows, cluster, cluster[:0], policy)

    def _untouched(self, by_place: dict[int, Numbers]) -> Iterator[tuple[int, ...]]:
        """Members between those that are written, or between which a new one comes."""
        run: list[int] = []
        for number, cluster in enumerate(self.clusters):
            if run and 2 * number in by_place:
                yield tuple(run)
                run = []
            if len(cluster) == 1 and 2 * number + 1 not in by_place:
                run.append(int(cluster[0]))
            elif run:
                yield tuple(run)
                run = []
        if run:
            yield tuple(run)


def _along(axis: int, members: Members, rows: Rows) -> _Along:
    order = np.argsort(members.boxes[:, axis, 0], kind="stable")
    low, high = members.boxes[order, axis].T
    reach = np.maximum.accumulate(high)
    firsts = np.flatnonzero(np.append(True, low[1:] >= reach[:-1]))
    begins, ends = low[firsts], reach[np.append(firsts[1:], len(order)) - 1]
    clusters = np.split(order, firsts[1:])
    at = rows.indices[:, axis].astype(np.int64)
    before = np.searchsorted(begins, at, side="right")
    inside = (before > 0) & (at < ends[before - 1])
    places = 2 * before - inside
    gone = ~rows.present
    if gone.any():
        places[gone] = np.where(_holders(members, rows.indices[gone]) >= 0, places[gone], -1)
    hit = np.unique(places[places % 2 == 1]) // 2
    cost = sum(int(members.sizes[clusters[number]].sum()) for number in hit.tolist())
    return _Along(axis, tuple(clusters), places, cost)


def _by_boxes(
    members: Members, rows: Rows, cluster: Numbers, chosen: Numbers, policy: Tiered
) -> Iterator[Group]:
    """Rows go to the members whose boxes hold them; the others join all that they lie between.

    With too many open members, all of these become one.
    """
    mine = Members(members.boxes[cluster], members.sizes[cluster])
    indices = rows.indices[chosen]
    holders = _holders(mine, indices)
    loose = (holders < 0) & rows.present[chosen]
    corners = [np.stack([indices[loose], indices[loose] + np.uint32(1)], axis=2).astype(np.int64)]
    open_ = ~policy.is_full(mine.sizes)
    if np.count_nonzero(open_) >= policy.most - 1:
        corners.append(mine.boxes[open_])
    around = np.concatenate(corners)
    joined = _reached(mine, around) if len(around) else np.zeros(len(mine), np.bool_)
    for member in np.unique(holders[holders >= 0]).tolist():
        if not joined[member]:
            yield Group((int(cluster[member]),), chosen[holders == member])
    if len(around):
        taken = loose | (np.isin(holders, np.flatnonzero(joined)) & (holders >= 0))
        yield Group(tuple(cluster[joined].tolist()), chosen[taken])


def _holders(members: Members, indices: npt.NDArray[np.uint32]) -> Numbers:
    """The member whose box holds each index, or -1."""
    holders = np.full(len(indices), -1, np.intp)
    for first in range(0, len(indices), _BLOCK):
        block = slice(first, first + _BLOCK)
        hits = _in_boxes(members.boxes[None], indices[block, None])
        holders[block] = np.where(hits.any(axis=1), hits.argmax(axis=1), -1)
    return holders


def _reached(members: Members, boxes: Boxes) -> Mask:
    """Members that a box around some boxes meets, and then that around these, and so on."""
    low, high = boxes[:, :, 0].min(axis=0), boxes[:, :, 1].max(axis=0)
    joined = np.zeros(len(members), np.bool_)
    while True:
        met: Mask = ((members.boxes[:, :, 0] < high) & (members.boxes[:, :, 1] > low)).all(axis=1)
        if (met == joined).all():
            return joined
        joined = met
        low = np.minimum(low, members.boxes[met, :, 0].min(axis=0))
        high = np.maximum(high, members.boxes[met, :, 1].max(axis=0))


def _in_boxes(boxes: Boxes, indices: npt.NDArray[np.uint32]) -> Mask:
    found: Mask = ((boxes[..., 0] <= indices) & (indices < boxes[..., 1])).all(axis=-1)
    return found


def _cut(rows: Rows, chosen: Numbers, axis: int, most: int) -> Iterator[Group]:
    """Rows of a gap, in parts that do not overlap and have not many more than ``most`` rows."""
    chosen = chosen[rows.present[chosen]]
    if len(chosen):
        for part in parted(rows.indices[chosen], axis, most):
            yield Group((), chosen[part])


def parted(indices: npt.NDArray[np.uint32], axis: int, most: int) -> list[Numbers]:
    """Rows in parts whose boxes do not overlap, each of not many more than ``most`` rows."""
    if len(indices) <= most:
        return [np.arange(len(indices))]
    if (indices[:, axis] == indices[0, axis]).all():
        axis = int(np.argmax(indices.max(axis=0) - indices.min(axis=0)))
    order = np.argsort(indices[:, axis], kind="stable")
    ends = np.append(np.flatnonzero(np.diff(indices[order, axis])) + 1, len(order))
    # Ends of equal indices that are the first beyond each multiple of the bound.
    cuts = np.unique(ends[np.searchsorted(ends, np.arange(most, len(order), most))])
    return [np.sort(part) for part in np.split(order, cuts) if len(part)]
