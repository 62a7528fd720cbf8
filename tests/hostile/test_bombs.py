"""Small objects that ask for much: refused, or read, in bounded memory."""

from __future__ import annotations

import pytest
import zstandard

from tests.hostile import frames
from tests.hostile.bombs import BOMBS
from tests.hostile.measured import read_apart
from tests.hostile.reading import KINDS, Kind, header

MEMORY = 256 * 2**20
GIB = 2**30

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.mark.parametrize("name", BOMBS)
def test_shared_parts_cost_no_more_than_copies_would(name: str) -> None:
    bomb = BOMBS[name]
    outcome = read_apart(bomb.kind.name, bomb.sealed())
    assert outcome.error == ""
    assert outcome.refused == bomb.refused
    assert outcome.peak < MEMORY


PACKED = {
    "4 kB that claim 4 GB": lambda: frames.frame(frames.raw_blocks(bytes(4000)), 4 * GIB),
    "4 kB that claim 1 GB": lambda: frames.frame(frames.zeros(2**27), GIB),
    "4 kB that claim 15 MB": lambda: frames.frame(frames.zeros(2**27), 15 * 2**20),
    "4 kB of 128 MB": lambda: frames.frame(frames.zeros(2**27), 2**27),
    "4 kB of 128 MB, no size": lambda: frames.frame(frames.zeros(2**27), window=2**20),
    "4 kB of 128 MB, no size, large window": lambda: frames.frame(
        frames.zeros(2**27), window=2**27
    ),
    "128 kB of 4 GB": lambda: frames.frame(frames.zeros(4 * GIB), 4 * GIB),
    "128 kB of 4 GB, no size": lambda: frames.frame(frames.zeros(4 * GIB), window=2**20),
    "512 bytes of 16 MB": lambda: frames.frame(frames.zeros(2**24), 2**24),
    "512 bytes of 16 MB, no size": lambda: frames.frame(frames.zeros(2**24), window=2**20),
    "16 MB of words that point ahead": lambda: zstandard.compress(
        (4).to_bytes(4, "little") * 2**22
    ),
    "16 MB of large counts": lambda: zstandard.compress((8_000_000).to_bytes(4, "little") * 2**22),
}


@each_kind
@pytest.mark.parametrize("name", PACKED)
def test_zstd_bombs_are_refused(kind: Kind, name: str) -> None:
    outcome = read_apart(kind.name, header(kind.file_type) + PACKED[name]())
    assert outcome.error == ""
    assert outcome.refused
    assert outcome.peak < MEMORY
