"""Micro-batches of observations: the sink against what its users would do without it."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import xarray as xr

from bench.harness import Report, say
from bench.observations import NAMES, VALUE_BYTES, Shape, read_batches, write_batches
from bench.sessions import CORES, SETTINGS, spark_session
from bench.sink_peers import (
    ForkAndMerge,
    XarrayAppend,
    by_hand,
    by_index,
    put_by_hand,
    put_by_xarray,
    shuffle,
    take,
)
from bench.sink_places import LATENCY_MS, Places, far_places
from bench.sink_sides import Side, Turns, ratio, table
from icechunk_stream.spark import icechunk_sink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame

    from icechunk_stream.spark.sources import WriteMode

AUTO, EXECUTORS = "ours, auto", "ours, executors"
XARRAY, BY_HAND = "(a) pandas and xarray", "(a) with a pivot by hand"
FORKS, FORKS_BY_HAND = "(b) forks and xarray", "(b) with a pivot by hand"
PARQUET = "(c) Parquet"
TAKEN, SHUFFLED = "Spark alone, to the driver", "Spark alone, to Python by chunk"
_SPEC = 2
_MIB = 2**20
_IDLE_CPU = 0.1
PEER = (
    "(a) `toPandas` with Arrow, `set_index(...).to_xarray()` or a pivot in numpy, and icechunk's"
    " `to_icechunk(append_dim='time')`; (b) rows repartitioned by chunk into as many tasks as"
    " cores, each of which writes its chunks through a fork of one icechunk session, by"
    " `set_index(...).to_xarray()` and `to_icechunk(region=...)` or a pivot in numpy and zarr, and"
    " a merge of the forks (arrays grow in the same commit, after one aggregation for the last"
    " time); (c) `df.write.mode('append').parquet`, snappy. Spark alone stores nothing: `toArrow`,"
    " and a shuffle by chunk into `mapInArrow`. icechunk with its default settings,"
    " all repositories of spec v2 with zarr's default zstd; nothing waits for a disk (ours has"
    f" durability='os'). One query on `local[{CORES}]` gives each micro-batch, read from files of"
    " Parquet by every side anew, to all sides in turn, in another order each batch; the first"
    " batch does not count. Each side has Python workers of its own, and free memory at hand."
    f" Driver memory {SETTINGS['spark.driver.memory']},"
    f" {SETTINGS['spark.sql.shuffle.partitions']} shuffle partitions"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: sides, batches (one more is not counted), and the ratios asked."""

    shape: Shape
    batches: int
    sides: tuple[str, ...]
    targets: Mapping[tuple[str, str], float]


_ALL = (AUTO, EXECUTORS, XARRAY, BY_HAND, FORKS, FORKS_BY_HAND, PARQUET, TAKEN, SHUFFLED)
_TARGETS = {
    (AUTO, XARRAY): 2,
    (AUTO, FORKS): 4,
    (AUTO, PARQUET): 1.2,
    (EXECUTORS, FORKS): 2.2,
    (EXECUTORS, PARQUET): 0.75,
}


def plan_of(options: argparse.Namespace) -> Plan:
    steps, found = _plan(options)
    shape = Shape(steps=steps)
    if options.rows:
        shape = Shape(steps=max(options.rows // shape.stations, 1))
    return Plan(shape, options.batches or found.batches, found.sides, found.targets)


def _plan(options: argparse.Namespace) -> tuple[int, Plan]:
    """Time steps of a batch, and all else."""
    if options.step:
        targets = {(AUTO, XARRAY): 1.5}
        return 1, Plan(Shape(), 30, (AUTO, EXECUTORS, XARRAY, BY_HAND, FORKS), targets)
    if options.large:
        return 2_000, Plan(Shape(), 3, (AUTO, XARRAY, FORKS, PARQUET), {})
    if options.far:
        return 100, Plan(Shape(), 7, (AUTO, EXECUTORS, FORKS), {(AUTO, FORKS): 1 / 0.35})
    return 100, Plan(Shape(), 21, _ALL, _TARGETS)


def make_side(name: str, places: Places, shape: Shape, checkpoint: Path) -> Side:
    place = places.of(f"side-{_ALL.index(name)}")
    match name:
        case "ours, auto":
            write: Any = _ours(place.ours, shape, checkpoint, "auto")
        case "ours, executors":
            write = _ours(place.ours, shape, checkpoint, "executors")
        case "(c) Parquet":
            write = partial(_append_parquet, place.folder)
        case "Spark alone, to the driver":
            write = take
        case "Spark alone, to Python by chunk":
            write = partial(shuffle, shape=shape)
        case "(b) forks and xarray" | "(b) with a pivot by hand":
            put = put_by_xarray if name == FORKS else put_by_hand
            write = ForkAndMerge(place.icechunk, shape, put)
        case _:
            write = XarrayAppend(place.icechunk, shape, by_hand if name == BY_HAND else by_index)
    return Side(name, place, write)


def _ours(storage: Any, shape: Shape, checkpoint: Path, mode: WriteMode) -> Any:
    return icechunk_sink(
        storage,
        layout=shape.layout,
        app_id="bench",
        checkpoint_location=str(checkpoint),
        write_mode=mode,
        spec_version=_SPEC,
    )


def _append_parquet(folder: Path, df: DataFrame, _: int) -> None:
    df.write.mode("append").parquet(str(folder))


@contextmanager
def places_of(options: argparse.Namespace, folder: Path) -> Iterator[Places]:
    if options.far:
        with far_places() as places:
            yield places
        return
    (folder / "sides").mkdir()
    yield Places(folder / "sides")


def run(plan: Plan, places: Places, folder: Path) -> list[Side]:
    """One query over all batches."""
    source, checkpoint = folder / "source", folder / "checkpoint"
    say(f"making {plan.batches + 1} batches")
    write_batches(source, plan.shape, plan.batches + 1)
    with spark_session(folder) as spark:
        sides = [make_side(name, places, plan.shape, checkpoint) for name in plan.sides]
        rows = read_batches(spark, source, plan.shape).writeStream.foreachBatch(Turns(sides))
        rows = rows.option("checkpointLocation", str(checkpoint))
        rows.trigger(availableNow=True).start().awaitTermination()
        check(sides, plan)
    return sides


def check(sides: list[Side], plan: Plan) -> None:
    """All repositories hold the same last batch."""
    last = slice(plan.batches * plan.shape.steps, None)
    arrays = [side for side in sides if side.name not in {PARQUET, TAKEN, SHUFFLED}]
    found = [_read(side).isel(time=last).load() for side in arrays]
    for each in found[1:]:
        xr.testing.assert_equal(found[0], each)
    assert found[0].sizes["time"] == plan.shape.steps
    assert all(np.isfinite(found[0][name]).all() for name in NAMES)


def _read(side: Side) -> xr.Dataset:
    repository = icechunk.Repository.open(side.place.icechunk)
    store = repository.readonly_session("main").store
    found: xr.Dataset = xr.open_zarr(store, consolidated=False, chunks=None)
    return found


def ratios(plan: Plan, sides: list[Side]) -> Iterator[str]:
    yield "| ratio of rows/s | of medians | target |"
    yield "|---|---|---|"
    ours = [side for side in sides if side.name in {AUTO, EXECUTORS}]
    peers = [side for side in sides if side not in ours]
    for side in ours:
        for peer in peers:
            target = plan.targets.get((side.name, peer.name))
            asked = "" if target is None else f"{target:.3g}"
            yield f"| {side.name} over {peer.name} | **{ratio(side, peer):.2f}** | {asked} |"


def notes(plan: Plan, options: argparse.Namespace, sides: list[Side]) -> Iterator[str]:
    yield f"{plan.shape}; {len(sides[0].counted)} batches counted"
    auto = sides[0]
    if options.step:
        amplification = auto.size / (plan.shape.rows * VALUE_BYTES)
        yield f"Amplification of {auto.name}: {amplification:.1f} bytes put for a byte of values"
    if options.far:
        forks = next(side for side in sides if side.name == FORKS)
        yield (
            f"Behind {LATENCY_MS} ms, {auto.name} over {FORKS}:"
            f" {auto.objects / forks.objects:.2f} of the objects (target at most 0.2),"
            f" {auto.seconds / forks.seconds:.2f} of the time (target at most 0.35)"
        )
    if options.large:
        yield f"{auto.name}, first batch, which no other side came before: {_memory(auto)}"
        # Rows that the driver takes pass through no Python worker.
        chosen = "executors" if auto.worker_cpu > _IDLE_CPU else "the driver"
        yield f"auto chose {chosen}"


def _memory(side: Side) -> str:
    found = side.turns[0].memory
    texts = [
        f"{who} {memory.before / _MIB:,.0f} -> {memory.peak / _MIB:,.0f} MiB"
        for who, memory in found.items()
    ]
    return ", ".join(texts) + " (resident before the batch -> peak during it; the largest worker)"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two batches; results are not kept")
    parser.add_argument("--batches", type=int, help="how many are counted")
    parser.add_argument("--rows", type=int, help="rows a batch, 1,000,000 if nothing else is said")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--large", action="store_true", help="20,000,000 rows a batch")
    what.add_argument("--step", action="store_true", help="one time step a batch")
    what.add_argument("--far", action="store_true", help=f"an object store {LATENCY_MS} ms away")
    options = parser.parse_args()
    if options.quick:
        options.batches = options.batches or 2
    return options


def main() -> None:
    options = parsed()
    plan = plan_of(options)
    chosen = [f"--{name}" for name in ("large", "step", "far") if getattr(options, name)]
    chosen += [f"--rows {options.rows}"] if options.rows else []
    report = Report(" ".join(["sink", *chosen]), PEER, options.quick)
    icechunk.set_logs_filter("error")
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        places_of(options, Path(folder)) as places,
    ):
        sides = run(plan, places, Path(folder))
    report.lines += [*table(sides, plan.shape.rows, VALUE_BYTES), "", *ratios(plan, sides)]
    for note in notes(plan, options, sides):
        report.note(note)
    report.write()


if __name__ == "__main__":
    main()
