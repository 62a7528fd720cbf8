"""Streams on executors of their own: one is killed, and one is slow and overtaken by its copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from tests.spark.driver_processes import finished, module_process
from tests.spark.standalone import linked_home, standalone_cluster
from tests.spark.stream_folders import StreamFolder
from tests.spark.task_troubles import marks_in, wait_for_mark

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

DRIVER = "tests.spark.troubled_driver"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
BATCHES, TASKS = 2, 2


def send_all(stream: StreamFolder) -> None:
    for batch in range(BATCHES):
        stream.send(batch)


def executor_of(driver: psutil.Process, worker: int) -> psutil.Process:
    """The JVM that runs a Python worker, both of them descendants of the driver."""
    lineage = psutil.Process(worker).parents()
    assert driver in lineage
    return next(each for each in lineage if EXECUTOR in each.cmdline())


def assert_rows_once(stream: StreamFolder, orphans: int) -> None:
    """The reference finds at least so many objects to which nothing refers."""
    stream.assert_every_row_once(BATCHES)
    assert stream.collect() >= orphans
    stream.assert_every_row_once(BATCHES)


def test_a_killed_executor_loses_and_doubles_no_row(tmp_path: Path) -> None:
    stream = StreamFolder(tmp_path / "killed")
    send_all(stream)
    command = [DRIVER, "local-cluster[2,1,1024]", str(tmp_path), "killed"]
    with module_process(tmp_path, *command, SPARK_HOME=linked_home(tmp_path)) as driver:
        wait_for_mark(stream.marks, "met.*")
        (victim, *_) = marks_in(stream.marks, "met.*")
        executor_of(driver, victim.pid).kill()
        (stream.marks / "go").touch()
        finished(driver, tmp_path / "said")
    assert "Lost executor" in (tmp_path / "said").read_text()
    stored = marks_in(stream.marks, "stored.*")
    again = {mark.task for mark in stored if mark.partition == victim.partition} - {victim.task}
    assert len(again) == BATCHES
    assert_rows_once(stream, orphans=len(stored) - TASKS * BATCHES)


def test_a_slow_attempt_and_its_copy_both_write_and_every_row_is_there_once(
    tmp_path: Path,
) -> None:
    stream = StreamFolder(tmp_path / "speculative")
    send_all(stream)
    with (
        standalone_cluster(tmp_path) as master,
        module_process(tmp_path, DRIVER, master, str(tmp_path), "speculative") as driver,
    ):
        finished(driver, tmp_path / "said")
    stored = marks_in(stream.marks, "stored.*")
    slow = {mark.task for mark in marks_in(stream.marks, "met.*")}
    copies = {mark.task for mark in stored if mark.attempt == 1 and mark.partition == 1}
    assert len(slow) == BATCHES
    assert slow <= {mark.task for mark in stored}
    assert copies
    assert_rows_once(stream, orphans=1)
