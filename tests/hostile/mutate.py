"""Damage of every kind, drawn from a seed."""

from __future__ import annotations

import struct
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_WORDS = (0, 1, 2, 3, 4, 7, 8, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 2, 2**32 - 1)
_LONGS = (0, 1, 2**63 - 1, 2**63, 2**64 - 1)
_MAX_BLOCK = 64
_MAX_DAMAGES = 3


def mutant(data: bytes, seed: int) -> bytearray:
    """The data with one to three damages."""
    random = Random(seed)
    damaged = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, _MAX_DAMAGES))):
        random.choice(_DAMAGES)(damaged, random)
    return damaged


def _flip_bit(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set_byte(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice(
            (0, 1, 0x7F, 0x80, 0xFF, random.randrange(256))
        )


def _set_word(data: bytearray, random: Random) -> None:
    """A telling number, mostly where an offset or a length may be."""
    if len(data) < 4:
        return
    at = random.randrange(len(data) - 3)
    if random.random() < 0.8:
        at -= at % 4
    near = len(data) - at + random.randint(-8, 8)
    value = random.choice(
        (*_WORDS, near, len(data), random.randrange(len(data)), random.randrange(64))
    )
    struct.pack_into("<I", data, at, value % 2**32)


def _nudge_word(data: bytearray, random: Random) -> None:
    """An offset or length that is a little too large or too small."""
    if len(data) < 4:
        return
    at = random.randrange(len(data) // 4) * 4
    value = struct.unpack_from("<I", data, at)[0] + random.choice((-8, -4, -2, -1, 1, 2, 4, 8))
    struct.pack_into("<I", data, at, value % 2**32)


def _set_half(data: bytearray, random: Random) -> None:
    """A field of a vtable."""
    if len(data) < 2:
        return
    at = random.randrange(len(data) // 2) * 2
    value = random.choice((0, 1, 2, 4, 6, 8, 12, 16, 20, 24, 0x7FFF, 0xFFFE, 0xFFFF))
    struct.pack_into("<H", data, at, value)


def _set_long(data: bytearray, random: Random) -> None:
    if len(data) >= 8:
        at = random.randrange(len(data) - 7)
        struct.pack_into("<Q", data, at - at % 4, random.choice(_LONGS))


def _copy_block(data: bytearray, random: Random) -> None:
    block = _block(data, random)
    at = random.randrange(len(data) + 1)
    data[at : at + len(block)] = block


def _insert_block(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.choice((_block(data, random), bytes(random.randrange(1, 9))))


def _delete_block(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data) + 1)
    del data[start : start + random.randrange(1, _MAX_BLOCK)]


def _swap_words(data: bytearray, random: Random) -> None:
    if len(data) >= 8:
        first, second = (random.randrange(len(data) // 4) * 4 for _ in range(2))
        one, other = data[first : first + 4], data[second : second + 4]
        data[second : second + 4], data[first : first + 4] = one, other


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data) + 1) :]


def _extend(data: bytearray, random: Random) -> None:
    data += random.randbytes(random.randrange(1, _MAX_BLOCK))


def _block(data: bytearray, random: Random) -> bytearray:
    start = random.randrange(len(data) + 1)
    return data[start : start + random.randrange(1, _MAX_BLOCK)]


_DAMAGES: tuple[Callable[[bytearray, Random], None], ...] = (
    _flip_bit,
    _flip_bit,
    _set_byte,
    _set_word,
    _set_word,
    _nudge_word,
    _set_half,
    _set_long,
    _copy_block,
    _insert_block,
    _delete_block,
    _swap_words,
    _cut,
    _extend,
)
