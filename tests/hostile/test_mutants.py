"""Damage drawn from seeds: whatever the bytes are, an object is read or refused, nothing else."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.hostile import raw
from tests.hostile.mutate import mutant
from tests.hostile.reading import HEADER_SIZE, KINDS, SAMPLES, Kind, opened
from tests.hostile.refusals import reads_or_refuses

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 2_000
SOAK_BLOCK = 50_000
_VERSION_BYTE = 36

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@each_kind
@pytest.mark.parametrize("start", range(0, 5 * BLOCK, BLOCK))
def test_damaged_payloads_are_read_or_refused(kind: Kind, start: int) -> None:
    try_payloads(kind, range(start, start + BLOCK))


@each_kind
@pytest.mark.parametrize("start", [0, BLOCK])
def test_damaged_objects_are_read_or_refused(kind: Kind, start: int) -> None:
    try_objects(kind, range(start, start + BLOCK))


@pytest.mark.soak
@each_kind
@pytest.mark.parametrize("start", range(10**7, 10**7 + 20 * SOAK_BLOCK, SOAK_BLOCK))
def test_a_million_damaged_payloads_are_read_or_refused(kind: Kind, start: int) -> None:
    try_payloads(kind, range(start, start + SOAK_BLOCK))


@pytest.mark.soak
@each_kind
@pytest.mark.parametrize("start", range(10**7, 10**7 + 5 * SOAK_BLOCK, SOAK_BLOCK))
def test_a_million_damaged_objects_are_read_or_refused(kind: Kind, start: int) -> None:
    try_objects(kind, range(start, start + SOAK_BLOCK))


def try_payloads(kind: Kind, seeds: range) -> None:
    sources = payloads(kind)
    for seed in seeds:
        name, payload, spec_version = sources[seed % len(sources)]
        damaged = mutant(payload, seed)
        _try(name, seed, lambda d=damaged, v=spec_version: kind.read_payload(d, v))  # type: ignore[misc]


def try_objects(kind: Kind, seeds: range) -> None:
    """Half of the damage is to the header and the first bytes of the frame."""
    sources = list(kind.corpus().items())
    for seed in seeds:
        name, data = sources[seed % len(sources)]
        if seed // len(sources) % 2:
            damaged = mutant(data, seed)
        else:
            head = HEADER_SIZE + 16
            damaged = mutant(data[:head], seed) + data[head:]
        _try(name, seed, lambda d=damaged: kind.read(d))  # type: ignore[misc]


@cache
def payloads(kind: Kind) -> list[tuple[str, bytes, int]]:
    """What the reference library wrote, and the samples that have one of everything."""
    written = [(name, opened(data), data[_VERSION_BYTE]) for name, data in kind.corpus().items()]
    samples = [
        (name, raw.payload(sample.document()), sample.spec_version)
        for name, sample in SAMPLES.items()
        if sample.kind is kind
    ]
    return written + samples


def _try(name: str, seed: int, read: Callable[[], None]) -> None:
    try:
        reads_or_refuses(read)
    except Exception as error:
        raise AssertionError(f"mutant {seed} of {name}") from error
