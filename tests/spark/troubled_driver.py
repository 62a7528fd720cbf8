"""A driver whose tasks meet troubles.

Run as ``python -m tests.spark.troubled_driver MASTER FOLDER NAME...``: for each name of ``RUNS``,
it streams what was sent to the folder of that name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.sessions import FOLDERS, SETTINGS
from tests.spark.stream_folders import StreamFolder
from tests.spark.task_troubles import Trouble, TroubledStorage, wait_for_mark

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.storage import Storage

RUNS = {
    "raise-before": Trouble("raise", "before"),
    "raise-after": Trouble("raise", "after"),
    "exit-before": Trouble("exit", "before"),
    "exit-after": Trouble("exit", "after"),
    "twice-after": Trouble("raise", "after", attempts=2),
    "twice-exit-after": Trouble("exit", "after", attempts=2),
    "always": Trouble("raise", "after", attempts=3),
    "cancelled": Trouble("wait", until="go"),
    "killed": Trouble("wait", until="go"),
    "speculative": Trouble("wait", until="stored.1.1.*", partition=1),
}
TASKS = 2
EXTRA = {
    "spark.eventLog.enabled": "false",
    # Tasks stay apart, however few rows they have.
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    # Workers of tasks that are over may go on for so long.
    "spark.python.task.killTimeout": "60s",
    "spark.executor.cores": "1",
    "spark.executor.memory": "900m",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.3",
}


def start_spark(master: str, folder: Path) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("tests")
    places = {name: str(folder / place) for name, place in FOLDERS.items()}
    speculation = {"spark.speculation": str(master.startswith("spark://")).lower()}
    for name, value in (SETTINGS | places | EXTRA | speculation).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(spark: SparkSession, folder: StreamFolder, storage: Storage) -> None:
    folder.start(spark, storage).awaitTermination()


def run_twice(spark: SparkSession, folder: StreamFolder, storage: Storage) -> None:
    """The first time, the query fails."""
    try:
        run(spark, folder, storage)
    except StreamingQueryException as error:
        (folder.path / "failure").write_text(str(error))
    run(spark, folder, folder.storage)


def stop_and_start(spark: SparkSession, folder: StreamFolder, storage: Storage) -> None:
    """Tasks of the stopped query go on while the next one writes the same batch."""
    query = folder.start(spark, storage)
    wait_for_all(folder.marks, "met")
    query.stop()
    again = folder.start(spark, folder.storage)
    (folder.marks / "go").touch()
    wait_for_all(folder.marks, "stored")
    again.awaitTermination()


def wait_for_all(marks: Path, event: str) -> None:
    """Return once all tasks of a batch came to a point."""
    for partition in range(TASKS):
        wait_for_mark(marks, f"{event}.{partition}.*")


SPECIAL: dict[str, Callable[[SparkSession, StreamFolder, Storage], None]] = {
    "always": run_twice,
    "cancelled": stop_and_start,
}


def main(master: str, folder: Path, names: list[str]) -> None:
    spark = start_spark(master, folder)
    for name in names:
        stream = StreamFolder(folder / name)
        storage = TroubledStorage(stream.storage, stream.marks, RUNS[name])
        SPECIAL.get(name, run)(spark, stream, storage)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
