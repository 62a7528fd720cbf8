"""A task says what it stored once it is stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import zarr

import icechunk_stream as ic
from icechunk_stream.spark.parcels import unpacked
from icechunk_stream.spark.task_work import UnitWriter
from icechunk_stream.stream.packs import ChunkPlace
from tests.stream.cells import plan_of
from tests.stream.slow_storage import SlowStorage

CELLS = 400


def test_a_task_tells_of_chunks_that_are_stored() -> None:
    storage = SlowStorage()
    repository = ic.Repository.create(storage)
    session = repository.writable_session("main")
    zarr.create_array(
        session.store, name="temp", shape=(CELLS,), dtype="f8", dimension_names=("station",)
    )
    session.commit("array")
    plan = plan_of(repository.readonly_session("main"), ["temp"], ("station",))
    values = np.random.default_rng(1).random(CELLS)
    rows = pa.table({"#station": np.arange(CELLS), "temp": values})
    storage.is_slow = True
    told = 0
    for report in UnitWriter(plan, ChunkPlace(storage, 0), None)(rows.to_batches()):
        for refs in report.column("refs").drop_null().to_pylist():
            told += len(unpacked(refs))
            assert storage.chunks == 1
    assert told == 1
