"""What a fresh process does with a hierarchy: open it, look a chunk up, commit to one array."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.commit_bases import local_storage
from bench.commit_refs import Archive, Layout

if TYPE_CHECKING:
    from collections.abc import Callable

    # The steps in their order.
    Steps = dict[str, Callable[[], object]]

REFS, GROWTH = 10, 10
PER_GROUP = 99
WANTED = "g000/v50"


def groups_of(nodes: int) -> list[str]:
    return [f"g{number:03}" for number in range(nodes // (PER_GROUP + 1))]


def arrays_of(nodes: int) -> list[str]:
    return [f"{group}/v{number:02}" for group in groups_of(nodes) for number in range(PER_GROUP)]


class Work:
    """The steps, each of which goes on with what the one before it made."""

    def __init__(self, module: str, path: Path) -> None:
        self._library = Layout(module).library
        self._storage = local_storage(self._library, path)
        self._archive: Archive | None = None
        self._session: Any = None

    @property
    def steps(self) -> Steps:
        return {"open": self._open, "look-up": self._look_up, "append": self._append}

    def prepare(self, step: str) -> None:
        """What belongs to no step: a batch is set before its commit."""
        if step == "append":
            assert self._archive is not None
            self._session = self._archive.grown(GROWTH, [WANTED])

    def _open(self) -> None:
        repository = self._library.Repository.open(self._storage)
        self._archive = Archive(repository, {WANTED: REFS})
        self._session = repository.writable_session("main")

    def _look_up(self) -> None:
        if self._session.chunk_type(f"/{WANTED}", [REFS // 2]) != self._library.ChunkType.virtual:
            raise ValueError("a reference is not found")

    def _append(self) -> None:
        self._session.commit("batch")


def timed(work: Work) -> dict[str, float]:
    found = {}
    for name, step in work.steps.items():
        work.prepare(name)
        began = perf_counter()
        step()
        found[name] = perf_counter() - began
    return found


def counted(work: Work) -> dict[str, tuple[int, int]]:
    """Calls in all threads, and the blocks that each step leaves in use."""
    found = {}
    for name, step in work.steps.items():
        work.prepare(name)
        gc.collect()
        before = sys.getallocatedblocks()
        calls = calls_of(step)
        gc.collect()
        found[name] = (calls, sys.getallocatedblocks() - before)
    return found


def calls_of(step: Callable[[], object]) -> int:
    """How many functions are called, those in C too."""
    monitoring, calls = sys.monitoring, 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    tool = monitoring.PROFILER_ID
    monitoring.use_tool_id(tool, "calls")
    monitoring.register_callback(tool, monitoring.events.CALL, count)
    monitoring.set_events(tool, monitoring.events.CALL)
    try:
        step()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    return calls


def child(words: list[str]) -> object:
    match words:
        case ["time", module, path]:
            return timed(Work(module, Path(path)))
        case ["count", module, path]:
            return counted(Work(module, Path(path)))
        case _:
            raise ValueError(f"no such child: {words}")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(child(sys.argv[2:])))
