"""Batches of observations: all stations at some times, in any order, as files of Parquet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icechunk_stream.spark import Rows, fixed, regular

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

NAMES = ("v0", "v1", "v2")
DDL = "time timestamp, station int, v0 float, v1 float, v2 float"
ROW_BYTES = 8 + 4 + 4 * len(NAMES)
VALUE_BYTES = 4 * len(NAMES)
START = np.datetime64("2024-01-01T00:00:00", "us")
STEP = np.timedelta64(60_000_000, "us")
_FILE_ROWS = 500_000
_FILES = 2
# Spark takes files in the order of their times.
_FIRST_TIME = 1_700_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What a batch has, and the chunks (times, stations) that it goes to."""

    steps: int = 100
    stations: int = 10_000
    chunks: tuple[int, int] = (50, 2_500)

    @property
    def rows(self) -> int:
        return self.steps * self.stations

    @property
    def files(self) -> int:
        """One for each core, or as many as keep each of them small."""
        return max(_FILES, self.rows // _FILE_ROWS)

    @property
    def layout(self) -> Rows:
        return Rows(
            dims={
                "time": regular("2024-01-01", "1min"),
                "station": fixed(np.arange(self.stations, dtype=np.int32)),
            },
            variables=dict.fromkeys(NAMES, "float32"),
            chunks=dict(zip(("time", "station"), self.chunks, strict=True)),
        )

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows a batch: {self.steps:,} new times (a regular dimension) x"
            f" {self.stations:,} stations (a fixed one, int32), {len(NAMES)} variables of float32,"
            f" chunks of {self.chunks[0]} x {self.chunks[1]:,}, rows in random order,"
            " incompressible values"
        )


def write_batches(folder: Path, shape: Shape, count: int) -> None:
    """The files of all batches, of which each has the next times."""
    folder.mkdir()
    for number in range(count):
        columns = _columns(shape, number)
        step = -(-shape.rows // shape.files)
        for part in range(shape.files):
            path = folder / f"{number:04}-{part:04}.parquet"
            pq.write_table(columns.slice(part * step, step), path)
            at = _FIRST_TIME + number * shape.files + part
            os.utime(path, (at, at))


def read_batches(spark: SparkSession, folder: Path, shape: Shape) -> DataFrame:
    """A stream of the batches."""
    reader = spark.readStream.schema(DDL).option("maxFilesPerTrigger", shape.files)
    return reader.parquet(str(folder))


def _columns(shape: Shape, number: int) -> pa.Table:
    random = np.random.default_rng(number)
    order = random.permutation(shape.rows)
    columns: dict[str, Any] = {
        "time": START + (number * shape.steps + order // shape.stations) * STEP,
        "station": (order % shape.stations).astype(np.int32),
    }
    columns |= {name: random.standard_normal(shape.rows, np.float32) for name in NAMES}
    table = pa.table(columns)
    return table.set_column(0, "time", table["time"].cast(pa.timestamp("us", tz="UTC")))
