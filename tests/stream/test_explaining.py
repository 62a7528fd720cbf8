"""What a batch is said to do, against what it then does."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from icechunk_stream.config import RepositoryConfig
from icechunk_stream.storage import in_memory_storage, local_filesystem_storage
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.explaining import explain
from icechunk_stream.stream.layout import Rows, Variable, append, fixed, regular
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.stream.rejected import BadRowsPolicy
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.testing.storage_calls import READS
from icechunk_stream.testing.wrapped_storage import WrappedStorage

if TYPE_CHECKING:
    from pathlib import Path

START, HOUR = datetime(2024, 1, 1), timedelta(hours=1)  # noqa: DTZ001 - labels without a zone
STATIONS = ["ams", "ber", "cph", "dub", "edi"]
CHUNK = {"time": 5, "station": 3}
LAYOUT = Rows(
    dims={"time": regular("2024-01-01", "1h"), "station": append()},
    variables={
        "temp": "float32",
        "count": "int32",
        "height": Variable("float64", dims=("station",)),
    },
    chunks=CHUNK,
)
SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us")),
        ("station", pa.string()),
        ("temp", pa.float32()),
        ("count", pa.int32()),
        ("height", pa.float64()),
    ]
)


def table(hours: range, stations: list[str], seed: int = 0, nulls: float = 0.0) -> pa.Table:
    """A shuffled row for every hour and station, some of them without a temperature."""
    random = np.random.default_rng(seed)
    pairs = list(product(hours, stations))
    order = random.permutation(len(pairs))
    times = [START + pairs[at][0] * HOUR for at in order]
    names = [pairs[at][1] for at in order]
    temp = pa.array(
        random.normal(size=len(pairs)).astype("f4"), mask=random.random(len(pairs)) < nulls
    )
    count = random.integers(1, 9, len(pairs)).astype("i4")
    heights = [float(len(STATIONS) - STATIONS.index(name)) for name in names]
    return pa.table([times, names, temp, count, heights], SCHEMA)


BATCHES = [
    table(range(7), STATIONS[:2]),
    table(range(5, 12), STATIONS[:4], seed=1, nulls=0.5),
    table(range(10, 15), STATIONS[:3], seed=2),
    table(range(3, 4), STATIONS[3:], seed=3),
    table(range(15, 17), STATIONS, seed=4),
    # All cells that there are of chunks which are there: nothing of them is read.
    table(range(15, 18), STATIONS, seed=5),
    table(range(0), STATIONS),
]


class Model:
    """Which cells of an array were set so far, by its dimensions' labels in their order."""

    def __init__(self) -> None:
        self.stations: list[str] = []
        self.hours = 0
        self.units: set[tuple[int, int]] = set()

    def place(self, rows: pa.Table, variable: str) -> tuple[int, int, int, int]:
        """Chunks, chunks rewritten, distinct cells, and cells of the chunks in the array."""
        names = rows["station"].to_pylist()
        hours = [(time - START) // HOUR for time in rows["time"].to_pylist()]
        self.stations += sorted(set(names) - set(self.stations))
        self.hours = max([self.hours, *(hour + 1 for hour in hours)])
        cells = {
            (hour, self.stations.index(name))
            for hour, name, value in zip(hours, names, rows[variable].to_pylist(), strict=True)
            if value is not None
        }
        by_unit: dict[tuple[int, int], int] = {}
        for hour, at in cells:
            unit = hour // CHUNK["time"], at // CHUNK["station"]
            by_unit[unit] = by_unit.get(unit, 0) + 1
        inside = {unit: self._inside(*unit) for unit in by_unit}
        rewritten = sum(by_unit[unit] < inside[unit] for unit in by_unit if unit in self.units)
        self.units |= set(by_unit)
        return len(by_unit), rewritten, len(cells), sum(inside.values())

    def _inside(self, at: int, beside: int) -> int:
        times = min(self.hours - at * CHUNK["time"], CHUNK["time"])
        return times * min(len(self.stations) - beside * CHUNK["station"], CHUNK["station"])


def settings(layout: Rows = LAYOUT, **options: Any) -> StreamSettings:
    return StreamSettings(layout, "obs", group="/data", **options)


@pytest.mark.parametrize("threshold", [0, 512])
@pytest.mark.parametrize("spec", [1, 2])
def test_a_batch_does_what_was_said_and_saying_it_writes_nothing(
    tmp_path: Path, spec: int, threshold: int
) -> None:
    inner = local_filesystem_storage(str(tmp_path / "repository"), durability="os")
    storage = WrappedStorage(inner)
    config = RepositoryConfig(inline_chunk_threshold_bytes=threshold)
    given = settings(spec_version=spec, config=config)
    models = {"temp": Model(), "count": Model()}
    tip = None
    for number, rows in enumerate(BATCHES):
        storage.script.forget()
        said = explain(storage, given, RowsInMemory(rows))
        assert {call.method for call in storage.script.calls} <= READS
        assert (tmp_path / "repository").exists() == bool(number)
        assert (said.commit.batch_id, said.commit.tip) == (number, tip)
        assert said.is_new == (number == 0)

        batches = Batches.open(storage, given)
        storage.script.forget()
        done = batches.write(Call("obs", "query", number), RowsInMemory(rows))
        assert isinstance(done, Committed)
        tip = done.snapshot_id
        assert said.refusal is None
        assert said.objects is not None
        writes = [call for call in storage.script.calls if call.method not in READS]
        assert said.objects.count == len(writes)
        assert said.chunks == done.chunks
        assert said.rows == done.counts.received == len(rows)
        for array in said.arrays[:2]:
            wanted = models[array.column].place(rows, array.column)
            found = array.chunks, array.rewritten, array.cells_given, array.cells_written
            assert found == wanted


def test_the_first_batch_of_a_repository_says_what_it_makes() -> None:
    storage = in_memory_storage()
    layout = replace(LAYOUT, dims={**LAYOUT.dims, "station": fixed(STATIONS)})
    said = explain(storage, settings(layout), RowsInMemory(BATCHES[0]))
    assert list(storage.list("")) == []
    assert said.is_new
    assert said.new_labels == {"time": 7, "station": 5}
    assert [(dim.path, dim.dtype, dim.is_new) for dim in said.dims] == [
        ("/data/time", "int64", True),
        ("/data/station", "string", True),
    ]
    assert [(each.path, each.dtype, each.chunk, each.is_new) for each in said.arrays] == [
        ("/data/temp", "float32", (5, 3), True),
        ("/data/count", "int32", (5, 3), True),
        ("/data/height", "float64", (3,), True),
    ]
    assert said.commit.query_id is None
    assert "which is to be made" in str(said)


def test_bad_rows_are_counted_by_reason_and_the_failure_is_foretold() -> None:
    rows = BATCHES[0].to_pylist()
    rows[0]["station"] = None
    rows[1]["time"] = rows[1]["time"] + timedelta(minutes=1)
    rows[2]["station"] = None
    bad = pa.Table.from_pylist(rows, SCHEMA)
    said = explain(in_memory_storage(), settings(), RowsInMemory(bad))
    assert (said.rows, said.bad.count) == (len(rows), 3)
    assert {(group.column, group.count) for group in said.bad.groups} == {
        ("station", 2),
        ("time", 1),
    }
    assert said.objects is None
    assert said.refusal is not None
    assert said.refusal.startswith("BadRowsError: ")
    dropping = settings(bad_rows=BadRowsPolicy("drop"))
    told = explain(in_memory_storage(), dropping, RowsInMemory(bad))
    assert told.refusal is None
    assert told.arrays[0].cells_given == len(rows) - 3


def test_values_that_do_not_fit_and_late_labels_are_bad_rows() -> None:
    storage = in_memory_storage()
    layout = Rows(dims={"id": append()}, variables={"value": "int8"}, chunks={"id": 4})
    given = settings(layout)
    known = pa.table({"id": [5, 6], "value": [1, 2]})
    Batches.open(storage, given).write(Call("obs", "query", 0), RowsInMemory(known))
    said = explain(storage, given, RowsInMemory(pa.table({"id": [3, 7, 8], "value": [1, 999, 2]})))
    assert {(group.column, group.count) for group in said.bad.groups} == {("id", 1), ("value", 1)}
    assert said.new_labels == {"id": 2}


def test_rows_that_contradict_each_other_are_foretold() -> None:
    rows = pa.concat_tables([BATCHES[0], table(range(7), STATIONS[:2], seed=5)])
    said = explain(in_memory_storage(), settings(), RowsInMemory(rows))
    assert said.refusal is not None
    assert said.refusal.startswith("ConflictingRowsError: ")


def test_a_batch_much_smaller_than_a_chunk_is_warned_of_with_numbers() -> None:
    storage = in_memory_storage()
    layout = Rows(
        dims=LAYOUT.dims, variables={"temp": "float32"}, chunks={"time": 50, "station": 5}
    )
    given = settings(layout)
    first = explain(storage, given, RowsInMemory(table(range(1), STATIONS)))
    assert first.amplification == 1
    assert first.arrays[0].batches_per_chunk == 50
    (warning,) = first.warnings
    assert "2.0% of the cells" in warning
    assert "about 26 times" in warning
    assert "about 8 times as large (maxOffsetsPerTrigger" in warning
    assert "time: 50 -> 6" in warning
    writer = Batches.open(storage, given)
    writer.write(Call("obs", "query", 0), RowsInMemory(table(range(49), STATIONS)))
    last = explain(storage, given, RowsInMemory(table(range(49, 50), STATIONS)))
    assert last.amplification == 50
    assert len(last.warnings) == 1
    whole = explain(storage, given, RowsInMemory(table(range(50, 100), STATIONS)))
    assert (whole.amplification, whole.rewritten, whole.warnings) == (1, 0, ())


def test_deletes_and_nulls_that_clear_touch_their_chunks() -> None:
    storage = in_memory_storage()
    keeping = Rows(dims=LAYOUT.dims, variables={"temp": "float32"}, chunks=CHUNK)
    rows = table(range(3), STATIONS[:3], nulls=1.0)
    assert explain(storage, settings(keeping), RowsInMemory(rows)).chunks == 0
    clearing = replace(keeping, on_null="fill")
    said = explain(storage, settings(clearing), RowsInMemory(rows))
    assert said.arrays[0].cells_given == 9
    deleting = rows.append_column("#delete", pa.array([True] + [None] * 8))
    assert explain(storage, settings(keeping), RowsInMemory(deleting)).arrays[0].cells_given == 1


def test_a_missing_branch_is_told() -> None:
    storage = in_memory_storage()
    Batches.open(storage, settings()).write(Call("obs", "query", 0), RowsInMemory(BATCHES[0]))
    said = explain(storage, settings(branch="dev"), RowsInMemory(BATCHES[1]))
    assert (said.is_new, said.commit.tip, said.commit.batch_id) == (False, None, 1)
