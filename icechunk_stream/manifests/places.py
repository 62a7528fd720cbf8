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


def place(members: Members, rows: Rows, most: int) -> Placing:
    """Part rows among members and new manifests of about ``most`` references."""
    if not len(members):
        kept = np.flatnonzero(rows.present)
        return Placing(tuple(_cut(rows, kept, 0, most)), ())
    best: _Along | None = None
    for axis in range(rows.indices.shape[1]):
        found = _along(axis, members, rows)
        if found is not None and (best is None or found.cost < best.cost):
            best = found
        if best is not None and not best.cost:
            break
    return _by_boxes(members, rows) if best is None else best.placing(members, rows, most)


@dataclass(frozen=True, slots=True, eq=False)
class _Along:
    """Members in their order along an axis, and the place of each row: odd ones are members.

    Place ``2 * i + 1`` is the ``i``-th member in ``order``, ``2 * i`` the gap before it; rows with
    the place -1 delete what is not there.
    """

    axis: int
    order: Numbers
    places: Numbers
    cost: int

    def placing(self, members: Members, rows: Rows, most: int) -> Placing:
        order = np.argsort(self.places, kind="stable")
        firsts = np.flatnonzero(np.diff(self.places[order], prepend=-2))
        by_place = {
            int(self.places[part[0]]): part for part in np.split(order, firsts[1:]) if len(part)
        }
        by_place.pop(-1, None)
        self._join_the_end(by_place, members)
        groups = list(self._groups(by_place, rows, most))
        return Placing(tuple(groups), tuple(self._untouched(by_place)))

    def _join_the_end(self, by_place: dict[int, Numbers], members: Members) -> None:
        last = 2 * len(self.order) - 1
        if last not in by_place or last + 1 not in by_place:
            return
        size = int(members.sizes[self.order[-1]]) + len(by_place[last]) + len(by_place[last + 1])
        if size <= _SMALL:
            by_place[last] = np.concatenate([by_place[last], by_place.pop(last + 1)])

    def _groups(self, by_place: dict[int, Numbers], rows: Rows, most: int) -> Iterator[Group]:
        for at, chosen in by_place.items():
            if at % 2:
                yield Group((int(self.order[at // 2]),), chosen)
            else:
                yield from _cut(rows, chosen, self.axis, most)

    def _untouched(self, by_place: dict[int, Numbers]) -> Iterator[tuple[int, ...]]:
        """Members between those that are written, or between which a new one comes."""
        run: list[int] = []
        for number, member in enumerate(self.order.tolist()):
            if 2 * number in by_place and run:
                yield tuple(run)
                run = []
            if 2 * number + 1 not in by_place:
                run.append(member)
            elif run:
                yield tuple(run)
                run = []
        if run:
            yield tuple(run)


def _along(axis: int, members: Members, rows: Rows) -> _Along | None:
    """The members in order along an axis; None where their stretches overlap."""
    order = np.argsort(members.boxes[:, axis, 0], kind="stable")
    low, high = members.boxes[order, axis].T
    if (low[1:] < high[:-1]).any():
        return None
    at = rows.indices[:, axis].astype(np.int64)
    before = np.searchsorted(low, at, side="right")
    inside = (before > 0) & (at < high[before - 1])
    places = 2 * before - inside
    gone = ~rows.present
    if gone.any():
        there = inside[gone] & _in_boxes(members.boxes[order[before[gone] - 1]], rows.indices[gone])
        places[gone] = np.where(there, places[gone], -1)
    hit = np.unique(places[places % 2 == 1]) // 2
    return _Along(axis, order, places, int(members.sizes[order[hit]].sum()))


def _by_boxes(members: Members, rows: Rows) -> Placing:
    """Rows go to the members whose boxes hold them; the others join all that they lie between."""
    holders = _holders(members, rows)
    loose = np.flatnonzero((holders < 0) & rows.present)
    joined = _reached(members, rows.indices[loose]) if len(loose) else np.zeros(len(members), bool)
    groups = [
        Group((int(member),), np.flatnonzero(holders == member))
        for member in np.unique(holders[holders >= 0])
        if not joined[member]
    ]
    if len(loose):
        taken = np.flatnonzero(joined)
        chosen = np.flatnonzero(np.isin(holders, taken) & (holders >= 0))
        merged = np.sort(np.concatenate([loose, chosen]))
        groups.append(Group(tuple(taken.tolist()), merged))
    return Placing(tuple(groups), ())


def _holders(members: Members, rows: Rows) -> Numbers:
    """The member whose box holds each row, or -1."""
    holders = np.full(len(rows), -1, np.intp)
    for first in range(0, len(rows), _BLOCK):
        block = slice(first, first + _BLOCK)
        hits = _in_boxes(members.boxes[None], rows.indices[block, None])
        holders[block] = np.where(hits.any(axis=1), hits.argmax(axis=1), -1)
    return holders


def _reached(members: Members, indices: npt.NDArray[np.uint32]) -> Mask:
    """Members that a box around some indices meets, and then that around these, and so on."""
    low, high = indices.min(axis=0).astype(np.int64), indices.max(axis=0).astype(np.int64) + 1
    joined = np.zeros(len(members), np.bool_)
    while True:
        met = ((members.boxes[:, :, 0] < high) & (members.boxes[:, :, 1] > low)).all(axis=1)
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
    if len(chosen) <= most:
        if len(chosen):
            yield Group((), chosen)
        return
    at = rows.indices[chosen]
    if (at[:, axis] == at[0, axis]).all():
        axis = int(np.argmax(at.max(axis=0) - at.min(axis=0)))
    order = np.argsort(at[:, axis], kind="stable")
    ends = np.append(np.flatnonzero(np.diff(at[order, axis])) + 1, len(order))
    # Ends of equal indices that are the first beyond each multiple of the bound.
    cuts = np.unique(ends[np.searchsorted(ends, np.arange(most, len(order), most))])
    for part in np.split(order, cuts):
        if len(part):
            yield Group((), np.sort(chosen[part]))
