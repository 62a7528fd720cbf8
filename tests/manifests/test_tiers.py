"""Which neighbours merge: few manifests, and few copies of every reference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream import InvalidInputError, Tiered
from icechunk_stream.manifests.tiers import merge_of

POLICY = Tiered()


def appended(sizes: list[int], policy: Tiered = POLICY) -> tuple[list[int], list[int], int]:
    """Sizes of open and of full manifests after appends of these sizes, and references copied."""
    open_: list[int] = []
    full: list[int] = []
    copied = 0
    for size in sizes:
        merge = merge_of(open_, policy)
        if merge is not None:
            copied += sum(open_[merge])
            open_[merge] = [sum(open_[merge])]
        open_.append(size)
        while open_ and open_[0] >= policy.cell_refs:
            full.append(open_.pop(0))
    return open_, full, copied


@pytest.mark.parametrize("size", [1, 10, 100, 300, 1_000, 10_000])
def test_a_thousand_equal_batches_are_copied_less_than_four_and_a_half_times(size: int) -> None:
    _, _, copied = appended([size] * 1_000)

    assert copied <= 3.5 * size * 1_000


@pytest.mark.parametrize(("size", "count"), [(1, 30_000), (7, 60_000), (100, 20_000)])
def test_however_long_the_stream_few_manifests_are_open(size: int, count: int) -> None:
    open_, full, copied = appended([size] * count)

    assert len(open_) <= POLICY.most
    assert sum(open_) + sum(full) == size * count
    assert copied <= 8 * size * count


@given(sizes=st.lists(st.integers(1, 5_000), max_size=400))
def test_batches_of_any_size_keep_the_number_of_manifests_bounded(sizes: list[int]) -> None:
    open_, full, _ = appended(sizes)

    assert len(open_) <= POLICY.most
    assert sum(open_) < POLICY.cell_refs + max(sizes, default=0)
    assert sum(open_) + sum(full) == sum(sizes)
    assert all(size < 2 * POLICY.cell_refs for size in full)


def test_a_small_policy_merges_where_it_says() -> None:
    policy = Tiered(cell_refs=1_000, ratio=3, most=8)

    assert merge_of([], policy) is None
    assert merge_of([5], policy) is None
    assert merge_of([5, 5], policy) is None
    assert merge_of([5, 5, 5], policy) == slice(0, 3)
    assert merge_of([100, 5, 5, 5], policy) == slice(1, 4)
    assert merge_of([15, 15, 5, 5, 5], policy) == slice(0, 5)
    assert merge_of([600, 500, 1], policy) == slice(0, 2)


def test_policies_that_could_not_work_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="cell_refs=0"):
        Tiered(cell_refs=0)
    with pytest.raises(InvalidInputError, match="ratio=1"):
        Tiered(ratio=1)
    with pytest.raises(InvalidInputError, match="most=5"):
        Tiered(ratio=5, most=5)
