"""How large the cells are into which a new array is cut."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.config import SplitAxis
from icechunk_stream.stream.cells import CELL_REFS, GridAxis, cell_sizes

AXES = st.lists(
    st.builds(GridAxis, st.integers(0, 2**20), st.booleans(), st.booleans()), min_size=1, max_size=5
)


def time(chunks: int = 1) -> GridAxis:
    return GridAxis(chunks, growing=True, is_time=True)


def growing(chunks: int) -> GridAxis:
    return GridAxis(chunks, growing=True)


def fixed(chunks: int) -> GridAxis:
    return GridAxis(chunks, growing=False)


@pytest.mark.parametrize(
    ("axes", "wanted"),
    [
        ([time()], {0: 131_072}),
        ([time(), fixed(4)], {0: 32_768}),
        ([time(), fixed(3)], {0: 32_768}),
        ([fixed(10), time(), fixed(10)], {1: 1_024}),
        ([time(), fixed(100_000)], {0: 1}),
        ([time(), fixed(1_000), fixed(1_000)], {0: 1, 1: 250, 2: 500}),
        ([time(), growing(1)], {0: 8_192, 1: 16}),
        ([growing(1), time()], {0: 16, 1: 8_192}),
        ([growing(3), growing(3)], {0: 8_192, 1: 16}),
        ([time(), growing(500)], {0: 128, 1: 1_024}),
        ([time(), growing(2), growing(20), fixed(2)], {0: 64, 1: 16, 2: 64}),
        ([time(), growing(10**6)], {0: 1, 1: 131_072}),
        ([time(0), growing(0)], {0: 8_192, 1: 16}),
        ([fixed(10**6)], {}),
    ],
)
def test_a_cell_has_its_references_along_the_growing_axes(
    axes: list[GridAxis], wanted: dict[int, int]
) -> None:
    assert cell_sizes(axes) == tuple((SplitAxis(axis), size) for axis, size in wanted.items())


@given(AXES)
def test_a_cell_is_bounded_and_has_an_extent_along_every_growing_axis(axes: list[GridAxis]) -> None:
    found = {dim.axis: size for dim, size in cell_sizes(axes) if isinstance(dim, SplitAxis)}
    growing = {number for number, axis in enumerate(axes) if axis.growing}
    fixed = {n: max(axis.chunks, 1) for n, axis in enumerate(axes) if not axis.growing}
    if not growing:
        assert found == {}
        return
    assert growing <= found.keys()
    assert all(found[number] & (found[number] - 1) == 0 < found[number] for number in growing)
    assert prod((fixed | found).values()) <= CELL_REFS
    if prod(fixed.values()) <= CELL_REFS:
        assert found.keys() == growing
        assert prod((fixed | found).values()) > CELL_REFS // 2
