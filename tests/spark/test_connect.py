"""Streams over Spark Connect: the sink runs in the server's Python, which only has its pickle."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from icechunk_stream.version import VERSION
from tests.spark.connect_server import MAX_RESULT_SIZE, connect_server
from tests.spark.driver_processes import ROOT, environment
from tests.spark.stream_folders import StreamFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.spark.connect_server import ConnectServer

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with connect_server(tmp_path_factory.mktemp("connect")) as server:
        yield server


def run(server: ConnectServer, stream: StreamFolder, checkpoint: str, *steps: str) -> None:
    """Let a client take the steps."""
    said = failure(server, stream, checkpoint, *steps)
    if said:
        pytest.fail(said, pytrace=False)


def failure(server: ConnectServer, stream: StreamFolder, checkpoint: str, *steps: str) -> str:
    """What a client said that failed; nothing if it took its steps."""
    command = [sys.executable, "-m", "tests.spark.connect_client", server.url, str(stream.path)]
    done = subprocess.run(
        [*command, checkpoint, *steps],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode else ""


def test_a_stream_goes_on_after_restarts_and_a_replayed_batch(
    server: ConnectServer, tmp_path: Path
) -> None:
    stream = StreamFolder(tmp_path)
    checkpoint = stream.checkpoint.as_uri()
    steps = ["send", "executors", "send", "driver", "forget", "executors", "send", "auto"]
    run(server, stream, checkpoint, *steps)
    stream.assert_every_row_once(3)
    assert stream.collect() == 0


def test_a_checkpoint_may_be_on_another_file_system_which_a_path_does_not_tell(
    server: ConnectServer, tmp_path: Path
) -> None:
    stream = StreamFolder(tmp_path)
    run(server, stream, "/checkpoints/obs", "send", "driver", "send")
    assert (server.checkpoints / "obs" / "metadata").is_file()
    run(server, stream, "viewfs://tests/checkpoints/obs", "driver")
    stream.assert_every_row_once(2)


def test_a_batch_that_spark_does_not_hand_to_the_driver_goes_to_executors(
    server: ConnectServer, tmp_path: Path
) -> None:
    stream, rows = StreamFolder(tmp_path), MAX_RESULT_SIZE // 13
    stream.send(0, rows)
    said = failure(server, stream, stream.checkpoint.as_uri(), "driver")
    assert "the batch is larger than spark.driver.maxResultSize allows" in said
    assert "maxOffsetsPerTrigger" in said
    run(server, stream, stream.checkpoint.as_uri(), "auto")
    stream.assert_every_row_once(1, rows)


def test_without_its_checkpoint_a_query_is_refused(server: ConnectServer, tmp_path: Path) -> None:
    stream = StreamFolder(tmp_path)
    said = failure(server, stream, stream.checkpoint.as_uri(), "send", "untold")
    assert "pass checkpoint_location, the one of the query" in said
    assert "Spark Connect needs it" in said


@pytest.mark.parametrize("module", ["foreach_batch_worker", "pyspark.daemon"])
def test_a_python_of_spark_without_the_package_says_what_to_install(
    server: ConnectServer, tmp_path: Path, module: str
) -> None:
    stream = StreamFolder(tmp_path)
    with server.lacking_the_package(module):
        said = failure(server, stream, stream.checkpoint.as_uri(), "send", "executors")
    assert "No module named 'icechunk_stream'" in said
    assert f"has no icechunk-stream {VERSION}. Install that release" in said
