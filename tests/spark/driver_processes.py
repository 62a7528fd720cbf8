"""Drivers in processes of their own, which end with their tests."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.spark.sessions import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 30


def environment(**more: str) -> dict[str, str]:
    """That of a process that starts a Spark of its own."""
    # A pytest process whose Spark is Spark Connect says so in its environment.
    inherited = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    # Executors find the tests' modules as the driver does.
    ours = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK, "PYTHONPATH": str(ROOT)}
    return inherited | ours | more


@contextmanager
def module_process(
    folder: Path, module: str, *arguments: str, **more: str
) -> Iterator[psutil.Popen]:
    """A module that runs with arguments; what it says goes to the file ``said`` of a folder."""
    command = [sys.executable, "-m", module, *arguments]
    with started(command, folder / "said", environment(**more)) as process:
        yield process


@contextmanager
def started(command: list[str], said: Path, environment: dict[str, str]) -> Iterator[psutil.Popen]:
    """A process that is gone afterwards, with all that it started."""
    with said.open("wb") as output:
        process = psutil.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            stop(process)


def stop(process: psutil.Popen) -> None:
    """End a process that the caller started, and its descendants."""
    family = [*_descendants(process), process]
    for each in family:
        _terminate(each)
    for each in psutil.wait_procs(family, STOP_SECONDS)[1]:
        each.kill()
    process.wait(STOP_SECONDS)


def finished(process: psutil.Popen, said: Path) -> None:
    """Wait for a process that must end well."""
    assert process.wait() == 0, said.read_text(errors="replace")[-8_000:]


def _descendants(process: psutil.Popen) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _terminate(process: psutil.Process) -> None:
    try:
        process.terminate()
    except psutil.NoSuchProcess:
        return
