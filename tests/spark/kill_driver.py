"""A driver that is killed at a call of its storage; calls by tasks do not count.

Run as ``python -m tests.spark.kill_driver``, with its job as JSON on standard input. If it gets to
its end it writes how many calls there were to the file ``calls`` of its folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.concurrency.places import OURS, storage
from tests.spark.driver_processes import ROOT, environment
from tests.spark.driver_storage import DriverStorage
from tests.spark.numbered_stream import NumberedStream
from tests.spark.sessions import start_spark
from tests.stream.killed_stream import Point, kill_at

if TYPE_CHECKING:
    from tests.concurrency.places import Place
    from tests.stream.killed_stream import Kind


@dataclass(frozen=True, slots=True)
class Job:
    """A stream that a driver takes to its end, or to its own."""

    folder: str
    place: Place
    spec: int
    kind: Kind
    killed: Point | None = None


def run(job: Job) -> int:
    """Run a driver in a process of its own: how it ended."""
    command = [sys.executable, "-m", "tests.spark.kill_driver"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        input=json.dumps(asdict(job)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode <= 0, done.stderr
    return done.returncode


def main(given: dict[str, Any]) -> None:
    killed = given.pop("killed")
    job = Job(**given, killed=killed and Point(**killed))
    folder = Path(job.folder)
    stream = NumberedStream(start_spark(folder), folder, job.spec, job.place)
    wrapped = DriverStorage(storage(OURS, job.place), in_order=True)
    if job.killed is not None:
        kill_at(wrapped.script, job.killed)
    take(stream, job.kind, to=wrapped)
    (folder / "calls").write_text(str(wrapped.script.count))


def take(stream: NumberedStream, kind: Kind, **options: Any) -> None:
    if kind == "appends":
        stream.run(write_mode="executors", **options)
    else:
        stream.update(**options)


if __name__ == "__main__":
    main(json.load(sys.stdin))
