"""The driver of the stream: what a user writes, and where it waits to be killed.

Run as ``python -m demo.driver FOLDER REPORTS [BATCH (before|after)]``. REPORTS is a file descriptor
that gets a line of JSON for everything that happens. With BATCH, it stops there and waits: before
or after the one write that makes the batch visible.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from demo.stations import COLUMNS
from icechunk_stream.spark import Rows, append, icechunk_sink, regular
from icechunk_stream.storage import local_filesystem_storage
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.testing.storage_calls import Fail, LoseAnswer
from icechunk_stream.testing.wrapped_storage import WrappedStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icechunk_stream.spark import IcechunkSink
    from icechunk_stream.storage import Storage
    from icechunk_stream.testing.storage_calls import Call

LOOPBACK = "127.0.0.1"
LAYOUT = Rows(
    dims={"time": regular("2026-01-01", "1h"), "station": append()},
    variables={"temp": "float32", "wind": "float32"},
    chunks={"time": 96, "station": 50},
    duplicates="last",
    order_by="sent",
)


@dataclass(frozen=True)
class Halt:
    """Where to wait for the end."""

    batch: int
    when: str


class Reports:
    """What the parent process is told."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w")

    def tell(self, event: str, **details: object) -> None:
        print(json.dumps({"event": event, **details}), file=self._file, flush=True)


class Batch:
    """The sink, which tells what became of each batch."""

    def __init__(
        self, sink: IcechunkSink, storage: Storage, reports: Reports, halt: Halt | None
    ) -> None:
        self._sink = sink
        self._storage = storage
        self._reports = reports
        self._halt = halt

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        if self._halt is not None and batch_id == self._halt.batch:
            self._prepare_to_halt(self._halt)
        self._reports.tell("begins", batch=batch_id)
        self._sink(df, batch_id)
        outcome = self._sink.last_commit
        seconds = outcome.seconds if isinstance(outcome, Committed) else None
        self._reports.tell("ends", batch=batch_id, seconds=seconds)

    def _prepare_to_halt(self, halt: Halt) -> None:
        assert isinstance(self._storage, WrappedStorage)
        fault = Fail(self._wait) if halt.when == "before" else LoseAnswer(self._wait)
        # Spec v1 moves a branch by writing its ref.
        self._storage.script.disturb(fault, method="put_if", key="refs/*")

    def _wait(self, call: Call) -> Exception:
        self._reports.tell("halts", key=call.key)
        time.sleep(600)
        raise AssertionError("nobody came to kill this process")


def start_spark(folder: Path) -> SparkSession:
    """Two cores of this machine, nothing beyond the loopback device."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK}
    settings = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    builder = SparkSession.builder.master("local[2]").appName("icechunk_stream demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(folder: Path, reports: Reports, halt: Halt | None) -> None:
    spark = start_spark(folder / "spark")
    checkpoint = str(folder / "checkpoint")
    storage: Storage = local_filesystem_storage(folder / "repository", durability="os")
    if halt is not None:
        storage = WrappedStorage(storage)
    sink = icechunk_sink(storage, layout=LAYOUT, app_id="stations", checkpoint_location=checkpoint)
    reports.tell("ready")
    readings = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    rows = readings.parquet(str(folder / "source"))
    batch = Batch(sink, storage, reports, halt)
    query = rows.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    reports.tell("done")
    spark.stop()


if __name__ == "__main__":
    given = sys.argv[3:]
    main(
        Path(sys.argv[1]),
        Reports(int(sys.argv[2])),
        Halt(int(given[0]), given[1]) if given else None,
    )
