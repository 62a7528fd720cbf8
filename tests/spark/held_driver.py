"""A driver in a process of its own, which may be held just before it swaps the branch.

Run as ``python -m tests.spark.held_driver FOLDER``; it takes and gives lines of JSON. For the
folder of a stream it runs the stream's query, and answers with the last outcome of the sink and
with the error that ended the query. If it is to hold the first swap it says so, and goes on after
another line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from icechunk_stream.storage import local_filesystem_storage
from tests.spark.driver_processes import ROOT, environment
from tests.spark.driver_storage import DriverStorage
from tests.spark.numbered_stream import NumberedStream
from tests.spark.sessions import start_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from icechunk_stream.testing.storage_calls import Call

HELD = "held"


class Driver:
    """A driver that runs elsewhere."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def start(self, folder: Path, *, hold: bool) -> None:
        self._tell([str(folder), hold])
        if hold:
            assert self._answer() == HELD

    def end(self, *, held: bool) -> dict[str, str]:
        """What became of the query."""
        if held:
            self._tell("go on")
        found: dict[str, str] = self._answer()
        return found

    def _tell(self, value: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps(value), file=self._process.stdin, flush=True)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        return json.loads(line)


@contextmanager
def another_driver(folder: Path) -> Iterator[Driver]:
    command = [sys.executable, "-m", "tests.spark.held_driver", str(folder)]
    log = folder / "driver.log"
    pipe = subprocess.PIPE
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(),
            stdin=pipe,
            stdout=pipe,
            stderr=errors,
            text=True,
        ) as process,
    ):
        yield Driver(process, log)
        # It ends with its input.
        process.communicate()


def run(spark: SparkSession, folder: Path, *, hold: bool) -> dict[str, str]:
    stream = NumberedStream(spark, folder)
    storage = DriverStorage(local_filesystem_storage(str(stream.repository)))
    held: list[Call] = []

    def before(call: Call) -> None:
        if hold and call.method == "put_if" and not held:
            held.append(call)
            answer(HELD)
            sys.stdin.readline()

    storage.script.before = before
    sink, error = stream.sink(storage, write_mode="executors"), ""
    try:
        stream.take(sink, stream.rows())
    except StreamingQueryException as failed:
        error = str(failed)
    return {"outcome": repr(sink.last_commit), "error": error}


def answer(value: Any) -> None:
    print(json.dumps(value), flush=True)


def main(folder: Path) -> None:
    spark = start_spark(folder)
    while line := sys.stdin.readline():
        place, hold = json.loads(line)
        answer(run(spark, Path(place), hold=hold))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
