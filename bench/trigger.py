"""Small micro-batches: what the sink adds to a trigger, early and late in the life of a stream."""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from bench.harness import Report, in_fresh_process, say
from bench.readings import ROWS, STATIONS, STEPS, STEPS_PER_CHUNK, layout_of, rows_of, table_of
from bench.sessions import CORES, spark_session
from icechunk_stream import local_filesystem_storage
from icechunk_stream.spark import icechunk_sink
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.row_source import RowsInMemory
from tests.resident import resident

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

Durability = Literal["os", "fsync"]
PEER = (
    f"a `foreachBatch` that names the rows and does nothing with them. {ROWS:,} rows a batch,"
    f" {STEPS} new times of {STATIONS}"
    f" stations (an `append` dimension; times are `regular` or `append` too), 3 variables of"
    f" float32, chunks of {STEPS_PER_CHUNK} x {STATIONS}, local disk. One query on"
    f" `local[{CORES}]` (`rate-micro-batch`, trigger of 0 seconds) gives its batches to one side"
    " after the other, in another order each round, and each side goes on with its own rows;"
    " medians of Spark's own `triggerExecution`, without the first batches of each side"
)
ADDED_MS = {"os": 80, "fsync": 130}
LATER_TARGET, GROWTH_TARGET = 1.15, 1.0
NO_OP = "no-op"
_WARM_UP = 3
_EARLY = slice(200, 300)
_LATE, _LATE_COUNT = 2_000, 100
_SAMPLED = 100
# Until then arenas of malloc and threads are still being made.
_SETTLED = 1_000
_MIB = 2**20


# -- triggers of Spark ----------------------------------------------------------------------------


@dataclass(slots=True)
class Side:
    """One thing that a trigger may do."""

    name: str
    work: Callable[[DataFrame, int, int], object]
    batches: list[int] = field(default_factory=list)

    def take(self, df: DataFrame, batch: int) -> None:
        self.work(df, batch, len(self.batches))
        self.batches.append(batch)


@dataclass(slots=True)
class Turns:
    """For ``foreachBatch``: the first batch goes to all sides, each other one to the next side.

    A stream must not begin with a later one.
    """

    sides: list[Side]
    waiting: list[Side] = field(default_factory=list)
    shuffled: Any = field(default_factory=lambda: random.Random(0))

    def __call__(self, df: DataFrame, batch: int) -> None:
        if not batch:
            for side in self.sides:
                side.take(df, batch)
            return
        if not self.waiting:
            self.waiting = self.shuffled.sample(self.sides, len(self.sides))
        self.waiting.pop().take(df, batch)


def sides_in(folder: Path) -> Iterator[Side]:
    yield Side(NO_OP, lambda df, _batch, number: rows_of(df, number))
    for times, durability, spec in product(("regular", "append"), get_args(Durability), (1, 2)):
        name = f"{times} times, {durability}, v{spec}"
        sink = icechunk_sink(
            local_filesystem_storage(str(folder / name), durability=durability),
            layout=layout_of(times),
            app_id="bench",
            checkpoint_location=str(folder / "checkpoint"),
            # The batches in between go to the other sides.
            allow_gaps=True,
            spec_version=spec,
        )
        yield Side(name, partial(_sink, sink))


def _sink(sink: Any, df: DataFrame, batch: int, number: int) -> None:
    sink(rows_of(df, number), batch)


def triggers(folder: Path, rounds: int) -> dict[str, float]:
    """Milliseconds of each side's triggers: the median."""
    sides = list(sides_in(folder))
    wanted = 1 + len(sides) * (rounds + _WARM_UP)
    with spark_session(folder) as spark:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
        rows = source.option("numPartitions", CORES).load()
        query = rows.writeStream.foreachBatch(Turns(sides)).trigger(processingTime="0 seconds")
        query = query.option("checkpointLocation", str(folder / "checkpoint")).start()
        while query.isActive and (query.lastProgress or {"batchId": 0})["batchId"] < wanted:
            sleep(0.2)
        found = {each["batchId"]: each["durationMs"] for each in query.recentProgress}
        query.stop()
        if query.exception() is not None:
            raise query.exception()
    return {
        side.name: statistics.median(
            found[batch]["triggerExecution"] for batch in side.batches[_WARM_UP : _WARM_UP + rounds]
        )
        for side in sides
    }


def trigger_table(found: dict[str, float]) -> Iterator[str]:
    yield "| trigger | ms: median | added to a no-op | target |"
    yield "|---|---|---|---|"
    for name, milliseconds in found.items():
        asked = [str(limit) for word, limit in ADDED_MS.items() if word in name.split(", ")]
        added = milliseconds - found[NO_OP]
        yield f"| {name} | {milliseconds:.0f} | **{added:.0f}** | {' '.join(asked)} |"


# -- many batches without Spark -------------------------------------------------------------------


def long_stream(times: str, spec: int, batches: int) -> None:
    """Print the seconds of each batch of a stream, and what this process had in memory."""
    seconds: list[float] = []
    memory: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        storage = local_filesystem_storage(folder, durability="os")
        settings = StreamSettings(layout_of(times), "bench", spec_version=spec)
        stream = Batches.open(storage, settings)
        for number in range(batches):
            rows = RowsInMemory(table_of(number))
            began = perf_counter()
            stream.write(Call("bench", "query", number), rows)
            seconds.append(perf_counter() - began)
            if number % _SAMPLED == _SAMPLED - 1:
                gc.collect()
                memory.append((number + 1, resident()))
    sys.stdout.write(json.dumps({"seconds": seconds, "memory": memory}))


def growth(memory: list[tuple[int, int]]) -> float:
    """MiB that 1,000 batches add, once the stream has settled."""
    settled = [sample for sample in memory if sample[0] >= _SETTLED] or memory
    batches, sizes = np.array(settled, float).T
    if len(settled) < 2:
        return float("nan")
    return float(np.polyfit(batches, sizes, 1)[0]) * 1000 / _MIB


def stream_table(batches: int) -> Iterator[str]:
    yield (
        "| without Spark, os | ms a batch: 201-300 | 1,901-2,000 | late over early | target"
        " | RSS MiB at the end | MiB for 1,000 batches more | target |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for times, spec in product(("regular", "append"), (1, 2)):
        say(f"{batches:,} batches, {times} times, v{spec}")
        found = in_fresh_process(__file__, [times, str(spec), str(batches)])
        seconds = found["seconds"]
        parts = seconds[_EARLY], seconds[:_LATE][-_LATE_COUNT:]
        early, late = (1000 * statistics.median(part) for part in parts)
        memory = found["memory"]
        cells = (
            f"{times} times, v{spec}",
            f"{early:.1f}",
            f"{late:.1f}",
            f"**{late / early:.2f}**",
            f"at most {LATER_TARGET:g}",
            f"{memory[-1][1] / _MIB:.0f}",
            f"**{growth(memory):.2f}**",
            f"under {GROWTH_TARGET:g}",
        )
        yield f"| {' | '.join(cells)} |"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer batches; results are not kept")
    parser.add_argument("--batches", type=int, default=5_000, help="of the streams without Spark")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.batches = min(options.batches, 400)
    return options


def main() -> None:
    options = parsed()
    if options.child:
        times, spec, batches = options.child
        long_stream(times, int(spec), int(batches))
        return
    report = Report("trigger", PEER, options.quick)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        found = triggers(Path(folder), 5 if options.quick else 40)
    report.lines += [*trigger_table(found), "", *stream_table(options.batches)]
    report.note(
        f"{options.batches:,} batches of each stream in a fresh process; growth is the slope of"
        f" what is resident after every {_SAMPLED} batches, from the {_SETTLED}th on"
    )
    report.write()


if __name__ == "__main__":
    main()
