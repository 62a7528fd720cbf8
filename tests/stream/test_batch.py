"""Batches of rows into repositories, against xarray writing the same rows in one go."""

from __future__ import annotations

import itertools
import threading
import warnings
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import icechunk_stream
from icechunk_stream.errors import BadRowsError, StreamGapError
from icechunk_stream.storage import local_filesystem_storage
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Dimension, Rows, append, fixed, regular
from icechunk_stream.stream.ledger import Call, LedgerPolicy
from icechunk_stream.stream.outcomes import Committed, Repeated, Skipped
from icechunk_stream.stream.row_source import RowsInMemory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.compat

STATIONS = ["ams", "ber", "cph", "dub"]
HOURS = 12
LAYOUTS: dict[str, dict[str, Dimension]] = {
    "regular, fixed": {"time": regular("2024-01-01", "1h"), "station": fixed(STATIONS)},
    "regular, append": {"time": regular("2024-01-01", "1h"), "station": append()},
    "append, append": {"time": append(on_late="append"), "station": append()},
    "append, fixed": {"time": append(on_late="append"), "station": fixed(STATIONS)},
}
VARIABLES = {"temp": "float32", "count": "int32"}


def layout(name: str) -> Rows:
    return Rows(dims=LAYOUTS[name], variables=VARIABLES, chunks={"time": 5, "station": 3})


def all_rows() -> pd.DataFrame:
    """A row for every hour and station."""
    random = np.random.default_rng(0)
    times = pd.date_range("2024-01-01", periods=HOURS, freq="h")
    index = pd.MultiIndex.from_product([times, STATIONS], names=["time", "station"])
    values = {
        "temp": random.normal(10, 3, len(index)).astype("f4"),
        "count": random.integers(1, 100, len(index)).astype("i4"),
    }
    return pd.DataFrame(values, index).reset_index()


ROWS = all_rows()
SCHEMA = pa.Schema.from_pandas(ROWS, preserve_index=False)
WANTED = ROWS.set_index(["time", "station"]).to_xarray()


def table(rows: pd.DataFrame, schema: pa.Schema | None = None) -> RowsInMemory:
    return RowsInMemory(pa.Table.from_pandas(rows, schema or SCHEMA, preserve_index=False))


def batches(folder: Path, dims: str, spec: int = 1, app: str = "obs", **policy: Any) -> Batches:
    settings = StreamSettings(
        layout(dims), app, spec_version=spec, policy=LedgerPolicy(**policy), group="/data"
    )
    return Batches.open(local_filesystem_storage(str(folder), durability="os"), settings)


def call(batch: int, app: str = "obs", query: str = "query") -> Call:
    return Call(app, query, batch)


def reference(folder: Path) -> icechunk.Repository:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)))


def read(folder: Path) -> xr.Dataset:
    """What the reference reads, without a warning."""
    store = reference(folder).readonly_session("main").store
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found: xr.Dataset = xr.open_zarr(store, group="data", consolidated=False).load()
        return found


def assert_all_there(folder: Path) -> None:
    xr.testing.assert_equal(read(folder).sortby(["time", "station"]), WANTED)


@pytest.mark.parametrize("spec", [1, 2])
@pytest.mark.parametrize("dims", LAYOUTS)
def test_batches_of_shuffled_rows_give_what_xarray_gives_in_one_go(
    tmp_path_factory: pytest.TempPathFactory, dims: str, spec: int
) -> None:
    @given(st.permutations(range(len(ROWS))), st.lists(st.integers(0, len(ROWS)), max_size=4))
    @settings(max_examples=15)
    def check(order: Sequence[int], cuts: Sequence[int]) -> None:
        folder = tmp_path_factory.mktemp("repository")
        writer = batches(folder, dims, spec)
        ends = [0, *sorted(cuts), len(ROWS)]
        for number, (first, last) in enumerate(itertools.pairwise(ends)):
            rows = ROWS.iloc[list(order[first:last])]
            outcome = writer.write(call(number), table(rows))
            assert isinstance(outcome, Committed)
            assert outcome.counts.received == outcome.counts.written == len(rows)
        assert_all_there(folder)

    check()


def test_a_batch_that_comes_again_is_not_written_again(tmp_path: Path) -> None:
    first = batches(tmp_path, "append, append").write(call(0), table(ROWS))
    assert isinstance(first, Committed)
    again = batches(tmp_path, "append, append")
    assert again.write(call(0), table(ROWS)) == Repeated(0, first.snapshot_id)
    assert_all_there(tmp_path)


def test_a_gap_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    writer = batches(tmp_path, "regular, fixed")
    writer.write(call(0), table(ROWS))
    with pytest.raises(StreamGapError):
        writer.write(call(2), table(ROWS))
    assert len(list(reference(tmp_path).ancestry(branch="main"))) == 2


def test_an_empty_batch_is_recorded_unless_that_is_not_wanted(tmp_path: Path) -> None:
    empty = table(ROWS.iloc[:0])
    writer = batches(tmp_path, "regular, append")
    assert isinstance(writer.write(call(0), table(ROWS)), Committed)
    assert isinstance(writer.write(call(1), empty), Committed)
    sparing = batches(tmp_path, "regular, append", record_empty_batches=False)
    assert sparing.write(call(2), empty) == Skipped(2)
    assert isinstance(sparing.write(call(3), table(ROWS)), Committed)
    assert_all_there(tmp_path)


def test_a_bad_row_fails_the_batch_and_says_which(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows.loc[7, "station"] = "xyz"
    writer = batches(tmp_path, "regular, fixed")
    with pytest.raises(BadRowsError, match="xyz"):
        writer.write(call(0), table(rows))
    writer.write(call(0), table(ROWS))
    assert_all_there(tmp_path)


def test_a_value_that_cannot_be_stored_fails_the_batch_and_is_shown(tmp_path: Path) -> None:
    rows = ROWS.astype({"count": "i8"})
    rows.loc[7, "count"] = 2**40
    writer = batches(tmp_path, "regular, fixed")
    with pytest.raises(BadRowsError, match=rf"'count' .*{2**40}"):
        writer.write(call(0), table(rows, pa.Schema.from_pandas(rows, preserve_index=False)))
    writer.write(call(0), table(ROWS))
    assert_all_there(tmp_path)


@pytest.mark.parametrize("spec", [1, 2])
def test_two_streams_append_to_the_same_arrays_at_once(tmp_path: Path, spec: int) -> None:
    halves = {"even": ROWS.iloc[::2], "odd": ROWS.iloc[1::2]}
    failures: list[BaseException] = []

    def run(app: str) -> None:
        try:
            writer = batches(tmp_path, "append, append", spec, app)
            for number in range(len(halves[app])):
                rows = halves[app].iloc[number : number + 1]
                writer.write(call(number, app, f"query of {app}"), table(rows))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=run, args=(app,)) for app in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert_all_there(tmp_path)
    history = reference(tmp_path).ancestry(branch="main")
    assert sum("icechunk_stream" in each.metadata for each in history) == len(ROWS)


def test_a_group_may_be_named_without_its_slash(tmp_path: Path) -> None:
    storage = local_filesystem_storage(str(tmp_path), durability="os")
    settings = StreamSettings(layout("append, append"), "obs", group="data")
    Batches.open(storage, settings).write(call(0), table(ROWS))
    assert_all_there(tmp_path)


def test_every_snapshot_has_arrays_of_equal_length(tmp_path: Path) -> None:
    writer = batches(tmp_path, "append, append")
    for number in range(HOURS):
        rows = ROWS.iloc[number * len(STATIONS) : (number + 1) * len(STATIONS)]
        writer.write(call(number), table(rows))
    for snapshot in reference(tmp_path).ancestry(branch="main"):
        store = reference(tmp_path).readonly_session(snapshot_id=snapshot.id).store
        if "icechunk_stream" in snapshot.metadata:
            found = xr.open_zarr(store, group="data", consolidated=False)
            number = snapshot.metadata["icechunk_stream"]["batch_id"]
            assert found.sizes == {"time": number + 1, "station": len(STATIONS)}
            assert not found["temp"].isnull().any()


def test_a_foreign_array_with_the_dimension_grows_along(tmp_path: Path) -> None:
    writer = batches(tmp_path, "append, fixed")
    writer.write(call(0), table(ROWS.iloc[: 2 * len(STATIONS)]))
    repository = icechunk_stream.Repository.open(local_filesystem_storage(str(tmp_path)))
    session = repository.writable_session("main")
    bystander = xr.Dataset({"flag": ("time", np.array([1, 2], "i2"))})
    bystander.to_zarr(session.store, group="data", mode="a", consolidated=False)
    session.commit("bystander")
    writer.write(call(1), table(ROWS.iloc[2 * len(STATIONS) :]))
    found = read(tmp_path)
    assert found["flag"].shape == (HOURS,)
    assert found["flag"].values[:2].tolist() == [1, 2]
    xr.testing.assert_equal(found.drop_vars("flag"), WANTED)
