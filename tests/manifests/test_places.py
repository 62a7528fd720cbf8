"""Rows parted among manifests: each goes to one place, and no two boxes overlap."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream import Tiered
from icechunk_stream.format.boxes import overlap
from icechunk_stream.manifests.places import Members, Rows, place

if TYPE_CHECKING:
    import numpy.typing as npt

    from icechunk_stream.manifests.places import Placing

GRID = (12, 6)
Box = list[list[int]]


@st.composite
def disjoint_boxes(draw: st.DrawFn) -> list[Box]:
    """Boxes side by side: the grid cut along one axis, or along both, some of them left out."""
    cuts = []
    for length in GRID:
        inner = draw(st.lists(st.integers(1, length - 1), max_size=4, unique=True))
        cuts.append([0, *sorted(inner), length])
    tiles = [[list(a), list(b)] for a in pairwise(cuts[0]) for b in pairwise(cuts[1])]
    return [tile for tile in tiles if draw(st.booleans())]


ROWS = st.lists(
    st.tuples(st.integers(0, GRID[0] - 1), st.integers(0, GRID[1] - 1)), min_size=1, unique=True
)


def hull(indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.stack([indices.min(axis=0), indices.max(axis=0) + 1], axis=1)


def boxes_after(boxes: npt.NDArray[np.int64], rows: Rows, placing: Placing) -> list[Box]:
    """The largest boxes that manifests can have after the rows are placed and neighbours merged."""
    taken = {member for group in placing.groups for member in group.members}
    merged = {member for row in placing.untouched for member in row}
    found = [boxes[member] for member in range(len(boxes)) if member not in taken | merged]
    found += [union([boxes[member] for member in row]) for row in placing.untouched]
    for group in placing.groups:
        parts = [boxes[member] for member in group.members]
        present = rows.indices[group.rows][rows.present[group.rows]].astype(np.int64)
        if len(present):
            parts.append(hull(present))
        if parts:
            found.append(union(parts))
    return [box.tolist() for box in found]


def union(boxes: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    together = np.array(boxes)
    return np.stack([together[:, :, 0].min(axis=0), together[:, :, 1].max(axis=0)], axis=1)


@given(boxes=disjoint_boxes(), chosen=ROWS, data=st.data())
def test_every_row_has_one_place_and_no_boxes_overlap(
    boxes: list[Box], chosen: list[tuple[int, int]], data: st.DataObject
) -> None:
    present = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(chosen), max_size=len(chosen)))
    )
    extents = np.array(boxes, np.int64).reshape(len(boxes), 2, 2)
    rows = Rows(np.array(chosen, np.uint32), present)
    sizes = (extents[:, :, 1] - extents[:, :, 0]).prod(axis=1)

    placing = place(Members(extents, sizes), rows, Tiered(cell_refs=5, ratio=2, most=4))

    placed = np.concatenate([np.zeros(0, int), *(group.rows for group in placing.groups)]).tolist()
    assert len(set(placed)) == len(placed)
    assert set(np.flatnonzero(present)) <= set(placed)
    members = [member for group in placing.groups for member in group.members]
    members += [member for row in placing.untouched for member in row]
    assert len(set(members)) == len(members)
    holders = [
        [
            number
            for number, box in enumerate(boxes)
            if all(low <= at < high for at, (low, high) in zip(index, box, strict=True))
        ]
        for index in chosen
    ]
    group_of = {row: group for group in placing.groups for row in group.rows.tolist()}
    for row, held in enumerate(holders):
        if held:
            assert held[0] in group_of[row].members
    after = np.array(boxes_after(extents, rows, placing), np.uint32).reshape(-1, 2, 2)
    assert not overlap(after)


def test_appended_rows_touch_nothing_that_is_there() -> None:
    boxes = np.array([[[0, 4], [0, 6]], [[4, 6], [0, 6]]])
    indices = np.array([[6, at] for at in range(6)], np.uint32)

    placing = place(
        Members(boxes, np.array([24, 12])), Rows(indices, np.ones(6, bool)), Tiered(cell_refs=100)
    )

    assert [(group.members, group.rows.tolist()) for group in placing.groups] == [
        ((), [0, 1, 2, 3, 4, 5])
    ]
    assert placing.untouched == ((0, 1),)


def test_deletions_of_what_was_never_there_touch_nothing() -> None:
    boxes = np.array([[[0, 4], [0, 2]]])
    indices = np.array([[1, 5], [9, 0]], np.uint32)

    placing = place(
        Members(boxes, np.array([8])), Rows(indices, np.zeros(2, bool)), Tiered(cell_refs=100)
    )

    assert placing.groups == ()


def test_a_large_append_is_cut_into_manifests_that_do_not_overlap() -> None:
    indices = np.stack(np.meshgrid(np.arange(100), np.arange(7), indexing="ij"), -1).reshape(-1, 2)
    rows = Rows(indices.astype(np.uint32), np.ones(700, bool))

    placing = place(
        Members(np.zeros((0, 2, 2), np.int64), np.zeros(0, np.int64)), rows, Tiered(cell_refs=50)
    )

    sizes = [len(group.rows) for group in placing.groups]
    assert sum(sizes) == 700
    assert max(sizes) <= 56
    boxes = np.array([hull(indices[group.rows]) for group in placing.groups], np.uint32)
    assert not overlap(boxes)
