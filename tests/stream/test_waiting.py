"""The way for a sink that lost many races: who holds back for whom, and until when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.stream.waiting import (
    LONGEST_WAIT,
    SHORTEST_WAIT,
    asks_for_way,
    deadline,
    held_until,
    must_hold_back,
)

SECOND = 1_000_000


def test_a_sink_asks_for_the_way_after_three_losses_and_once_at_a_time() -> None:
    now = 100 * SECOND

    assert [asks_for_way(losses, None, now) for losses in (0, 2, 3, 9)] == [
        False,
        False,
        True,
        True,
    ]
    assert not asks_for_way(4, now + 1, now)
    assert asks_for_way(4, now, now)


@pytest.mark.parametrize(
    ("took", "wait"),
    [(0, SHORTEST_WAIT), (10 * SECOND, 20 * SECOND), (10**9 * SECOND, LONGEST_WAIT)],
)
def test_the_way_is_asked_for_as_long_as_two_attempts_take(took: int, wait: int) -> None:
    assert deadline(50, took) == 50 + wait


def test_a_sink_holds_back_until_the_way_is_no_longer_asked_for() -> None:
    waits = {"slow": 1_000}

    assert [must_hold_back(waits, "quick", now) for now in (0, 999, 1_000, 5_000)] == [
        True,
        True,
        False,
        False,
    ]
    assert not must_hold_back(waits, "slow", 0)
    assert not must_hold_back({}, "quick", 0)


def test_a_time_far_away_is_not_believed() -> None:
    assert not must_hold_back({"broken": 10 * LONGEST_WAIT}, "quick", 0)


times = st.integers(0, 3 * LONGEST_WAIT)


@given(st.dictionaries(st.sampled_from("abcd"), times, min_size=1), times)
def test_of_the_sinks_that_ask_the_first_to_end_goes_and_all_others_hold_back(
    waits: dict[str, int], now: int
) -> None:
    asking = {app for app, until in waits.items() if now < until <= now + LONGEST_WAIT}
    free = {app for app in waits if not must_hold_back(waits, app, now)}

    assert free & asking == set(sorted(asking, key=lambda app: (waits[app], app))[:1])
    assert must_hold_back(waits, "other", now) is bool(asking)
    assert held_until(waits, "other", now) == max((waits[app] for app in asking), default=None)
