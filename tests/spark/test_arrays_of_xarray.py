"""Streams on a real Spark into arrays that xarray made, or makes of the same rows in one go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
from icechunk.xarray import to_icechunk

from icechunk_stream.stream.layout import Rows, append, fixed, regular
from tests.oracle.libraries import legacy
from tests.spark.observed_stream import SCHEMA, START, Stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from icechunk_stream.spark.sources import WriteMode

pytestmark = pytest.mark.compat

STATIONS = ["ams", "ber", "cph", "dub"]
HOURS, BEFORE = 24, 7
# What was not there when xarray wrote the first hours, and comes late.
LATE = (4, 1)
ENCODING: dict[str, dict[str, Any]] = {
    "time": {"units": "minutes since 2000-01-01", "dtype": "int64", "chunks": (8,)},
    "temp": {"chunks": (5, 3)},
    "wind": {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1, "chunks": (6, 4)},
}
STORED = ("dtype", "units", "calendar", "scale_factor", "add_offset", "_FillValue", "chunks")


def observed() -> xr.Dataset:
    """Everything that is said in the end."""
    random = np.random.default_rng(0)
    shape = (HOURS, len(STATIONS))
    found = xr.Dataset(
        {
            "temp": (("time", "station"), random.normal(10, 3, shape).astype("f4")),
            "wind": (("time", "station"), random.integers(0, 60, shape) / 2, {"units": "m/s"}),
        },
        {
            "time": pd.date_range(START.replace(tzinfo=None), periods=HOURS, freq="h", unit="ns"),
            "station": np.array(STATIONS, np.dtypes.StringDType()),
        },
        {"title": "observations"},
    )
    for name, encoding in ENCODING.items():
        found[name].encoding = dict(encoding)
    return found


def write(location: Path, spec: int, dataset: xr.Dataset) -> None:
    """A repository that icechunk and xarray make."""
    storage = icechunk.local_filesystem_storage(str(location))
    repository = icechunk.Repository.create(storage, spec_version=spec)
    session = repository.writable_session("main")
    to_icechunk(dataset, session)
    session.commit("by xarray")


def send(stream: Stream, dataset: xr.Dataset, hours: range) -> None:
    """The rows of some hours in any order; nothing is said of missing ones."""
    rows = dataset.isel(time=list(hours)).to_dataframe().dropna().reset_index()
    rows = rows.sample(frac=1, random_state=hours.start)
    stream.send(pa.Table.from_pandas(rows, SCHEMA, preserve_index=False))


def assert_as_in_one_go(
    stream: Stream, wanted: xr.Dataset, given: Mapping[str, Iterable[str]]
) -> None:
    """The same values and attributes, and of each variable the encodings that were given."""
    found = stream.read()
    xr.testing.assert_identical(found, wanted)
    for name, keys in given.items():
        ours, theirs = found[name].encoding, wanted[name].encoding
        # NaN equals NaN here.
        np.testing.assert_equal(
            {key: ours[key] for key in keys}, {key: theirs[key] for key in keys}
        )


def assert_old_reference_reads(stream: Stream, wanted: xr.Dataset) -> None:
    """As the release does that knows spec v1 only."""
    found = xr.Dataset.from_dict(legacy("open_with_xarray", str(stream.repository)))
    xr.testing.assert_identical(found, xr.Dataset.from_dict(wanted.to_dict()))


@pytest.fixture
def wanted(tmp_path: Path) -> xr.Dataset:
    """What xarray reads of what it wrote in one go."""
    write(tmp_path / "one-go", 2, observed())
    storage = icechunk.local_filesystem_storage(str(tmp_path / "one-go"))
    store = icechunk.Repository.open(storage).readonly_session("main").store
    found: xr.Dataset = xr.open_zarr(store, consolidated=False).load()
    return found


modes = pytest.mark.parametrize(("spec", "mode"), [(1, "driver"), (1, "executors"), (2, "auto")])


@modes
@pytest.mark.parametrize("time", [regular("2024-01-01", "1h"), append()], ids=["regular", "append"])
def test_a_stream_goes_on_with_arrays_that_xarray_wrote(
    spark: SparkSession, tmp_path: Path, wanted: xr.Dataset, spec: int, mode: WriteMode, time: Any
) -> None:
    stream = Stream(spark, tmp_path, spec, mode)
    began = observed().isel(time=slice(BEFORE))
    began["temp"][LATE] = began["wind"][LATE] = np.nan
    write(stream.repository, spec, began)
    dims = {"time": time, "station": fixed()}
    layout = Rows(dims=dims, variables={"temp": "float32", "wind": "float64"})
    for hours in (range(BEFORE, 12), range(LATE[0], 16), range(16, HOURS)):
        send(stream, observed(), hours)
    stream.run(stream.sink(layout=layout))
    stored = {str(name): wanted[name].encoding.keys() & STORED for name in wanted.variables}
    assert_as_in_one_go(stream, wanted, stored)
    if spec == 1:
        assert_old_reference_reads(stream, wanted)


@modes
def test_a_template_makes_the_arrays_that_xarray_makes(
    spark: SparkSession, tmp_path: Path, wanted: xr.Dataset, spec: int, mode: WriteMode
) -> None:
    stream = Stream(spark, tmp_path, spec, mode)
    layout = Rows.like(observed(), {"time": append()})
    for first in range(0, HOURS, 8):
        send(stream, observed(), range(first, first + 8))
    stream.run(stream.sink(layout=layout))
    assert_as_in_one_go(stream, wanted, ENCODING)
    if spec == 1:
        assert_old_reference_reads(stream, wanted)
