"""A Spark cluster on the loopback device: a master, and two workers that are different hosts.

Spark runs the copy of a slow task only on another host than the first attempt's.
"""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tests.spark.driver_processes import environment, started

if TYPE_CHECKING:
    from collections.abc import Iterator

SPARK_HOME = Path(pyspark.__file__).parent
SPARK_CLASS = str(SPARK_HOME / "bin" / "spark-class")
HOSTS = ("127.0.0.1", "127.0.0.2")
START_SECONDS = 300.0
_TICK = 0.1
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def linked_home(folder: Path) -> str:
    """Spark's home for a local cluster, whose executors keep their files below it."""
    home = folder / "home"
    home.mkdir()
    for each in SPARK_HOME.iterdir():
        (home / each.name).symlink_to(each)
    return str(home)


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """The address of a master that knows both of its workers."""
    port, page = free_port(), free_port()
    master = f"spark://{HOSTS[0]}:{port}"
    listen = ["--host", HOSTS[0], "--port", str(port), "--webui-port", str(page)]
    with ExitStack() as stack:
        command = [SPARK_CLASS, "org.apache.spark.deploy.master.Master", *listen]
        stack.enter_context(started(command, folder / "master.log", _environment(HOSTS[0])))
        for host in HOSTS:
            stack.enter_context(_worker(folder / host, host, master))
        _wait_for_workers(f"http://{HOSTS[0]}:{page}/json/", folder)
        yield master


@contextmanager
def _worker(folder: Path, host: str, master: str) -> Iterator[None]:
    folder.mkdir()
    listen = ["--host", host, "--webui-port", str(free_port(host))]
    room = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder)]
    command = [SPARK_CLASS, "org.apache.spark.deploy.worker.Worker", *listen, *room, master]
    with started(command, folder / "worker.log", _environment(host)):
        yield


def free_port(host: str = HOSTS[0]) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _environment(host: str) -> dict[str, str]:
    return environment(SPARK_HOME=str(SPARK_HOME), SPARK_DAEMON_MEMORY="256m", SPARK_LOCAL_IP=host)


def _wait_for_workers(page: str, folder: Path) -> None:
    last = time.monotonic() + START_SECONDS
    while _alive_workers(page) < len(HOSTS):
        if time.monotonic() > last:
            said = (folder / "master.log").read_text(errors="replace")
            raise TimeoutError(f"the workers did not come: {said[-4_000:]}")
        time.sleep(_TICK)


def _alive_workers(page: str) -> int:
    try:
        with _opener.open(page, timeout=10) as answer:
            return int(answer.read().count(b'"ALIVE"')) - 1
    except (urllib.error.URLError, OSError):
        return 0
