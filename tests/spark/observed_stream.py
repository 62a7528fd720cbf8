"""Streams of observations: a value for every hour and station, in files of one batch each."""

from __future__ import annotations

import os
import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xarray as xr

from icechunk_stream.spark import IcechunkSink, icechunk_sink
from icechunk_stream.stream.layout import Rows, append, regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from icechunk_stream.spark.sources import WriteMode

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
LAYOUT = Rows(
    dims={"time": regular("2024-01-01", "1h"), "station": append()},
    variables={"temp": "float32", "wind": "float64"},
    chunks={"time": 4, "station": 2},
)
SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("station", pa.string()),
        ("temp", pa.float32()),
        ("wind", pa.float64()),
    ]
)


class Stream:
    """A folder of files, one micro-batch each, and the query that reads them."""

    def __init__(
        self, spark: SparkSession, folder: Path, spec_version: int, write_mode: WriteMode
    ) -> None:
        self.spark = spark
        self.source, self.repository = folder / "source", folder / "repository"
        self.checkpoint = folder / "checkpoint"
        self.options: dict[str, Any] = {
            "checkpoint_location": str(self.checkpoint),
            "spec_version": spec_version,
            "write_mode": write_mode,
        }
        self.source.mkdir()
        self.sent: list[pa.Table] = []

    def send(self, rows: pa.Table) -> None:
        path = self.source / f"{len(self.sent):04}.parquet"
        pq.write_table(rows, path)
        # Spark takes files in the order of their times.
        os.utime(path, (1_700_000_000 + len(self.sent),) * 2)
        self.sent.append(rows)

    def sink(self, **options: Any) -> IcechunkSink:
        given = {"layout": LAYOUT, **self.options, **options}
        return icechunk_sink(str(self.repository), app_id="obs", **given)

    def rows(self) -> DataFrame:
        schema = "time timestamp, station string, temp float, wind double"
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.source))

    def run(self, sink: IcechunkSink, rows: DataFrame | None = None, mode: str = "append") -> None:
        """Take everything that was sent, and stop."""
        writer = (rows or self.rows()).writeStream.foreachBatch(sink).outputMode(mode)
        query = writer.option("checkpointLocation", str(self.checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    def forget_commit(self, batch: int) -> None:
        """Let Spark not know how a batch ended."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)

    def reference(self) -> icechunk.Repository:
        storage = icechunk.local_filesystem_storage(str(self.repository))
        return icechunk.Repository.open(storage)

    def read(self) -> xr.Dataset:
        """What the reference reads, without a warning."""
        store = self.reference().readonly_session("main").store
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found: xr.Dataset = xr.open_zarr(store, consolidated=False).load()
            return found

    def batches(self) -> list[int]:
        """The batch ids in the history, from the first to the last."""
        found = [each.metadata.get("icechunk_stream") for each in self.history()]
        return [each["batch_id"] for each in found if each][::-1]

    def history(self) -> Iterator[Any]:
        return iter(list(self.reference().ancestry(branch="main")))


def observations(hours: range, stations: list[str], seed: int) -> pa.Table:
    """A value for every hour and station, in any order."""
    random = np.random.default_rng(seed)
    pairs = [(START + hour * HOUR, station) for hour in hours for station in stations]
    order = random.permutation(len(pairs))
    times, names = zip(*(pairs[at] for at in order), strict=True)
    temp = random.normal(10, 3, len(pairs)).astype("f4")
    return pa.table([times, names, temp, random.random(len(pairs))], SCHEMA)
