"""Drivers that deliver batches as Spark does, and may be killed at a call of their storage."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from icechunk_stream.config import RepositoryConfig
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Rows, append, regular
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.testing.storage_calls import Fail, LoseAnswer
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.places import OURS, Place, storage

if TYPE_CHECKING:
    from pathlib import Path

    from icechunk_stream.testing.storage_calls import Call as StorageCall
    from icechunk_stream.testing.storage_calls import Script

Kind = Literal["appends", "updates"]
When = Literal["before", "after"]

BATCHES, ROWS = 10, 7
START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
LAYOUTS: dict[Kind, Rows] = {
    "appends": Rows(dims={"id": append()}, variables={"value": "int64"}, chunks={"id": 16}),
    "updates": Rows(
        dims={"time": regular("2024-01-01", "1h")}, variables={"value": "int64"}, chunks={"time": 4}
    ),
}
# So small ones would be in manifests.
PACKED = RepositoryConfig(inline_chunk_threshold_bytes=0)
_processes = multiprocessing.get_context("forkserver")
# What drivers import is there when they begin.
_processes.set_forkserver_preload([__name__])


@dataclass(frozen=True, slots=True)
class Point:
    """The ``nth`` call of a storage that matches the patterns."""

    when: When
    nth: int
    method: str = "*"
    key: str = "*"


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver that is killed at a point, if there is one."""

    place: Place
    folder: Path
    spec: int
    kind: Kind
    killed: Point | None = None


def rows_of(kind: Kind, batch: int) -> pa.Table:
    return pa.table(appended(batch) if kind == "appends" else updated(batch))


def appended(batch: int) -> dict[str, list[int]]:
    """Rows whose ids no other batch has: a batch written twice would show."""
    ids = [batch * ROWS + row for row in range(ROWS)]
    return {"id": ids, "value": [id * id for id in ids]}


def updated(batch: int) -> dict[str, list[Any]]:
    """Windows with what is known of them by now: the last of three batches knows best."""
    windows = range(max(batch - 2, 0), batch + 1)
    times = [START.replace(tzinfo=None) + window * HOUR for window in windows]
    return {"time": times, "value": [100 * window + batch for window in windows]}


def kill_at(script: Script, point: Point) -> None:
    """Kill this process at a point."""
    fault = Fail(_kill) if point.when == "before" else LoseAnswer(_kill)
    script.disturb(fault, method=point.method, key=point.key, nth=point.nth)


def run(driver: Driver) -> int | None:
    """Run a driver in a process of its own: how it ended."""
    process = _processes.Process(target=_drive, args=(driver,))
    process.start()
    process.join()
    return process.exitcode


def calls_of(driver: Driver) -> int:
    """How many calls the driver made, which ran to its end."""
    return int((driver.folder / "calls").read_text())


def _drive(driver: Driver) -> None:
    wrapped = WrappedStorage(storage(OURS, driver.place), in_order=True)
    if driver.killed is not None:
        kill_at(wrapped.script, driver.killed)
    settings = StreamSettings(LAYOUTS[driver.kind], "obs", spec_version=driver.spec, config=PACKED)
    _deliver(Batches.open(wrapped, settings), driver)
    (driver.folder / "calls").write_text(str(wrapped.script.count))


def _deliver(batches: Batches, driver: Driver) -> None:
    done = driver.folder / "commits"
    done.mkdir(parents=True, exist_ok=True)
    for batch in range(len(list(done.iterdir())), BATCHES):
        rows = RowsInMemory(rows_of(driver.kind, batch))
        batches.write(Call("obs", "query", batch), rows)
        (done / str(batch)).touch()


def _kill(_: StorageCall) -> Exception:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process is gone")
