"""Damaged documents: a decoder may read them or refuse them, and nothing else."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from icechunk_stream.errors import FormatError
from tests.hostile.mutate import mutant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KEY = "place/of/object"


def refusals(
    decode: Callable[[bytes], object],
    documents: Sequence[bytes],
    mutants: int,
    tokens: Sequence[bytes] = (),
) -> int:
    """How many mutants were refused by name; whatever else a decoder raises comes through."""
    refused = 0
    for seed in range(mutants):
        damaged = bytes(mutant(documents[seed % len(documents)], seed))
        if tokens and seed % 2:
            damaged = _spliced(damaged, tokens, Random(seed))
        try:
            decode(damaged)
        except FormatError as error:
            refused += error.key == KEY
    return refused


def _spliced(data: bytes, tokens: Sequence[bytes], random: Random) -> bytes:
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, len(data))
        data = data[:at] + random.choice(tokens) + data[at + random.randint(0, 3) :]
    return data
