"""A driver whose storage may kill it.

Run as ``python -m tests.spark.killed_driver FOLDER MODE NTH``: once the NTH write of its storage is
done, the process is gone; 0 is never.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from icechunk_stream.spark import Rows, append, icechunk_sink
from icechunk_stream.spark.sources import WriteMode
from icechunk_stream.storage import local_filesystem_storage
from icechunk_stream.testing.storage_calls import LoseAnswer
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.spark.sessions import start_spark

if TYPE_CHECKING:
    from icechunk_stream.testing.storage_calls import Call

LAYOUT = Rows(
    dims={"id": append(on_late="append")}, variables={"value": "int64"}, chunks={"id": 16}
)


def kill(_: Call) -> Exception:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process is gone")


def main(folder: Path, mode: WriteMode, nth: int) -> None:
    spark = start_spark(folder)
    inner = local_filesystem_storage(str(folder / "repository"), durability="os")
    storage = WrappedStorage(inner) if nth else inner
    if isinstance(storage, WrappedStorage):
        storage.script.disturb(LoseAnswer(kill), method="put*", nth=nth)
    checkpoint = str(folder / "checkpoint")
    sink = icechunk_sink(
        storage,
        layout=LAYOUT,
        app_id="obs",
        checkpoint_location=checkpoint,
        write_mode=mode,
        spec_version=2,
    )
    source = spark.readStream.schema("id long, value long").option("maxFilesPerTrigger", 1)
    rows = source.parquet(str(folder / "source"))
    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    (mode,) = (each for each in get_args(WriteMode) if each == sys.argv[2])
    main(Path(sys.argv[1]), mode, int(sys.argv[3]))
