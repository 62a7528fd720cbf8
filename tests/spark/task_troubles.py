"""A storage whose writes of chunks meet trouble in the tasks of Spark, and nowhere else.

Every write leaves a mark in a folder that all processes share: ``<event>.<partition>.<attempt>.
<task>.<pid>``, where the event is "began", "met" or "stored".
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from pyspark import TaskContext

from icechunk_stream.errors import StorageError
from icechunk_stream.testing.wrapped_storage import WrappedStorage

if TYPE_CHECKING:
    from pathlib import Path

    from icechunk_stream.storage import BytesLike, Storage

WAIT_SECONDS = 600.0
_TICK = 0.02


@dataclass(frozen=True, slots=True)
class Trouble:
    """What the first attempts of tasks meet before or after each of their writes.

    To wait is to wait for a mark. Without a partition, the tasks of all of them are meant.
    """

    what: Literal["raise", "exit", "wait"]
    when: Literal["before", "after"] = "before"
    attempts: int = 1
    until: str = "go"
    partition: int | None = None

    def concerns(self, task: TaskContext) -> bool:
        is_meant = self.partition in {None, task.partitionId()}
        return is_meant and task.attemptNumber() < self.attempts


@dataclass(frozen=True, slots=True)
class Mark:
    """That a task came to a point of a write."""

    event: str
    partition: int
    attempt: int
    task: int
    pid: int


def marks_in(folder: Path, pattern: str = "*") -> list[Mark]:
    found = [path.name.split(".") for path in sorted(folder.glob(pattern)) if "." in path.name]
    return [Mark(event, *map(int, numbers)) for event, *numbers in found]


def wait_for_mark(folder: Path, pattern: str) -> None:
    """Return once a mark is there whose name matches."""
    last = time.monotonic() + WAIT_SECONDS
    while not any(fnmatchcase(name, pattern) for name in os.listdir(folder)):
        if time.monotonic() > last:
            raise TimeoutError(f"no mark {pattern} in {sorted(os.listdir(folder))}")
        time.sleep(_TICK)


class TroubledStorage(WrappedStorage):
    """Forwards to another storage; chunks that tasks store meet a trouble."""

    def __init__(self, inner: Storage, folder: Path, trouble: Trouble) -> None:
        super().__init__(inner)
        self._folder, self._trouble = folder, trouble

    def __reduce__(self) -> tuple[Any, ...]:
        return TroubledStorage, (self.inner, self._folder, self._trouble)

    def _around(self, inner: Storage) -> TroubledStorage:
        return TroubledStorage(inner, self._folder, self._trouble)

    def _put(self, key: str, data: BytesLike) -> None:
        task = TaskContext.get()
        if task is None or not key.startswith("chunks/"):
            super()._put(key, data)
            return
        self._mark("began", task)
        self._meet("before", task)
        super()._put(key, data)
        self._mark("stored", task)
        self._meet("after", task)

    def _meet(self, when: str, task: TaskContext) -> None:
        trouble = self._trouble
        if when != trouble.when or not trouble.concerns(task):
            return
        self._mark("met", task)
        match trouble.what:
            case "raise":
                raise StorageError("the disk is gone: try again")
            case "exit":
                os._exit(1)
            case "wait":
                wait_for_mark(self._folder, trouble.until)

    def _mark(self, event: str, task: TaskContext) -> None:
        numbers = task.partitionId(), task.attemptNumber(), task.taskAttemptId(), os.getpid()
        (self._folder / ".".join([event, *map(str, numbers)])).touch()
