"""A courtesy between sinks of one repository: the one that lost many races is let through.

Correctness never depends on it, nor on the clocks of two machines being alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LOSSES_BEFORE_ASKING = 3
SHORTEST_WAIT = 5_000_000
LONGEST_WAIT = 120_000_000
"""In microseconds. Nobody asks for longer, so a deadline further away is not believed."""


def asks_for_way(losses: int, own_until: int | None, now: int) -> bool:
    """Whether a sink that lost so many races for a batch asks others to hold back (once more)."""
    return losses >= LOSSES_BEFORE_ASKING and (own_until is None or own_until <= now)


def deadline(now: int, took: int) -> int:
    """Until when to ask for it, after an attempt that took so long (all in microseconds)."""
    return now + min(max(2 * took, SHORTEST_WAIT), LONGEST_WAIT)


def must_hold_back(waits: Mapping[str, int], app_id: str, now: int) -> bool:
    """Whether the next swap is another's, given until when each stream asks for the way.

    Among those that ask, the one whose time ends first goes first, so that no two hold back for
    each other.
    """
    return held_until(waits, app_id, now) is not None


def held_until(waits: Mapping[str, int], app_id: str, now: int) -> int | None:
    """The end of the longest time for which others are to be let through; None if there is none."""
    asking = {(until, app) for app, until in waits.items() if now < until <= now + LONGEST_WAIT}
    own = (waits[app_id], app_id) if app_id in waits else None
    before = [turn for turn in asking if turn[1] != app_id and (own not in asking or turn < own)]
    return max(before)[0] if before else None
