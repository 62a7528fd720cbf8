"""Run the demonstration: ``python -m demo``, or ``make demo``.

Exits with 0 if every row that was sent is in the repository once, and nothing else is.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk
import xarray as xr
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import icechunk_stream
from demo.checks import Snapshot, compare, history, is_every_batch_once
from demo.driver import Halt
from demo.plot import plot
from demo.runs import ROOT, DriverError, Story, run
from demo.stations import Plan, Traffic, traffic

if TYPE_CHECKING:
    from collections.abc import Callable

_KILLED = {
    "before": "its chunks are stored, but the branch does not move to them",
    "after": "it is committed, but Spark does not know",
}


def main(arguments: list[str]) -> int:
    given = _parsed(arguments)
    console = Console(soft_wrap=True, highlight=False)
    began = time.monotonic()
    folder = _emptied(given.out / "run")
    plan = Plan(given.days, given.stations)
    sent = traffic(plan)
    sent.store(folder / "source")
    _introduce(console, plan, sent, folder)
    story = Story()
    try:
        _run(console, folder, plan, story)
    except DriverError as error:
        console.print(str(error), style="red", markup=False)
        return 1
    is_good = _show(console, folder, sent, plan, story)
    picture = given.out / "stations.png"
    plot(picture, _read_with_us(folder), sent.sizes, story)
    console.print(f"\nPlot:        {picture}")
    console.print(f"Repository:  {folder / 'repository'}")
    console.print(f"Driver log:  {folder / 'driver.log'}")
    console.print(f"Took {time.monotonic() - began:.0f} s.")
    return 0 if is_good else 1


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--stations", type=int, default=100)
    parser.add_argument("--out", type=Path, default=ROOT / "demo" / "out", help="for the results")
    return parser.parse_args(arguments)


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder.resolve()


def _introduce(console: Console, plan: Plan, sent: Traffic, folder: Path) -> None:
    console.print(
        f"{plan.stations} stations send hourly readings for {plan.days} days:"
        f" {len(sent.rows):,} rows in {plan.batches} micro-batches,\nout of order, late, some twice"
        f" and some corrected. That makes {len(sent.truth):,} readings.\nA Spark of this machine"
        f" streams them into the Icechunk repository\n  {folder / 'repository'}\nand its driver is"
        " killed (kill -9) in the middle of two batches.\n"
    )


def halts(plan: Plan) -> list[Halt]:
    """One before and one after the write that makes a batch visible."""
    first, second = plan.batches // 3, 2 * plan.batches // 3
    return [Halt(first, "before"), Halt(max(second, first + 1), "after")]


def _run(console: Console, folder: Path, plan: Plan, story: Story) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting Spark", total=plan.batches)
        run(folder, halts(plan), story, _telling(progress, task, story))


def _telling(progress: Progress, task: Any, story: Story) -> Callable[[dict[str, Any]], None]:
    def tell(event: dict[str, Any]) -> None:
        match event:
            case {"event": "ends", "batch": batch, "seconds": seconds}:
                progress.update(task, completed=batch + 1)
                if story.delivery(batch).note:
                    became = "found, and not written again" if seconds is None else "written again"
                    story.delivery(batch).note += f", {became}"
                    progress.print(f"batch {batch} was {became}")
            case {"event": "begins", "batch": batch}:
                progress.update(task, description=f"batch {batch}")
                if story.delivery(batch).note:
                    progress.print(f"batch {batch} comes once more")
            case {"event": "killed", "batch": batch, "when": when}:
                story.delivery(batch).note = f"killed {when} its commit"
                progress.print(f"kill -9 in batch {batch}: {_KILLED[when]}")
                progress.update(task, description="starting Spark again")
            case _:
                pass

    return tell


def _read_with_us(folder: Path) -> xr.Dataset:
    storage = icechunk_stream.local_filesystem_storage(folder / "repository")
    return _opened(icechunk_stream.Repository.open(storage))


def _opened(repository: Any) -> xr.Dataset:
    store = repository.readonly_session("main").store
    found: xr.Dataset = xr.open_zarr(store, consolidated=False).load()
    return found


def _reference(folder: Path) -> Any:
    # It says that local disks are no place for several writers; here is only one.
    icechunk.set_logs_filter("error")
    storage = icechunk.local_filesystem_storage(str(folder / "repository"))
    return icechunk.Repository.open(storage)


def _show(console: Console, folder: Path, sent: Traffic, plan: Plan, story: Story) -> bool:
    reference = _reference(folder)
    snapshots = history(reference)
    _print_batches(console, snapshots, sent.sizes, story)
    results = [
        compare(
            f"icechunk_stream {icechunk_stream.__version__}", _read_with_us(folder), sent.truth
        ),
        compare(f"icechunk {icechunk.__version__}", _opened(reference), sent.truth),
    ]
    console.print("Opened with xarray, and compared row by row:")
    for result in results:
        console.print(str(result), style="green" if result.is_equal else "red")
    in_order = is_every_batch_once(snapshots, plan.batches)
    console.print(
        f"{len(snapshots)} snapshots: the first one is empty, then"
        f" {'each batch once, in order' if in_order else 'NOT each batch once and in order'}",
        style="green" if in_order else "red",
    )
    return in_order and all(result.is_equal for result in results)


def _print_batches(
    console: Console, snapshots: list[Snapshot], rows: dict[int, int], story: Story
) -> None:
    table = Table("batch", "rows", "snapshot", "seconds", "")
    table.columns[2].no_wrap = True
    for snapshot in snapshots:
        if snapshot.batch is None:
            continue
        told = story.delivery(snapshot.batch)
        seconds = "" if told.seconds is None else f"{told.seconds:.2f}"
        count = f"{rows[snapshot.batch]:,}"
        table.add_row(str(snapshot.batch), count, snapshot.id, seconds, told.note)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
