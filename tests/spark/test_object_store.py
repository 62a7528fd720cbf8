"""A stream into a bucket, whose keys only the sink was given."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import icechunk
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr

from icechunk_stream import s3_storage
from icechunk_stream.spark import Rows, append, icechunk_sink
from tests.object_stores.buckets import create_bucket
from tests.secret_marker import MARKER

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from icechunk_stream.spark.sources import WriteMode
    from tests.object_stores.servers import S3Server

pytestmark = pytest.mark.compat

COUNT = 2_000


@pytest.mark.parametrize("write_mode", ["driver", "executors"])
def test_tasks_reach_the_bucket_and_no_event_log_has_its_keys(
    spark: SparkSession,
    spark_folder: Path,
    versitygw: S3Server,
    tmp_path: Path,
    write_mode: WriteMode,
) -> None:
    place: dict[str, Any] = {
        "bucket": create_bucket(versitygw, f"stream-{write_mode}"),
        "prefix": "obs",
        "endpoint_url": versitygw.endpoint,
        "region": versitygw.region,
        "allow_http": True,
        "force_path_style": True,
        "access_key_id": versitygw.access_key_id,
        "secret_access_key": versitygw.secret_access_key,
    }
    rows = pa.table({"id": range(COUNT), "value": [at / 7 for at in range(COUNT)]})
    (tmp_path / "source").mkdir()
    pq.write_table(rows, tmp_path / "source" / "rows.parquet")
    checkpoint = str(tmp_path / "checkpoint")
    sink = icechunk_sink(
        s3_storage(**place),
        layout=Rows(dims={"id": append()}, variables={"value": "float64"}, chunks={"id": 300}),
        app_id="obs",
        checkpoint_location=checkpoint,
        write_mode=write_mode,
    )
    stream = spark.readStream.schema("id long, value double").parquet(str(tmp_path / "source"))
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()

    repository = icechunk.Repository.open(icechunk.s3_storage(**place))
    store = repository.readonly_session("main").store
    found = xr.open_zarr(store, consolidated=False).load()
    assert found["id"].values.tolist() == list(range(COUNT))
    assert found["value"].values.tolist() == rows["value"].to_pylist()
    assert MARKER.encode() in pickle.dumps(sink)
    assert MARKER not in repr(sink)
    logs = [path for path in (spark_folder / "events").rglob("*") if path.is_file()]
    assert logs
    assert not any(MARKER.encode() in path.read_bytes() for path in logs)
