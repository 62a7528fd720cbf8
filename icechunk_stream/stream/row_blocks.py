"""Rows some at a time: what is computed of them stays in the processor's cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# With all rows at once, memory that each step takes anew costs three times as long as the step.
_BLOCK = 2**16


def row_blocks(count: int) -> Iterator[slice]:
    """All of so many rows, in blocks."""
    for start in range(0, count, _BLOCK):
        yield slice(start, min(start + _BLOCK, count))
