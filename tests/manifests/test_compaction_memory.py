"""How much memory a compaction takes, in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.manifests.measured_compaction import CELL, run

if TYPE_CHECKING:
    from pathlib import Path

# Threads, codecs and allocators, however little there is to do.
FIXED = 64 * 2**20
# Two full manifests are read at a time: as they are stored, as columns, joined, and encoded anew.
PER_REF = 400


@pytest.mark.parametrize("manifests", [128, pytest.param(1_024, marks=pytest.mark.soak)])
def test_memory_follows_full_manifests_and_not_the_archive(tmp_path: Path, manifests: int) -> None:
    refs = manifests * 1_024

    found = run(tmp_path / "repository", refs, manifests)

    assert (found["before"], found["after"]) == (manifests, refs // CELL)
    assert found["took"] <= FIXED + 2 * CELL * PER_REF
