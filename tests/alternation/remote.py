"""Drives icechunk 1.1.21 in a process of its own, which takes calls for as long as it lives."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import icechunk

from tests.alternation.driver import Driver


@dataclass(frozen=True)
class Broken:
    """What went wrong in the process, as text: its errors are of classes that we do not have."""

    text: str


class Worker:
    """Calls methods of drivers there as if they were here."""

    def __init__(self, python: str, folder: str) -> None:
        self._process = subprocess.Popen(
            [python, "-c", "from tests.alternation import remote; remote.main()"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def drive(self, folder: str) -> RemoteDriver:
        self.ask("drive", folder)
        return RemoteDriver(self)

    def ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        pickle.dump((name, arguments, named), questions)
        questions.flush()
        answer = pickle.load(answers)
        assert not isinstance(answer, Broken), f"icechunk 1.1.21 failed: {answer.text}"
        return answer

    def close(self) -> None:
        self._process.communicate()


class RemoteDriver:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return partial(self._worker.ask, name)


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    icechunk.set_logs_filter("off")
    driver: Driver | None = None
    while questions.peek(1):  # type: ignore[attr-defined]  # a buffered reader
        name, arguments, named = pickle.load(questions)
        if name == "drive":
            driver = Driver(icechunk, *arguments)
            answer = None
        else:
            answer = _answer(driver, name, arguments, named)
        pickle.dump(answer, answers)
        answers.flush()


def _answer(driver: Driver | None, name: str, arguments: Any, named: Any) -> Any:
    try:
        return getattr(driver, name)(*arguments, **named)
    except Exception:  # noqa: BLE001 - whoever asked fails with it
        return Broken(traceback.format_exc())


def main() -> None:
    """Nothing but answers goes into the pipe."""
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, pipe)
