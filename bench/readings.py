"""Small batches: some stations at the next few times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as sql

from icechunk_stream.spark import Rows, append, regular

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icechunk_stream.stream.layout import Dimension

STEPS, STATIONS = 10, 100
ROWS = STEPS * STATIONS
STEPS_PER_CHUNK = 100
_START = "2024-01-01"
_FIRST = 1_704_067_200
_NAMES = ("v0", "v1", "v2")
# Both have stations that the first batch appends; the second one also appends times.
TIMES: dict[str, Dimension] = {"regular": regular(_START, "1s"), "append": append()}


def layout_of(times: str) -> Rows:
    return Rows(
        dims={"time": TIMES[times], "station": append()},
        variables=dict.fromkeys(_NAMES, "float32"),
        chunks={"time": STEPS_PER_CHUNK, "station": STATIONS},
    )


def table_of(number: int) -> pa.Table:
    """The rows of a batch."""
    rows = np.arange(ROWS)
    seconds = _FIRST + number * STEPS + rows // STATIONS
    times = pa.array(seconds * 1_000_000).cast(pa.timestamp("us", tz="UTC"))
    values = np.random.default_rng(number).standard_normal((len(_NAMES), ROWS), np.float32)
    columns = {"time": times, "station": rows % STATIONS}
    return pa.table(columns | dict(zip(_NAMES, values, strict=True)))


def rows_of(df: DataFrame, number: int) -> DataFrame:
    """The same times and stations, of rows that are numbered in the column ``value``."""
    row = sql.col("value") % ROWS
    seconds = sql.floor(row / STATIONS) + _FIRST + number * STEPS
    values = [(row * 0.5 + at).cast("float").alias(name) for at, name in enumerate(_NAMES)]
    times, stations = sql.timestamp_seconds(seconds), row % STATIONS
    return df.select(times.alias("time"), stations.alias("station"), *values)
