"""A key by which Spark's hash partitions take numbered things in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark.sql.functions as sql

if TYPE_CHECKING:
    from pyspark.sql import Column

_SEED = 42
_MASK = 2**32 - 1


def in_turn(number: str, count: int) -> Column:
    """What to repartition by into ``count`` partitions: few things would lie unevenly otherwise.

    ``number`` is the column with their numbers.
    """
    keys = ", ".join(map(str, _keys(count)))
    # In Spark's words: each function of its Python is some calls to the JVM.
    return sql.expr(f"element_at(array({keys}), cast(pmod({number}, {count}) + 1 as int))")


def _keys(count: int) -> list[int]:
    """An integer for each partition, which Spark puts there."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < count:
        found.setdefault(_hash(key) % count, key)
        key += 1
    return [found[partition] for partition in range(count)]


def _hash(key: int) -> int:
    """Murmur3 of an integer of 32 bits, as Spark's hash partitions compute it."""
    word = _rotated(key * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    hashed = _rotated(_SEED ^ word, 13) * 5 + 0xE6546B64 & _MASK
    hashed ^= 4
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    return hashed - 2**32 if hashed >= 2**31 else hashed


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (32 - by)) & _MASK
