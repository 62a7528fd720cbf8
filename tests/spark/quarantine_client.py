"""A client of a Spark Connect server, which keeps bad rows and reads them again.

Run as ``python -m tests.spark.quarantine_client URL TABLE BATCH...``. It prints the ids of the rows
in the table, and the batches they are of.
"""

from __future__ import annotations

import sys

import pyarrow as pa
from pyspark.sql import SparkSession

from icechunk_stream.spark.quarantine import (
    Quarantine,
    QuarantineKey,
    check_delta,
    store_bad_rows,
)


def main(url: str, table: str, batches: list[int]) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    quarantine = Quarantine(table)
    check_delta(spark, quarantine)
    for batch in batches:
        ids = pa.array([None, 10 * batch], pa.uint64())
        rows = pa.table({"id": ids, "bad_column": 2 * ["id"], "bad_reason": ["is null", "is late"]})
        store_bad_rows(spark, quarantine, rows, QuarantineKey("obs", "query", batch))
    found = spark.read.format("delta").load(table).select("batch_id", "id").toArrow()
    for batch, id in sorted(found.to_pandas().itertuples(index=False), key=str):
        print(batch, id)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(batch) for batch in sys.argv[3:]])
