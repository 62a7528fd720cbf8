"""A task that writes one batch, in a process of its own, and says how much memory that took.

Run as ``python -m tests.stream.measured_writer FOLDER KIND``, after ``create``. Rows come as Spark
gives them: in Arrow batches that know nothing of units, those of one unit side by side, in any
order within it. They are made while they are asked for: what is measured is the writer's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zarr

import icechunk_stream as ic
from icechunk_stream.storage import local_filesystem_storage
from icechunk_stream.stream.packs import PackWriter
from icechunk_stream.stream.refs_batch import ref_tables
from tests.resident import forget_peak, peak, resident
from tests.stream.cells import plan_of, stored_refs

ROWS_PER_BATCH = 10_000
PACK = 8 * 2**20
_STRIDE = 1_234_567
BASE = -1.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of each unit, which lie side by side along the first dimension.

    More rows than a unit has cells give each cell its value again. Lengths of units are powers of
    two: any odd number then leads through all cells.
    """

    rows: tuple[int, ...]
    variables: int = 1
    unit: tuple[int, int] = (1024, 2048)

    @property
    def cells(self) -> int:
        return self.unit[0] * self.unit[1]

    @property
    def shape(self) -> tuple[int, int]:
        return self.unit[0] * len(self.rows), self.unit[1]

    @property
    def names(self) -> list[str]:
        return [f"v{number}" for number in range(self.variables)]

    @property
    def decoded_chunk(self) -> int:
        """Bytes of a chunk with all variables, as rows of one cell have them all."""
        return self.cells * 4 * self.variables

    @property
    def arrow_batch(self) -> int:
        return ROWS_PER_BATCH * (16 + 4 * self.variables)

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return sum(self.rows) * (16 + 4 * self.variables)


_CELLS = 2**21
BATCHES = {
    # Twenty times what a task may take.
    "long": Batch((_CELLS,) * 24),
    # Nine rows of ten are for one chunk, and the others leave chunks as they are in part.
    "crowded": Batch((*(_CELLS // 8,) * 8, _CELLS * 9), variables=3),
}


def cells_of(batch: Batch, first: int, count: int) -> np.ndarray[Any, Any]:
    """The cells that rows of a unit go to, in their order."""
    return (np.arange(first, first + count) * _STRIDE) % batch.cells


def value_at(unit: int, cells: np.ndarray[Any, Any], variable: int) -> np.ndarray[Any, Any]:
    """What rows give a cell: bits that no codec makes shorter by much."""
    mixed = (cells + 1) * (2 * (unit * 7 + variable) + 2_654_435_761)
    values: np.ndarray[Any, Any] = (mixed ^ (mixed >> 13)) % 2**24
    return values.astype(np.float32)


def record_batches(batch: Batch) -> Iterator[pa.RecordBatch]:
    """Pieces of as many rows each, wherever units end."""
    waiting: list[pa.RecordBatch] = []
    for unit, rows in enumerate(batch.rows):
        for first in range(0, rows, ROWS_PER_BATCH):
            waiting.append(_rows(batch, unit, first, min(ROWS_PER_BATCH, rows - first)))
            if sum(map(len, waiting)) >= ROWS_PER_BATCH:
                joined = pa.concat_batches(waiting)
                yield joined.slice(0, ROWS_PER_BATCH)
                waiting = [joined.slice(ROWS_PER_BATCH)]
    yield pa.concat_batches(waiting)


def _rows(batch: Batch, unit: int, first: int, count: int) -> pa.RecordBatch:
    cells = cells_of(batch, first, count)
    height, width = batch.unit
    columns: dict[str, Any] = {"#y": unit * height + cells // width, "#x": cells % width}
    for number, name in enumerate(batch.names):
        columns[name] = value_at(unit, cells, number)
    return pa.RecordBatch.from_pydict(columns)


def create(folder: Path, batch: Batch) -> None:
    """Arrays that hold something in every cell."""
    storage = local_filesystem_storage(str(folder), durability="os")
    session = ic.Repository.create(storage, spec_version=2).writable_session("main")
    for name in batch.names:
        made = zarr.create_array(
            session.store,
            name=name,
            shape=batch.shape,
            chunks=batch.unit,
            dtype="f4",
            fill_value=0.0,
            dimension_names=("y", "x"),
        )
        made[...] = BASE
    session.commit("base")


def write(folder: Path, batch: Batch) -> None:
    storage = local_filesystem_storage(str(folder), durability="os")
    repository = ic.Repository.open(storage)
    plan = plan_of(repository.readonly_session("main"), batch.names, ("y", "x"))
    packs = PackWriter(storage, pack_size=PACK)
    tables = ref_tables(stored_refs(record_batches(batch), plan, packs))
    session = repository.writable_session("main")
    for path, table in tables.items():
        session.edits.set_refs(path, table)
    session.commit("batch")


def main(folder: Path, kind: str) -> None:
    # What a process needs once is there before the batch that is measured.
    warm = Batch((64, 8), BATCHES[kind].variables, (8, 8))
    create(folder / "warm", warm)
    write(folder / "warm", warm)
    before = resident()
    forget_peak()
    write(folder / "measured", BATCHES[kind])
    print(json.dumps({"before": before, "peak": peak()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
