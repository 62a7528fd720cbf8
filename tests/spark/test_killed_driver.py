"""A driver of a real Spark that is killed in the middle of a batch, and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import icechunk
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr

pytestmark = pytest.mark.compat

ROOT = Path(__file__).parents[2]
FILES, ROWS = 4, 11
KILLED_AT = 8


def run(folder: Path, mode: str, nth: int) -> int:
    command = [sys.executable, "-m", "tests.spark.killed_driver", str(folder), mode, str(nth)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode


def test_rows_of_a_killed_driver_are_there_once_after_its_restart(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number in range(FILES):
        new = list(range(number * ROWS, (number + 1) * ROWS))
        rows = pa.table({"id": new, "value": [id * id for id in new]})
        pq.write_table(rows, tmp_path / "source" / f"{number}.parquet")
    assert run(tmp_path, "driver", KILLED_AT) == -signal.SIGKILL
    assert run(tmp_path, "executors", 0) == 0

    storage = icechunk.local_filesystem_storage(str(tmp_path / "repository"))
    repository = icechunk.Repository.open(storage)
    found = xr.open_zarr(repository.readonly_session("main").store, consolidated=False).load()
    ids = list(range(FILES * ROWS))
    assert sorted(found["id"].values.tolist()) == ids
    assert (found["value"] == found["id"] ** 2).all()
    history = [each.metadata.get("icechunk_stream") for each in repository.ancestry(branch="main")]
    assert [each["batch_id"] for each in history if each] == list(range(FILES))[::-1]
