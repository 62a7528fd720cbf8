"""How tests start Spark: two cores of this machine, nothing beyond the loopback device."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

LOOPBACK = "127.0.0.1"
SETTINGS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}
FOLDERS = {
    "spark.sql.warehouse.dir": "warehouse",
    "spark.local.dir": "local",
    "spark.eventLog.dir": "events",
}


# A Delta table's log is read by two tasks, where it would be fifty.
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def start_spark(
    folder: Path, jars: Iterable[Path] = (), settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session that keeps what it stores in a folder; jars are added to Spark's own."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK}
    (folder / "events").mkdir(exist_ok=True)
    builder = SparkSession.builder.master("local[2]").appName("tests")
    added = {"spark.jars": ",".join(map(str, jars)), **(settings or {})}
    for name, value in (SETTINGS | added).items():
        builder = builder.config(name, value)
    for name, place in FOLDERS.items():
        builder = builder.config(name, str(folder / place))
    return builder.getOrCreate()
