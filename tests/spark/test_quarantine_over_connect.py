"""Bad rows in a Delta table, over Spark Connect."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scripts.maven import DELTA, jars_of
from tests.spark import connect_server
from tests.spark.driver_processes import ROOT, environment
from tests.spark.sessions import DELTA_SETTINGS, SETTINGS

if TYPE_CHECKING:
    from pathlib import Path


def test_a_batch_that_comes_again_is_kept_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jars = {"spark.jars": ",".join(map(str, jars_of(DELTA)))}
    monkeypatch.setattr(connect_server, "SETTINGS", SETTINGS | DELTA_SETTINGS | jars)
    table = f"file:{tmp_path}/bad"
    with connect_server.connect_server(tmp_path) as server:
        command = [sys.executable, "-m", "tests.spark.quarantine_client", server.url, table]
        done = subprocess.run(
            [*command, "1", "1", "2"],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1 10", "1 None", "2 20", "2 None"]
