"""A driver that streams a topic into a repository, and may be killed at the swap of a batch.

Run as ``python -m tests.spark.kafka_driver FOLDER ADDRESS (before|after) NTH``: before or after the
NTH swap of the repository's state the process is gone; 0 is never. It leaves a mark for each batch,
and ends once FOLDER/sent is there and everything was taken.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from icechunk_stream.spark import Rows, append, icechunk_sink
from icechunk_stream.storage import local_filesystem_storage
from icechunk_stream.testing.storage_calls import Fail, LoseAnswer
from scripts.maven import KAFKA_CONNECTOR, jars_of
from tests.spark.driver_storage import DriverStorage
from tests.spark.sessions import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from icechunk_stream.storage import Storage
    from icechunk_stream.testing.storage_calls import Call

TOPIC = "readings"
BATCH = 200
LAYOUT = Rows(
    dims={"id": append(on_late="append")}, variables={"value": "int64"}, chunks={"id": 64}
)


def kill(_: Call) -> Exception:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process is gone")


def storage_of(folder: Path, when: str, nth: int) -> Storage:
    inner = local_filesystem_storage(str(folder / "repository"), durability="os")
    storage = DriverStorage(inner)
    if nth:
        fault = Fail(kill) if when == "before" else LoseAnswer(kill)
        storage.script.disturb(fault, method="put_if", key="repo", nth=nth)
    return storage


def records(spark: SparkSession, address: str) -> DataFrame:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    source = source.option("subscribe", TOPIC).option("startingOffsets", "earliest")
    found = source.option("maxOffsetsPerTrigger", BATCH).load()
    return found.selectExpr(
        "cast(cast(key as string) as long) as id", "cast(cast(value as string) as long) as value"
    )


def start(folder: Path, rows: DataFrame, storage: Storage) -> StreamingQuery:
    checkpoint = str(folder / "checkpoint")
    sink = icechunk_sink(
        storage,
        layout=LAYOUT,
        app_id="obs",
        checkpoint_location=checkpoint,
        write_mode="executors",
        spec_version=2,
    )

    def write(df: DataFrame, batch_id: int) -> None:
        sink(df, batch_id)
        (folder / "marks" / str(batch_id)).touch()

    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return query.trigger(processingTime="0 seconds").start()


def main(folder: Path, address: str, when: str, nth: int) -> None:
    (folder / "marks").mkdir(exist_ok=True)
    spark = start_spark(folder, jars_of(KAFKA_CONNECTOR))
    query = start(folder, records(spark, address), storage_of(folder, when, nth))
    while not (folder / "sent").exists() and query.isActive:
        time.sleep(0.05)
    query.processAllAvailable()
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
