"""A Spark that cannot write Delta tables, and what a quarantine says to it.

Run as ``python -m tests.spark.without_delta FOLDER``. It prints two messages of a Spark without
Delta's jars, and two of one with the jars and without the settings.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.spark.quarantine import (
    Quarantine,
    QuarantineKey,
    check_delta,
    store_bad_rows,
)
from scripts.maven import DELTA, jars_of
from tests.spark.sessions import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = QuarantineKey("obs", "query", 0)
ROWS = pa.table({"id": [1], "bad_column": ["id"], "bad_reason": ["is null"]})


def say(spark: SparkSession, quarantine: Quarantine) -> None:
    try:
        check_delta(spark, quarantine)
    except InvalidInputError as error:
        print(error)
    try:
        store_bad_rows(spark, quarantine, ROWS, KEY)
    except InvalidInputError as error:
        print(error)


def main(folder: Path) -> None:
    spark = start_spark(folder)
    quarantine = Quarantine(str(folder / "bad"))
    say(spark, quarantine)
    for jar in jars_of(DELTA):
        spark.sql(f"ADD JAR '{jar}'")
    say(spark, quarantine)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
