"""The sides of a benchmark of the sink, which take each batch of one query in turn."""

from __future__ import annotations

import gc
import os
import random
import statistics
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Literal

import psutil

from bench.harness import say, touch_memory
from bench.sink_places import Put
from tests.resident import forget_peak, peak, resident

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame

    from bench.sink_places import Place

_HEADER = (
    "| side | s a batch: median, min | rows/s | files put | MB put | bytes put for one of values"
    " | workers' CPU s |"
)
# Python workers collect garbage after their tasks, which is not the next side's to wait for.
_PAUSE = 0.3
# More than a side takes anew for a batch of a million rows.
_BATCH_BYTES = 256 * 2**20
Who = Literal["driver", "JVM", "workers"]


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a process when a batch began, and the most it had until the batch ended."""

    before: int
    peak: int


@dataclass(frozen=True, slots=True)
class Turn:
    """What one batch took a side."""

    seconds: float
    put: Put
    worker_cpu: float
    memory: dict[Who, Memory]


@dataclass(slots=True)
class Side:
    """One way to store batches."""

    name: str
    place: Place
    write: Callable[[DataFrame, int], object]
    turns: list[Turn] = field(default_factory=list)

    @property
    def counted(self) -> list[Turn]:
        """All turns but the first, which makes arrays and starts Python workers."""
        return self.turns[1:] or self.turns

    @property
    def seconds(self) -> float:
        return statistics.median(turn.seconds for turn in self.counted)

    @property
    def objects(self) -> float:
        return statistics.median(turn.put.objects for turn in self.counted)

    @property
    def size(self) -> float:
        return statistics.median(turn.put.size for turn in self.counted)

    @property
    def worker_cpu(self) -> float:
        return statistics.median(turn.worker_cpu for turn in self.counted)

    def take(self, df: DataFrame, batch: int) -> None:
        before = self.place.seen()
        # Spark keeps workers for each environment: what one side leaves in them is not another's.
        df.sparkSession.sparkContext.environment["BENCH_SIDE"] = self.name
        gc.collect()
        sleep(_PAUSE)
        touch_memory(_BATCH_BYTES)
        processes = Processes()
        cpu, began = processes.worker_cpu(), perf_counter()
        self.write(df, batch)
        seconds = perf_counter() - began
        memory, cpu = processes.memory(), processes.worker_cpu() - cpu
        put = Put.between(before, self.place.seen())
        self.turns.append(Turn(seconds, put, cpu, memory))
        say(f"batch {batch}, {self.name}: {seconds:.2f} s, {put.objects} objects")


@dataclass(slots=True)
class Turns:
    """For ``foreachBatch``: gives a batch to all sides, to the first one first at the beginning."""

    sides: Sequence[Side]
    _shuffled: Any = field(default_factory=lambda: random.Random(0))

    def __call__(self, df: DataFrame, batch: int) -> None:
        order = self._shuffled.sample(self.sides, len(self.sides)) if batch else self.sides
        for side in order:
            side.take(df, batch)


class Processes:
    """This process, Spark's, and its Python workers; what they have in memory from now on."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        for each in _processes():
            # Workers come and go by themselves.
            with suppress(OSError, ValueError):
                self._before[each.pid] = resident(each.pid)
                forget_peak(each.pid)

    def worker_cpu(self) -> float:
        """Seconds that workers have run for, and those of them that have ended."""
        total = 0.0
        for each in _processes():
            with suppress(psutil.Error):
                if _who(each) == "workers":
                    times = each.cpu_times()
                    total += times.user + times.system
                    total += times.children_user + times.children_system
        return total

    def memory(self) -> dict[Who, Memory]:
        """Of workers, the largest one."""
        found: dict[Who, Memory] = {}
        for each in _processes():
            with suppress(OSError, ValueError, psutil.Error):
                memory, who = Memory(self._before.get(each.pid, 0), peak(each.pid)), _who(each)
                if who not in found or found[who].peak < memory.peak:
                    found[who] = memory
        return found


def _processes() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _who(process: psutil.Process) -> Who:
    if process.pid == os.getpid():
        return "driver"
    return "JVM" if process.name() == "java" else "workers"


def ratio(side: Side, peer: Side) -> float:
    return peer.seconds / side.seconds


def table(sides: Iterable[Side], rows: int, value_bytes: int) -> list[str]:
    lines = [_HEADER, "|---|---|---|---|---|---|---|"]
    for side in sides:
        fastest = min(turn.seconds for turn in side.counted)
        cells = (
            side.name,
            f"{side.seconds:.2f}, {fastest:.2f}",
            f"{rows / side.seconds:,.0f}",
            f"{side.objects:g}",
            f"{side.size / 1e6:,.2f}",
            f"{side.size / (rows * value_bytes):.2f}",
            f"{side.worker_cpu:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines
