"""The demonstration, small: what it shows, and that it notices what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xarray as xr

import icechunk_stream
from demo.checks import compare, history, is_every_batch_once
from demo.runs import DriverError, Story, run
from demo.stations import DAYS_PER_BATCH, LABELS, Plan, traffic

if TYPE_CHECKING:
    import pandas as pd

pytestmark = pytest.mark.compat

ROOT = Path(__file__).parents[2]
PLAN = Plan(days=8, stations=5)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo")
    given = ["--days", str(PLAN.days), "--stations", str(PLAN.stations), "--out", str(folder)]
    command = [sys.executable, "-m", "demo", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def opened(folder: Path) -> xr.Dataset:
    storage = icechunk_stream.local_filesystem_storage(folder / "run" / "repository")
    session = icechunk_stream.Repository.open(storage).readonly_session("main")
    found: xr.Dataset = xr.open_zarr(session.store, consolidated=False).load()
    return found


def test_a_killed_stream_is_shown_to_have_every_row_once(shown: tuple[Path, str]) -> None:
    folder, told = shown
    assert "kill -9 in batch 1: its chunks are stored" in told
    assert "batch 1 was written again" in told
    assert "kill -9 in batch 2: it is committed" in told
    assert "batch 2 was found, and not written again" in told
    rows = len(traffic(PLAN).truth)
    for library in ("icechunk_stream", "icechunk"):
        lines = [line for line in told.splitlines() if line.startswith(f"{library} ")]
        assert [line.partition(": ")[2] for line in lines] == [
            f"all {rows:,} rows are there, each once, and nothing else"
        ]
    assert (folder / "stations.png").read_bytes().startswith(b"\x89PNG")
    storage = icechunk_stream.local_filesystem_storage(folder / "run" / "repository")
    snapshots = history(icechunk_stream.Repository.open(storage))
    assert is_every_batch_once(snapshots, PLAN.batches)
    assert not is_every_batch_once(snapshots[:-1], PLAN.batches)


def test_rows_arrive_late_twice_corrected_and_out_of_order() -> None:
    sent = traffic(PLAN)
    rows = sent.rows
    assert sorted(rows["batch"].unique()) == list(range(PLAN.batches))
    assert not rows["time"].is_monotonic_increasing
    assert (_days(rows) // DAYS_PER_BATCH < rows["batch"]).any()
    said = rows.groupby(LABELS)
    assert (said.size() > 1).any()
    assert (said["temp"].nunique() > 1).any()
    last = rows.loc[said["sent"].idxmax()].set_index(LABELS)["temp"]
    assert sent.truth.set_index(LABELS)["temp"].equals(last.sort_index())


def _days(rows: pd.DataFrame) -> pd.Series:
    return (rows["time"] - rows["time"].min()).dt.days


@pytest.mark.parametrize("wrong", ["value", "missing", "extra"])
def test_a_difference_of_one_row_is_noticed(shown: tuple[Path, str], wrong: str) -> None:
    found, truth = opened(shown[0]), traffic(PLAN).truth
    assert compare("ours", found, truth).is_equal
    time, station = truth["time"][7], truth["station"][7]
    cell = {"time": time, "station": station}
    if wrong == "value":
        found["wind"].loc[cell] += 1
    elif wrong == "missing":
        found["temp"].loc[cell] = np.nan
    else:
        truth = truth.drop(index=7)
    result = compare("ours", found, truth)
    assert not result.is_equal
    counts = result.wrong, result.missing, result.extra
    assert counts == {"value": (1, 0, 0), "missing": (0, 1, 0), "extra": (0, 0, 2)}[wrong]
    assert "rows" in str(result)


def test_a_driver_that_fails_by_itself_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match=r"(?s)status 1; the end of .*PATH_NOT_FOUND"):
        run(tmp_path, [], Story(), lambda _: None)


def test_a_repository_that_holds_a_batch_twice_is_noticed() -> None:
    sent = traffic(Plan(days=2, stations=3))
    found = sent.truth.set_index(LABELS).to_xarray()
    twice = xr.concat([found, found], "station")
    with pytest.raises(ValueError, match="twice"):
        compare("ours", twice, sent.truth)
