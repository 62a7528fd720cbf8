"""Rows travel between tasks as parcels where units are few, and as they are where they are many."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream import Repository, local_filesystem_storage
from icechunk_stream.spark import Rows, fixed, icechunk_sink, regular, tasks
from icechunk_stream.spark.parcels import from_parcels, in_parcels
from icechunk_stream.stream.layout import Dimension
from icechunk_stream.stream.outcomes import Committed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

UNITS = st.lists(st.integers(-3, 4) | st.integers(2**40, 2**40 + 3) | st.none(), max_size=30)


def batch_of(units: list[int | None], first: int) -> pa.RecordBatch:
    ids = range(first, first + len(units))
    columns = {
        "#unit": pa.array(units, pa.int64()),
        "id": pa.array(ids, pa.uint32()),
        "text": pa.array([None if id % 3 == 0 else str(id) for id in ids], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


@given(st.lists(UNITS, max_size=4))
def test_parcels_hold_all_rows_of_a_unit_and_of_no_other(given_units: list[Any]) -> None:
    batches = [batch_of(units, 100 * number) for number, units in enumerate(given_units)]
    parcels = list(in_parcels(batches))
    wanted: Counter[tuple[Any, ...]] = Counter()
    for batch in batches:
        rows = batch.to_pylist()
        wanted.update((row["#unit"] or 0, row["id"], row["text"]) for row in rows)
    found: Counter[tuple[Any, ...]] = Counter()
    for parcel in (each.slice(at, 1) for each in parcels for at in range(len(each))):
        unit = parcel.column("#unit")[0].as_py()
        for rows in from_parcels([parcel]):
            assert rows.schema == batches[0].schema.remove(0)
            found.update((unit, row["id"], row["text"]) for row in rows.to_pylist())
    assert found == wanted


def test_parcels_of_some_rows_are_put_together_in_their_order() -> None:
    parcels = list(in_parcels([batch_of([unit % 700 for unit in range(25_000)], 0)]))
    rows = list(from_parcels(parcels))
    assert len(rows) == 3
    ids = np.concatenate([each.column("id").to_numpy() for each in rows])
    assert (np.diff(ids.astype(np.int64) % 700) >= 0).all()
    assert sorted(ids.tolist()) == list(range(25_000))


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
