"""What a task has in memory depends on its chunks, not on how many rows it is given."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

from tests.stream.measured_writer import BASE, BATCHES, PACK, Batch, cells_of, create, value_at

pytestmark = pytest.mark.compat

ROOT = Path(__file__).parents[2]
# Code that is loaded late, stacks of threads, and freed memory that the allocator keeps.
ALLOWANCE = 24 * 2**20


def bound(batch: Batch) -> int:
    return 4 * batch.decoded_chunk + PACK + batch.arrow_batch + ALLOWANCE


def growth(folder: Path, kind: str) -> int:
    """Bytes by which a process grew that did nothing but write the batch."""
    command = [sys.executable, "-m", "tests.stream.measured_writer", str(folder), kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return int(found["peak"] - found["before"])


def expected(
    batch: Batch, unit: int, variable: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    cells = np.full(batch.cells, BASE, np.float32)
    given = cells_of(batch, 0, min(batch.rows[unit], batch.cells))
    cells[given] = value_at(unit, given, variable)
    return cells.reshape(batch.unit)


@pytest.mark.parametrize("kind", BATCHES)
def test_a_batch_far_beyond_memory_is_written_within_the_bound_of_a_task(
    tmp_path: Path, kind: str
) -> None:
    batch = BATCHES[kind]
    create(tmp_path / "measured", batch)
    assert growth(tmp_path, kind) < bound(batch)

    storage = icechunk.local_filesystem_storage(str(tmp_path / "measured"))
    store = icechunk.Repository.open(storage).readonly_session("main").store
    for variable, name in enumerate(batch.names):
        array = zarr.open_array(store, path=name, mode="r")
        for unit in range(len(batch.rows)):
            found = array[unit * batch.unit[0] : (unit + 1) * batch.unit[0]]
            np.testing.assert_array_equal(found, expected(batch, unit, variable))


def test_the_batches_are_what_they_are_meant_to_be() -> None:
    long, crowded = BATCHES["long"], BATCHES["crowded"]
    assert long.size > 20 * (bound(long) - ALLOWANCE)
    assert max(crowded.rows) >= 0.9 * sum(crowded.rows)
