"""Folders of files that a driver, in a process of its own, streams into a repository.

Rows have ids of their own, so that one lost or written twice would show.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import icechunk
import pyarrow as pa
import pyarrow.parquet as pq
import xarray as xr

from icechunk_stream.config import RepositoryConfig
from icechunk_stream.spark import Rows, append, icechunk_sink
from icechunk_stream.storage import local_filesystem_storage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from icechunk_stream.storage import Storage

ROWS = 2_000
LAYOUT = Rows(
    dims={"id": append(on_late="append")}, variables={"value": "int64"}, chunks={"id": 250}
)
# Every chunk is in an object, however small it is.
CONFIG = RepositoryConfig(inline_chunk_threshold_bytes=0)


@dataclass(frozen=True, slots=True)
class StreamFolder:
    """A source with one file for each micro-batch, a repository, a checkpoint, and marks."""

    path: Path

    @property
    def marks(self) -> Path:
        return self.path / "marks"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def storage(self) -> Storage:
        return local_filesystem_storage(str(self.path / "repository"), durability="os")

    def send(self, batch: int, rows: int = ROWS) -> None:
        """One more file, which is one more micro-batch."""
        for folder in (self.path / "source", self.marks):
            folder.mkdir(parents=True, exist_ok=True)
        ids = range(batch * rows, (batch + 1) * rows)
        path = self.path / "source" / f"{batch:04}.parquet"
        pq.write_table(pa.table({"id": ids, "value": [id * id for id in ids]}), path)
        # Spark takes files in the order of their times.
        os.utime(path, (1_700_000_000 + batch,) * 2)

    @property
    def sent(self) -> int:
        """How many batches there are to read."""
        return len(list((self.path / "source").glob("*.parquet")))

    def start(
        self, spark: SparkSession, storage: Storage, checkpoint: str = "", **options: Any
    ) -> StreamingQuery:
        """A query that takes everything that was sent, and stops."""
        checkpoint = checkpoint or str(self.checkpoint)
        given = {"checkpoint_location": checkpoint, "write_mode": "executors", **options}
        sink = icechunk_sink(storage, layout=LAYOUT, app_id="obs", config=CONFIG, **given)
        source = spark.readStream.schema("id long, value long").option("maxFilesPerTrigger", 1)
        rows = source.parquet((self.path / "source").as_uri())
        query = rows.writeStream.foreachBatch(sink).trigger(availableNow=True)
        return query.option("checkpointLocation", checkpoint).start()

    def forget_commit(self, batch: int) -> None:
        """Let Spark not know how a batch ended."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)

    def reference(self) -> icechunk.Repository:
        storage = icechunk.local_filesystem_storage(str(self.path / "repository"))
        return icechunk.Repository.open(storage)

    def assert_every_row_once(self, batches: int, rows: int = ROWS) -> None:
        """The reference reads all rows of the batches, which are in the history in their order."""
        repository = self.reference()
        store = repository.readonly_session("main").store
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = xr.open_zarr(store, consolidated=False).load()
        ids = list(range(batches * rows))
        assert found["id"].values.tolist() == ids
        assert found["value"].values.tolist() == [id * id for id in ids]
        assert self.batches() == list(range(batches))

    def batches(self) -> list[int]:
        """The batch ids in the history, from the first to the last."""
        history = self.reference().ancestry(branch="main")
        found = [each.metadata.get("icechunk_stream") for each in history]
        return [each["batch_id"] for each in found if each][::-1]

    def collect(self) -> int:
        """Let the reference delete what nothing refers to: how many objects of chunks it was."""
        later = datetime.now(UTC) + timedelta(days=1)
        return int(self.reference().garbage_collect(later).chunks_deleted)
