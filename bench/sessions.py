"""Spark as benchmarks use it: two cores, nothing logged, room for a large batch."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from tests.spark.sessions import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CORES = 2
SETTINGS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "6g",
    "spark.driver.maxResultSize": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """A session that keeps what it stores in a folder."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK}
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench")
    places = {
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.local.dir": folder / "local",
    }
    for name, value in {**SETTINGS, **places}.items():
        builder = builder.config(name, str(value))
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
