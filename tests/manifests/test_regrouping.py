"""Which neighbours become one manifest for readers, and where large ones are cut."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.format.boxes import overlap
from icechunk_stream.manifests.regrouping import ANEW, cut, regrouped

if TYPE_CHECKING:
    import numpy.typing as npt


def in_a_row(sizes: list[int]) -> npt.NDArray[np.int64]:
    """Boxes one after the other along the first axis, which are full."""
    ends = np.cumsum([0, *sizes])
    return np.array([[[low, high], [0, 1]] for low, high in pairwise(ends.tolist())], np.int64)


def sizes_of(groups: list[npt.NDArray[np.intp]], sizes: list[int]) -> list[int]:
    return [sum(sizes[number] for number in group.tolist()) for group in groups]


def groups_in_a_row(sizes: list[int], most: int) -> list[int]:
    groups = regrouped(in_a_row(sizes), np.array(sizes, np.int64), most)
    assert sorted(number for group in groups for number in group.tolist()) == [*range(len(sizes))]
    return sizes_of(groups, sizes)


def test_neighbours_join_until_they_are_full() -> None:
    assert groups_in_a_row([4, 4, 4, 4, 4], 10) == [12, 8]
    assert groups_in_a_row([10, 4, 4], 10) == [10, 8]
    assert groups_in_a_row([1, 10, 4, 10, 4], 10) == [1, 14, 10, 4]
    assert groups_in_a_row([3, 3], 10) == [6]


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60), most=st.integers(1, 20))
def test_a_row_has_one_manifest_more_than_it_needs_at_most_and_stays(
    sizes: list[int], most: int
) -> None:
    found = groups_in_a_row(sizes, most)

    assert len(found) <= -(-sum(sizes) // most) + 1
    assert groups_in_a_row(found, most) == found


def split_at_random(data: st.DataObject, box: list[list[int]], depth: int) -> list[list[list[int]]]:
    axes = [axis for axis, (low, high) in enumerate(box) if high - low > 1]
    if not axes or not depth or data.draw(st.integers(0, 4)) == 0:
        return [box]
    axis = data.draw(st.sampled_from(axes))
    low, high = box[axis]
    at = data.draw(st.integers(low + 1, high - 1))
    before, after = ([*map(list, box)] for _ in range(2))
    before[axis], after[axis] = [low, at], [at, high]
    return split_at_random(data, before, depth - 1) + split_at_random(data, after, depth - 1)


@given(data=st.data(), most=st.integers(1, 30))
def test_cuts_in_any_order_give_few_groups_that_do_not_overlap_and_stay(
    data: st.DataObject, most: int
) -> None:
    boxes = np.array(split_at_random(data, [[0, 12], [0, 12]], 6), np.int64)
    sizes = (boxes[:, :, 1] - boxes[:, :, 0]).prod(axis=1)

    groups = regrouped(boxes, sizes, most)

    if sizes.sum() <= ANEW * most:
        assert len(groups) <= -(-int(sizes.sum()) // most) + 1
    after = np.array([_around(boxes[group]) for group in groups])
    assert not overlap(after)
    assert sorted(number for group in groups for number in group.tolist()) == [*range(len(boxes))]
    totals = np.array(sizes_of(groups, sizes.tolist()), np.int64)
    again = regrouped(after, totals, most)
    assert all(len(group) == 1 for group in again)


def test_manifests_that_no_straight_cut_parts_become_one() -> None:
    """Five boxes like the blades of a windmill around its hub."""
    boxes = [
        [[0, 2], [0, 1]],
        [[2, 3], [0, 2]],
        [[1, 3], [2, 3]],
        [[0, 1], [1, 3]],
        [[1, 2], [1, 2]],
    ]
    sizes = np.array([2, 2, 2, 2, 1], np.int64)

    groups = regrouped(np.array(boxes, np.int64), sizes, 2)

    assert [sorted(group.tolist()) for group in groups] == [[0, 1, 2, 3, 4]]


def test_many_alternating_cuts_end() -> None:
    """A box that grew by turns along two axes, a thousand times."""
    boxes, shape = [[[0, 1], [0, 1]]], [1, 1]
    for step in range(1_000):
        axis = step % 2
        box = [[0, shape[0]], [0, shape[1]]]
        box[axis] = [shape[axis], shape[axis] + 1]
        shape[axis] += 1
        boxes.append(box)
    array = np.array(boxes, np.int64)

    groups = regrouped(array, np.full(len(boxes), 100, np.int64), 500)

    assert sorted(number for group in groups for number in group.tolist()) == [*range(len(boxes))]
    assert not overlap(np.array([_around(array[group]) for group in groups]))


@given(
    indices=st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1),
    most=st.integers(1, 12),
)
def test_parts_of_a_cut_are_full_and_do_not_overlap(
    indices: set[tuple[int, int]], most: int
) -> None:
    table = np.array(sorted(indices), np.uint32)

    parts = cut(table, most)

    assert sorted(np.concatenate(parts).tolist()) == [*range(len(table))]
    assert len(parts) == 1 or min(map(len, parts)) >= most
    boxes = [
        [[low, high + 1] for low, high in zip(each.min(0), each.max(0), strict=True)]
        for each in (table[part] for part in parts)
    ]
    assert not overlap(np.array(boxes, np.uint32))


def test_a_line_is_cut_into_parts_of_the_wanted_size() -> None:
    line = np.arange(100, dtype=np.uint32)[:, None]

    assert [len(part) for part in cut(line, 30)] == [30, 30, 40]
    assert [len(part) for part in cut(line, 51)] == [100]


def _around(boxes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.stack([boxes[:, :, 0].min(axis=0), boxes[:, :, 1].max(axis=0)], axis=1)
