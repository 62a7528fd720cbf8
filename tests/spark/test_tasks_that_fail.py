"""Tasks that fail, are cancelled, or go on when nobody waits for them: what they leave is orphans.

All streams of a test run in one driver with ``local[2,3]``, so that tasks have three attempts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.driver_processes import finished, module_process
from tests.spark.stream_folders import StreamFolder
from tests.spark.task_troubles import marks_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.compat

BATCHES = 2


def run(folder: Path, names: list[str]) -> None:
    for name in names:
        for batch in range(BATCHES):
            StreamFolder(folder / name).send(batch)
    driver = "tests.spark.troubled_driver"
    with module_process(folder, driver, "local[2,3]", str(folder), *names) as process:
        finished(process, folder / "said")


def assert_troubled(stream: StreamFolder, attempts: int, tasks: int = 2) -> None:
    """So many attempts of so many tasks or more failed."""
    met = {(mark.task, mark.attempt) for mark in marks_in(stream.marks, "met.*")}
    assert {attempt for _, attempt in met} == set(range(attempts))
    assert len({task for task, _ in met}) == len(met) >= tasks * attempts


def assert_leaves_orphans(stream: StreamFolder, count: int) -> None:
    """Every row is there once, also when the reference has deleted what nothing refers to."""
    stream.assert_every_row_once(BATCHES)
    assert stream.collect() == count
    stream.assert_every_row_once(BATCHES)


def written_by(stream: StreamFolder, is_lost: Callable[[int], bool]) -> int:
    """How many objects those attempts stored whose number is lost."""
    return sum(is_lost(mark.attempt) for mark in marks_in(stream.marks, "stored.*"))


def check_failing(folder: Path, name: str, attempts: int) -> None:
    stream = StreamFolder(folder / name)
    assert_troubled(stream, attempts)
    lost = written_by(stream, lambda attempt: attempt < attempts)
    assert bool(lost) == name.endswith("after")
    assert_leaves_orphans(stream, lost)


def check_given_up(folder: Path) -> None:
    """No attempt ended well: the query failed, and nothing was committed before its restart."""
    stream = StreamFolder(folder / "always")
    assert "the disk is gone: try again" in (stream.path / "failure").read_text()
    # The first task that fails for the last time ends the other, which may have begun no third one.
    assert_troubled(stream, 3, tasks=1)
    assert_leaves_orphans(stream, written_by(stream, lambda _: True))


def check_cancelled(folder: Path) -> None:
    """The tasks of a stopped query stored their chunks while it ran again."""
    stream = StreamFolder(folder / "cancelled")
    stored = marks_in(stream.marks, "stored.*")
    assert stored
    assert {mark.task for mark in stored} <= {mark.task for mark in marks_in(stream.marks, "met.*")}
    assert_leaves_orphans(stream, len(stored))


def test_failing_and_cancelled_tasks_leave_only_orphans(tmp_path: Path) -> None:
    run(tmp_path, ["raise-before", "exit-after", "always", "cancelled"])
    check_failing(tmp_path, "raise-before", attempts=1)
    check_failing(tmp_path, "exit-after", attempts=1)
    check_given_up(tmp_path)
    check_cancelled(tmp_path)


@pytest.mark.soak
def test_tasks_may_fail_in_any_way_as_long_as_one_attempt_ends_well(tmp_path: Path) -> None:
    run(tmp_path, ["raise-after", "exit-before", "twice-after", "twice-exit-after"])
    check_failing(tmp_path, "raise-after", attempts=1)
    check_failing(tmp_path, "exit-before", attempts=1)
    check_failing(tmp_path, "twice-after", attempts=2)
    check_failing(tmp_path, "twice-exit-after", attempts=2)
