"""A client of a Spark Connect server.

Run as ``python -m tests.spark.connect_client URL FOLDER CHECKPOINT STEP...``. A step is a mode of
writing, to run the stream of a folder; "untold", to run it while the sink knows no checkpoint;
"send", for one more batch; or "forget", to let Spark not know how the last batch ended.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.stream_folders import StreamFolder

TRIES = 4
TOO_SLOW = "failed to connect back"


def take(step: str, spark: SparkSession, stream: StreamFolder, checkpoint: str) -> None:
    match step:
        case "send":
            stream.send(stream.sent)
        case "forget":
            stream.forget_commit(stream.sent - 1)
        case "untold":
            run(spark, stream, checkpoint, {"checkpoint_location": None})
        case mode:
            run(spark, stream, checkpoint, {"write_mode": mode})


def run(
    spark: SparkSession, stream: StreamFolder, checkpoint: str, options: dict[str, Any]
) -> None:
    """Spark gives its Python ten seconds to start, which a busy machine may not have."""
    for tries_left in reversed(range(TRIES)):
        try:
            query = stream.start(spark, stream.storage, checkpoint, **options)
        except PySparkException as error:
            if not tries_left or TOO_SLOW not in str(error):
                raise
        else:
            query.awaitTermination()
            return


def main(url: str, folder: Path, checkpoint: str, steps: list[str]) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    for step in steps:
        take(step, spark, StreamFolder(folder), checkpoint)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
