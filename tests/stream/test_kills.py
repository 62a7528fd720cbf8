"""A driver that is killed before or after any call of its storage, and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import icechunk
import pytest
import xarray as xr

from tests.stream.killed_stream import BATCHES, ROWS

pytestmark = pytest.mark.compat

ROOT = Path(__file__).parents[2]
POINTS = 8


def run(folder: Path, spec: int, when: str = "before", nth: int = 0) -> tuple[int, int]:
    """How a driver ended, and how many calls it made."""
    command = [sys.executable, "-m", "tests.stream.killed_stream", str(folder), str(spec)]
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [*command, when, str(nth)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode, int(done.stdout) if done.stdout else 0


def assert_every_row_once(folder: Path) -> None:
    storage = icechunk.local_filesystem_storage(str(folder / "repository"))
    repository = icechunk.Repository.open(storage)
    store = repository.readonly_session("main").store
    found = xr.open_zarr(store, consolidated=False).load()
    ids = list(range(BATCHES * ROWS))
    assert found["id"].values.tolist() == ids
    assert found["value"].values.tolist() == [id * id for id in ids]
    history = [each.metadata.get("icechunk_stream") for each in repository.ancestry(branch="main")]
    assert [each["batch_id"] for each in history if each] == list(range(BATCHES))[::-1]


def kill_and_restart(folder: Path, spec: int, when: str, nth: int) -> None:
    ended, _ = run(folder, spec, when, nth)
    assert ended == -signal.SIGKILL
    run(folder, spec)
    assert_every_row_once(folder)


@pytest.mark.parametrize("spec", [1, 2])
def test_a_killed_driver_that_starts_again_writes_every_row_once(tmp_path: Path, spec: int) -> None:
    _, calls = run(tmp_path / "whole", spec)
    assert_every_row_once(tmp_path / "whole")
    for point in range(POINTS):
        when = ("before", "after")[point % 2]
        nth = 1 + point * (calls - 1) // (POINTS - 1)
        kill_and_restart(tmp_path / f"{when}-{nth}", spec, when, nth)


@pytest.mark.soak
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("spec", [1, 2])
def test_a_driver_may_be_killed_at_every_call(tmp_path: Path, spec: int, when: str) -> None:
    _, calls = run(tmp_path / "whole", spec)
    for nth in range(1, calls + 1):
        kill_and_restart(tmp_path / f"{nth}", spec, when, nth)
