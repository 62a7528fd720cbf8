"""A driver that delivers batches as Spark does, and may be killed at a call of its storage.

Run as ``python -m tests.stream.killed_stream FOLDER SPEC (before|after) NTH``; NTH 0 is never. It
prints how many calls there were.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from icechunk_stream.storage import local_filesystem_storage
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Rows, append
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.testing.storage_calls import Fail, LoseAnswer
from icechunk_stream.testing.wrapped_storage import WrappedStorage

if TYPE_CHECKING:
    from icechunk_stream.testing.storage_calls import Call as StorageCall

BATCHES, ROWS = 10, 7
LAYOUT = Rows(dims={"id": append()}, variables={"value": "int64"}, chunks={"id": 16})


def rows_of(batch: int) -> pa.Table:
    """Rows whose ids no other batch has: a batch written twice would show."""
    ids = [batch * ROWS + row for row in range(ROWS)]
    return pa.table({"id": ids, "value": [id * id for id in ids]})


def kill(_: StorageCall) -> Exception:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process is gone")


def main(folder: Path, spec: int, when: str, nth: int) -> None:
    inner = local_filesystem_storage(str(folder / "repository"), durability="os")
    storage = WrappedStorage(inner, in_order=True)
    if nth:
        storage.script.disturb(Fail(kill) if when == "before" else LoseAnswer(kill), nth=nth)
    done = folder / "commits"
    done.mkdir(exist_ok=True)
    batches = Batches.open(storage, StreamSettings(LAYOUT, "obs", spec_version=spec))
    for batch in range(len(list(done.iterdir())), BATCHES):
        call = Call("obs", "query", batch)
        if batches.already_committed(call) is None:
            batches.write(call, RowsInMemory(rows_of(batch)))
        (done / str(batch)).touch()
    print(storage.script.count)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
