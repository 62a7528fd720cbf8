"""A library at work in a process of its own: ``python -m tests.concurrency.rivals LIBRARY``.

Each line of its input is a job, each line of its output how that ended.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.concurrency.contents import numbers, write
from tests.concurrency.places import OURS, opened
from tests.oracle.job_process import JobProcess
from tests.oracle.outcomes import outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.concurrency.places import Place

ROOT = Path(__file__).parents[2]


class Rival(JobProcess):
    """The process of a library."""

    def __init__(self, library: str) -> None:
        super().__init__("tests.concurrency.rivals", library)
        self.library = library
        assert self.receive() == "ready"

    def do(self, job: dict[str, Any]) -> Any:
        self.send(job)
        return self.receive()


def at_once(jobs: dict[Rival, dict[str, Any]]) -> list[Any]:
    """Begin all jobs, then wait for them."""
    for rival, job in jobs.items():
        rival.send(job)
    return [rival.receive() for rival in jobs]


class _Worker:
    def __init__(self, library: str) -> None:
        self.library = library
        self.repository: Any = None
        self.session: Any = None

    def open(self, place: Place) -> None:
        self.repository = opened(self.library, place)

    def change(self, branch: str, number: int, index: int) -> None:
        """Open a session, and write a chunk in it."""
        self.session = self.repository.writable_session(branch)
        write(self.session.store, {f"a/c/{index}": numbers(number)})

    def commit(self, message: str) -> str:
        return str(self.session.commit(message))

    def delete(self, branch: str) -> None:
        self.repository.delete_branch(branch)


def main(library: str) -> None:
    if library != OURS:
        importlib.import_module(library).set_logs_filter("error")
    worker = _Worker(library)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        call: Callable[..., Any] = getattr(worker, job.pop("job"))
        time.sleep(job.pop("pause", 0))
        print(json.dumps(outcome(lambda call=call, job=job: call(**job))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
