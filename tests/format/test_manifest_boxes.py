"""Which manifests of an array may hold a chunk, whether their boxes lie apart or overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.format import nodes
from icechunk_stream.format.ids import ID12
from icechunk_stream.format.nodes import ManifestRefs

ENDS = st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda pair: [pair[0], sum(pair)])


def refs_of(boxes: list[Any], rank: int) -> ManifestRefs:
    extents = np.array(boxes, np.uint32).reshape(len(boxes), rank, 2)
    return ManifestRefs(np.zeros(len(boxes), ID12), extents)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Any], list[tuple[int, ...]]]:
    rank = draw(st.integers(1, 3))
    boxes = draw(st.lists(st.lists(ENDS, min_size=rank, max_size=rank), max_size=6))
    if draw(st.booleans()):
        axis, steps = draw(st.integers(0, rank - 1)), draw(st.permutations(range(len(boxes))))
        for box, step in zip(boxes, steps, strict=True):
            box[axis] = [3 * step, 3 * step + draw(st.integers(1, 3))]
    at = st.tuples(*[st.integers(0, 20)] * rank)
    return boxes, draw(st.lists(at, min_size=1, max_size=20))


@given(cases(), st.sampled_from([0, 2**16]))
def test_boxes_that_hold_a_chunk_are_found(
    case: tuple[list[Any], list[tuple[int, ...]]], most: int
) -> None:
    boxes, indices = case
    refs = refs_of(boxes, len(indices[0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "_MOST_LISTED", most)
        found = [refs.covering(index) for index in indices]
    assert found == [
        [
            number
            for number, box in enumerate(boxes)
            if all(low <= at < high for at, (low, high) in zip(index, box, strict=True))
        ]
        for index in indices
    ]
