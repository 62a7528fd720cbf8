"""A Spark Connect server on the loopback device, in a process of its own.

Its default file system is not this machine's: ``/checkpoints`` lies elsewhere, as on Databricks.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.driver_processes import ROOT, environment, started
from tests.spark.sessions import FOLDERS, LOOPBACK, SETTINGS
from tests.spark.standalone import SPARK_HOME, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psutil

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
HIDING = Path(__file__).with_name("hiding")
# What Spark lets a driver take.
MAX_RESULT_SIZE = 2**20
START_SECONDS = 300.0
_TICK = 0.1


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """Where clients find it, and where its checkpoints are."""

    url: str
    sign: Path
    checkpoints: Path

    @contextmanager
    def lacking_the_package(self, module: str) -> Iterator[None]:
        """Processes that run a module do not find the package, unless they had it before."""
        self.sign.write_text(module)
        try:
            yield
        finally:
            self.sign.unlink()


@contextmanager
def connect_server(folder: Path) -> Iterator[ConnectServer]:
    port, sign, checkpoints = free_port(), folder / "sign", folder / "checkpoints"
    checkpoints.mkdir()
    (folder / "events").mkdir()
    settings = SETTINGS | {name: f"file:{folder / place}" for name, place in FOLDERS.items()}
    settings |= {
        "spark.local.dir": str(folder / "local"),
        "spark.driver.maxResultSize": f"{MAX_RESULT_SIZE}b",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.hadoop.fs.defaultFS": "viewfs://tests/",
        "spark.hadoop.fs.viewfs.mounttable.tests.link./checkpoints": f"file://{checkpoints}",
    }
    options = [f"--conf={name}={value}" for name, value in settings.items()]
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]", *options]
    path = os.pathsep.join([str(HIDING), str(ROOT)])
    variables = environment(SPARK_HOME=str(SPARK_HOME), PYTHONPATH=path, HIDDEN_WHILE=str(sign))
    command = [*submit, "--class", SERVER, "spark-internal"]
    with started(command, folder / "server.log", variables) as process:
        _wait_for_port(port, process, folder / "server.log")
        yield ConnectServer(f"sc://{LOOPBACK}:{port}", sign, checkpoints)


def _wait_for_port(port: int, server: psutil.Popen, said: Path) -> None:
    last = time.monotonic() + START_SECONDS
    while not _listens(port):
        if server.poll() is not None or time.monotonic() > last:
            raise TimeoutError(f"no server came: {said.read_text(errors='replace')[-4_000:]}")
        time.sleep(_TICK)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=5).close()
    except OSError:
        return False
    return True
