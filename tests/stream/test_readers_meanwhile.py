"""Readers of a repository while a stream writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import xarray as xr

from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Rows, append
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.row_source import RowsInMemory
from tests.concurrency.places import OURS, THEIRS, local, opened, storage
from tests.stream.watching_reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from tests.concurrency.places import Bucket, Place

pytestmark = pytest.mark.compat

GROUP = "data"
STATIONS = ["a", "b"]
FIRST = 4
MOST = 3_000
LAYOUT = Rows(
    dims={"time": append(), "station": append()},
    variables={"temp": "float64", "count": "int64"},
    chunks={"time": 5, "station": 3},
)


def rows_of(batch: int) -> dict[str, list[Any]]:
    """A new time in each batch; a new station in every tenth one."""
    stations = [f"s{at}" for at in range(2 + batch // 10)]
    return {
        "time": [batch] * len(stations),
        "station": stations,
        "temp": [batch + at / 8 for at in range(len(stations))],
        "count": [batch * 1000 + at for at in range(len(stations))],
    }


def stream_to(place: Place, spec: int) -> Batches:
    settings = StreamSettings(LAYOUT, "obs", spec_version=spec, group=GROUP)
    return Batches.open(storage(OURS, place), settings)


def write(batches: Batches, batch: int) -> None:
    batches.write(Call("obs", "query", batch), RowsInMemory(pa.table(rows_of(batch))))


def add_bystanders(place: Place) -> None:
    """Arrays of another writer along dimensions of the stream."""
    session = opened(THEIRS, place).writable_session("main")
    data = {
        "flag": ("time", np.arange(FIRST, dtype="i4") + 1),
        "both": (("station", "time"), np.ones((2, FIRST), "i2")),
    }
    dataset = xr.Dataset(data)
    encoding = {"flag": {"chunks": (3,)}, "both": {"chunks": (2, 3)}}
    dataset.to_zarr(session.store, group=GROUP, mode="a", consolidated=False, encoding=encoding)
    session.commit("bystanders")


def assert_whole(arrays: dict[str, Any]) -> None:
    """A snapshot has one batch after another, and all of each, whatever was seen of them."""
    times, stations = len(arrays["time"]), len(arrays["station"])
    assert arrays["time"] == list(range(times))
    assert stations == 2 + (times - 1) // 10
    shapes = {name: np.shape(values) for name, values in arrays.items()}
    assert shapes == {
        "time": (times,),
        "station": (stations,),
        "flag": (times,),
        "temp": (times, stations),
        "count": (times, stations),
        "both": (stations, times),
    }
    assert arrays["flag"] == [1, 2, 3, 4, *[0] * (times - FIRST)]
    for batch in range(times):
        rows = rows_of(batch)
        new = stations - len(rows["station"])
        assert arrays["count"][batch] == [*rows["count"], *[0] * new]
        assert arrays["temp"][batch][: len(rows["temp"])] == rows["temp"]


@pytest.mark.parametrize(("spec", "looks"), [(1, 12), (2, 12)])
def test_every_tip_on_disk_is_whole_and_a_pinned_one_stays(
    tmp_path: Path, spec: int, looks: int
) -> None:
    watch_a_stream(local(tmp_path), spec, looks)


@pytest.mark.parametrize(("spec", "looks"), [(1, 12), pytest.param(2, 12, marks=pytest.mark.soak)])
def test_every_tip_in_a_bucket_is_whole_and_a_pinned_one_stays(
    bucket: Bucket, spec: int, looks: int
) -> None:
    watch_a_stream(bucket.place(), spec, looks)


def watch_a_stream(place: Place, spec: int, looks: int) -> None:
    """Write until a reader has seen so many tips."""
    batches = stream_to(place, spec)
    for batch in range(FIRST):
        write(batches, batch)
    add_bystanders(place)
    with Reader(place, GROUP) as reader:
        assert reader.has_looked.wait(120)
        batch = FIRST
        while len(reader.snapshots) < looks and reader.is_alive and batch < MOST:
            write(batches, batch)
            batch += 1
    assert len(reader.snapshots) >= looks
    for look in reader.looks:
        assert_whole(look["tip"]["arrays"])
        assert look["pinned_stays"]
    assert_whole(reader.looks[0]["pinned"]["arrays"])
