"""Rows travel between tasks as parcels where units are few, and as they are where they are many."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream import Repository, local_filesystem_storage
from icechunk_stream.spark import Rows, fixed, icechunk_sink, parcels, regular, tasks
from icechunk_stream.spark.parcels import Parcels, unpacked
from icechunk_stream.stream.layout import Dimension
from icechunk_stream.stream.outcomes import Committed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

UNITS = st.lists(st.integers(0, 4) | st.integers(2**40, 2**40 + 3) | st.none(), max_size=30)
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "small": (pa.int8(), [-128, 0, 127]),
    "long": (pa.int64(), [-(2**63), 7]),
    "double": (pa.float64(), [0.5, -1e300]),
    "decimal": (pa.decimal128(20, 3), [Decimal("0.125"), Decimal("-99999999999.5")]),
    "day": (pa.date32(), [date(2024, 2, 29)]),
    "time": (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, 6, 30, tzinfo=UTC)]),
    "text": (pa.string(), ["", "a", "ü", "longer " * 9]),
    "bytes": (pa.binary(), [b"", b"\0\xff"]),
}
SCHEMA = pa.schema([("id", pa.int32()), *((name, kind) for name, (kind, _) in KINDS.items())])
PARCELS = Parcels(SCHEMA)


def batch_of(units: list[int | None], first: int, columns: dict[str, list[Any]]) -> pa.RecordBatch:
    ids = pa.array(range(first, first + len(units)), pa.int64())
    arrays = [pa.array(columns[name], kind) for name, (kind, _) in KINDS.items()]
    return pa.RecordBatch.from_arrays(
        [pa.array(units, pa.int64()), ids, *arrays], ["#unit", *SCHEMA.names]
    )


@st.composite
def batches(draw: st.DrawFn) -> list[pa.RecordBatch]:
    found = []
    for number in range(draw(st.integers(0, 3))):
        units = draw(UNITS)
        columns = {
            name: [draw(st.sampled_from(values) | st.none()) for _ in units]
            if draw(st.booleans())
            else [values[at % len(values)] for at in range(len(units))]
            for name, (_, values) in KINDS.items()
        }
        found.append(batch_of(units, 100 * number, columns))
    return found


def plain(count: int) -> dict[str, list[Any]]:
    return {
        name: [values[at % len(values)] for at in range(count)]
        for name, (_, values) in KINDS.items()
    }


@given(batches(), st.integers(0, 3), st.integers(1, 400))
def test_parcels_hold_all_rows_of_a_unit_and_of_no_other(
    given_batches: list[pa.RecordBatch], skipped: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parcels, "PARCEL_BYTES", most)
        made = list(PARCELS.of(given_batches))
    wanted: dict[tuple[Any, ...], list[Any]] = {}
    for batch in given_batches:
        for row in batch.to_pylist():
            wanted.setdefault((row.pop("#unit") or 0,), []).append(row)
    found: dict[tuple[Any, ...], list[Any]] = {}
    for batch in made:
        assert batch.column("#unit").to_pylist() == sorted(batch.column("#unit").to_pylist())
        for at in range(len(batch)):
            unit = batch.column("#unit")[at].as_py()
            for rows in PARCELS.rows([batch.slice(at, 1)], []):
                assert rows.schema == SCHEMA
                rows.validate(full=True)
                found.setdefault((unit,), []).extend(rows.to_pylist())
    assert found == wanted
    # Parcels that come together, as Spark hands them over: some of one, and those of another task.
    kept = [each.slice(min(skipped, len(each))) for each in made]
    at_once = [row for rows in PARCELS.rows(kept, []) for row in rows.to_pylist()]
    singly = [
        row
        for each in kept
        for at in range(len(each))
        for rows in PARCELS.rows([each.slice(at, 1)], [])
        for row in rows.to_pylist()
    ]
    assert at_once == singly


def test_rows_without_a_place_travel_beside_the_others() -> None:
    lost = pa.RecordBatch.from_pydict({"why": ["late", "unknown"], "number": [1, 2]})
    (placed,) = PARCELS.of([batch_of([3, 1, 3], 0, plain(3))])
    unplaced: list[bytes] = []
    stray = PARCELS.without_place(lost)
    mixed = pa.Table.from_batches([stray, placed]).combine_chunks().to_batches()
    ids = [rows.column("id").to_pylist() for rows in PARCELS.rows(mixed, unplaced)]
    assert ids == [[1, 0, 2]]
    assert [unpacked(data) for data in unplaced] == [lost]
    assert list(PARCELS.rows([stray], [])) == []


def test_parcels_are_short_and_what_is_made_of_them_at_once_is_little() -> None:
    count = 50_000
    (made,) = PARCELS.of([batch_of([unit % 7 for unit in range(count)], 0, plain(count))])
    sizes = [
        sum(len(value.as_py()) for value in row) for row in zip(*made.columns[1:], strict=True)
    ]
    assert max(sizes) <= 1.1 * parcels.PARCEL_BYTES
    rows = list(PARCELS.rows([made], []))
    assert len(rows) > 1
    assert max(each.nbytes for each in rows) < 3 * 2**20
    ids = np.concatenate([each.column("id").to_numpy() for each in rows])
    assert (np.diff(ids % 7) >= 0).all()
    assert sorted(ids.tolist()) == list(range(count))


@pytest.mark.parametrize("most", [0, 1_024])
def test_a_batch_is_the_same_however_its_rows_travel(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(tasks, "MOST_UNITS", most)
    dims: dict[str, Dimension] = {"time": regular(0, 1), "station": fixed(list(range(7)))}
    layout = Rows(dims, {"a": "int64", "b": "float32"}, chunks={"time": 4, "station": 3})
    columns = "id div 7 as time", "id % 7 as station", "id as a", "if(id % 5 = 0, null, id) as b"
    df = spark.range(0, 700, 1, 5).selectExpr(*columns).orderBy("b")
    location = str(tmp_path / "repository")
    sink = icechunk_sink(location, layout=layout, app_id="obs", write_mode="executors")
    outcome = sink.write(df)
    assert isinstance(outcome, Committed)
    assert (outcome.counts.received, outcome.counts.written) == (700, 700)
    repository = Repository.open(local_filesystem_storage(location))
    group = zarr.open_group(repository.readonly_session("main").store, mode="r")
    ids = np.arange(700).reshape(100, 7)
    found: dict[str, Any] = {name: array[...] for name, array in group.arrays()}
    np.testing.assert_array_equal(found["a"], ids)
    np.testing.assert_array_equal(found["b"], np.where(ids % 5, ids, np.nan).astype("f4"))
