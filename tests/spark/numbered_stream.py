"""A stream of rows with ids of their own, so that one lost or written twice would show."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
from pyspark.errors import StreamingQueryException

from icechunk_stream.spark import Adopt, IcechunkSink, Rows, append, icechunk_sink, regular
from tests.concurrency.places import OURS, THEIRS, Place, local, opened, storage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from icechunk_stream.storage import Storage

APP = "obs"
ROWS = 5
LAYOUT = Rows(dims={"id": append(on_late="append")}, variables={"value": "int64"}, chunks={"id": 8})
START = datetime(2024, 1, 1, tzinfo=UTC)
MINUTES, WINDOW = 10, 60
WINDOWS = Rows(dims={"time": regular("2024-01-01", "1h")}, variables={"value": "int64"})
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])
_ADOPT = re.compile(r"adopt=Adopt\(query_id='([^']+)', first_batch=(\d+)\)")


class NumberedStream:
    """A folder of files, one micro-batch each; a repository; checkpoints by their names."""

    def __init__(
        self, spark: SparkSession, folder: Path, spec: int = 2, place: Place | None = None
    ) -> None:
        self.spark, self.spec = spark, spec
        self.source, self.repository = folder / "source", folder / "repository"
        self.checkpoint = folder / "checkpoint"
        self.place = place or local(self.repository)
        self.branch = "main"
        self.source.mkdir(exist_ok=True)
        self.sent = self.files = 0

    def send(self, rows: int = ROWS) -> None:
        """One more file, which is one more micro-batch."""
        path = self.source / f"{self.files:06}.parquet"
        pq.write_table(rows_of(range(self.sent, self.sent + rows)), path)
        # Spark takes files in the order of their times.
        os.utime(path, (1_700_000_000 + self.files,) * 2)
        self.sent, self.files = self.sent + rows, self.files + 1

    def sink(self, to: Storage | None = None, **options: Any) -> IcechunkSink:
        options.setdefault("checkpoint_location", str(self.checkpoint))
        return icechunk_sink(
            to or storage(OURS, self.place),
            app_id=APP,
            branch=self.branch,
            spec_version=self.spec,
            **{"layout": LAYOUT, **options},
        )

    def rows(self) -> DataFrame:
        reader = self.spark.readStream.schema("id long, value long")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(self.source))

    def windows(self) -> DataFrame:
        """What is known by now of each hour, where a row is ten minutes."""
        seconds = f"timestamp_seconds({START.timestamp():.0f} + id * {MINUTES * 60}) as at"
        hours = f"window(at, '{WINDOW} minutes').start as time"
        rows = self.rows().selectExpr(seconds, "value").selectExpr(hours, "value")
        return rows.groupBy("time").agg({"value": "sum"}).toDF("time", "value")

    def start(self, sink: IcechunkSink) -> StreamingQuery:
        """A query that waits for more, until it is stopped."""
        writer = self.rows().writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(processingTime="0 seconds").start()

    def run(
        self, rows: DataFrame | None = None, to: Storage | None = None, **options: Any
    ) -> IcechunkSink:
        """Take everything that was sent, and stop."""
        sink = self.sink(to, **options)
        self.take(sink, rows or self.rows())
        return sink

    def update(self, to: Storage | None = None, **options: Any) -> IcechunkSink:
        """Take everything that was sent into the windows that it changes."""
        sink = self.sink(to, layout=WINDOWS, **options)
        self.take(sink, self.windows(), "update")
        return sink

    def take(self, sink: IcechunkSink, rows: DataFrame, mode: str = "append") -> None:
        writer = rows.writeStream.foreachBatch(sink).outputMode(mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def refusal(self, rows: DataFrame | None = None, **options: Any) -> str:
        """What a query says that may not go on."""
        with pytest.raises(StreamingQueryException) as refused:
            self.run(rows, **options)
        return str(refused.value)

    def keep_checkpoint(self) -> Path:
        """A copy of the checkpoint as it is now."""
        copy = self.checkpoint.with_name(f"{self.checkpoint.name}-kept")
        shutil.copytree(self.checkpoint, copy)
        return copy

    def restore_checkpoint(self, copy: Path) -> None:
        shutil.rmtree(self.checkpoint)
        copy.rename(self.checkpoint)

    def forget_commit(self, batch: int) -> None:
        """Let Spark not know how a batch ended."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)

    def reference(self) -> Any:
        return opened(THEIRS, self.place)

    def history(self) -> list[Any]:
        """The snapshots of the branch, the last one first."""
        return list(self.reference().ancestry(branch=self.branch))

    def batches(self) -> list[int]:
        """The batch ids in the history, from the first to the last."""
        found = [each.metadata.get("icechunk_stream") for each in self.history()]
        return [each["batch_id"] for each in found if each][::-1]

    def read(self) -> xr.Dataset:
        """What the reference reads, without a warning."""
        store = self.reference().readonly_session(self.branch).store
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found: xr.Dataset = xr.open_zarr(store, consolidated=False).load()
            return found

    def assert_holds(self, ids: range | list[int]) -> None:
        """These rows are there, each once and with its value."""
        found = self.read()
        assert sorted(found["id"].values.tolist()) == list(ids)
        assert (found["value"] == found["id"] ** 2).all()

    def assert_all_there(self) -> None:
        self.assert_holds(range(self.sent))

    def assert_windows(self) -> None:
        """Every window has all its rows, each once."""
        totals: Counter[datetime] = Counter()
        for id in range(self.sent):
            hour = START + id * MINUTES // WINDOW * timedelta(minutes=WINDOW)
            totals[hour.replace(tzinfo=None)] += id * id
        found = self.read()
        times = found["time"].values.astype("datetime64[s]").tolist()
        assert dict(zip(times, found["value"].values.tolist(), strict=True)) == totals


def rows_of(ids: range) -> pa.Table:
    return pa.table([list(ids), [id * id for id in ids]], SCHEMA)


def advised(message: str) -> Adopt:
    """The hand-over that a refusal names, as a user would copy it."""
    query_id, first_batch = _ADOPT.findall(message)[0]
    return Adopt(query_id, int(first_batch))
