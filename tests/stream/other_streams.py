"""A stream in a process of its own: ``python -m tests.stream.other_streams``, its job on its input.

It says when it is ready, begins when it is told to, and then says how each batch ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icechunk_stream.config import RepositoryConfig
from icechunk_stream.effects import sleep
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Rows, Variable, append, regular
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.concurrency.places import OURS, Place, storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from icechunk_stream.storage import Storage
    from icechunk_stream.testing.storage_calls import Call as StorageCall

ROOT = Path(__file__).parents[2]
ROWS = 3
# Cells that every stream writes again and again; others are written once.
RECURRING = 25
LAYOUT = Rows(
    dims={"id": append("append"), "slot": regular(0, 1)},
    variables={
        "value": Variable("int64", dims=("id",)),
        "level": Variable("int64", dims=("slot",)),
    },
    chunks={"id": 64, "slot": 32},
)


@dataclass(frozen=True, slots=True)
class Job:
    """Batches of one stream; of the streams of a repository, each has a ``number`` from 0 up.

    A ``pause`` is how long each attempt takes to store chunks. Without a count of batches, the
    stream goes on until the file ``stop`` is there.
    """

    place: Place
    number: int
    spec: int
    batches: int | None
    pause: float = 0.0
    stop: str = ""

    @property
    def app(self) -> str:
        return f"stream-{self.number}"


def rows_of(number: int, batch: int) -> dict[str, list[int]]:
    """Ids that no other batch has, a cell that no other one writes, and two that many do."""
    ids = [(batch * ROWS + row) * 2 + number for row in range(ROWS)]
    recurring = batch % RECURRING
    slots = [2 * at + number for at in (batch, recurring, recurring + RECURRING)]
    return {"id": ids, "slot": slots, "value": [id * id for id in ids], "level": [batch] * ROWS}


def run(job: Job) -> Iterator[tuple[int, int, str]]:
    """Each batch, how many races it lost, and its snapshot."""
    # Chunks of a slow stream are objects, which take a while to store.
    config = RepositoryConfig(inline_chunk_threshold_bytes=0) if job.pause else None
    settings = StreamSettings(LAYOUT, job.app, spec_version=job.spec, config=config)
    batches = Batches.open(_storage(job), settings)
    batch = 0
    while not _is_over(job, batch):
        rows = RowsInMemory(pa.table(rows_of(job.number, batch)))
        outcome = batches.write(Call(job.app, f"query of {job.app}", batch), rows)
        assert isinstance(outcome, Committed), outcome
        yield batch, outcome.lost_races, outcome.snapshot_id
        batch += 1


def _is_over(job: Job, batch: int) -> bool:
    return Path(job.stop).exists() if job.batches is None else batch >= job.batches


def _storage(job: Job) -> Storage:
    wrapped = WrappedStorage(storage(OURS, job.place))

    def hold(call: StorageCall) -> None:
        if call.method == "put" and call.key.startswith("chunks/"):
            sleep(job.pause)

    wrapped.script.before = hold if job.pause else None
    return wrapped


class Stream:
    """The process of a job; it ends with the block."""

    def __init__(self, job: Job) -> None:
        command = [sys.executable, "-m", "tests.stream.other_streams"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._say(json.dumps(asdict(job)))

    def begin(self) -> None:
        self._say("go")

    def receive(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process of a stream has ended"
        return json.loads(line)

    def rest(self) -> list[Any]:
        """What is left to be said, once the process has ended."""
        said, _ = self._process.communicate(timeout=300)
        assert self._process.returncode == 0
        return [json.loads(line) for line in said.splitlines()]

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def at_once(jobs: Sequence[Job]) -> list[list[Any]]:
    """What streams say that begin together, once all of them are ready."""
    streams = [Stream(job) for job in jobs]
    try:
        assert [stream.receive() for stream in streams] == ["ready"] * len(streams)
        for stream in streams:
            stream.begin()
        return [stream.rest() for stream in streams]
    finally:
        for stream in streams:
            stream.end()


def main() -> None:
    job = Job(**json.loads(sys.stdin.readline()))
    print(json.dumps("ready"), flush=True)
    sys.stdin.readline()
    for said in run(job):
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
