"""Datasets written by xarray, committed, and opened again by the reference."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr

import icechunk_stream as ic
from icechunk_stream.xarray import to_icechunk
from tests.oracle.dump import open_repository
from tests.oracle.libraries import REFERENCE, ROOT, SPEC_VERSIONS

pytestmark = pytest.mark.compat


class Place:
    """A repository, and what the reference finds in it."""

    def __init__(self, path: Path, spec_version: int) -> None:
        self.path = str(path)
        storage = ic.local_filesystem_storage(path, durability="os")
        self.repository = ic.Repository.create(storage, spec_version=spec_version)

    def session(self) -> ic.Session:
        return self.repository.writable_session("main")

    def write(self, obj: xr.Dataset | xr.DataArray, **options: Any) -> None:
        session = self.session()
        to_icechunk(obj, session, **options)
        session.commit("written")

    def read(self, group: str | None = None) -> xr.Dataset:
        """The values, by the reference; our own agree with them."""
        found = []
        for library in (REFERENCE, ic):
            store = open_repository(library, self.path).readonly_session("main").store
            found.append(xr.open_zarr(store, group=group, consolidated=False, chunks=None).load())
        xr.testing.assert_identical(*found)
        first: xr.Dataset = found[0]
        return first


@pytest.fixture(params=SPEC_VERSIONS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path / "repository", request.param)


def dataset(days: slice = slice(0, 10)) -> xr.Dataset:
    """Ten days of two variables; the larger one is not inlined."""
    shape = (10, 20, 30)
    values = np.random.default_rng(1).normal(size=shape).astype("f4")
    return xr.Dataset(
        {
            "temperature": (("time", "y", "x"), values, {"units": "K"}),
            "count": (("time",), np.arange(10, dtype="i4")),
        },
        coords={
            "time": np.arange("2020-01-01", "2020-01-11", dtype="datetime64[D]").astype("M8[ns]"),
            "y": np.linspace(0, 1, 20),
            "x": np.linspace(0, 1, 30),
        },
        attrs={"title": "a test"},
    ).isel(time=days)


CHUNKS = {"temperature": {"chunks": (3, 10, 30)}, "count": {"chunks": (3,)}}
ALIGNED = {"time": 3, "y": 10, "x": 30}


def as_it_is(written: xr.Dataset) -> xr.Dataset:
    return written


def in_dask(written: xr.Dataset) -> xr.Dataset:
    return written.chunk(ALIGNED)


HELD = pytest.mark.parametrize("held", [as_it_is, in_dask])


@HELD
def test_a_dataset_is_read_back_as_it_was(
    place: Place, held: Callable[[xr.Dataset], xr.Dataset]
) -> None:
    place.write(held(dataset()), encoding=CHUNKS)

    xr.testing.assert_identical(place.read(), dataset())


@HELD
def test_xarrays_own_method_writes_the_same(
    place: Place, held: Callable[[xr.Dataset], xr.Dataset]
) -> None:
    session = place.session()
    held(dataset()).to_zarr(session.store, encoding=CHUNKS, consolidated=False)
    session.commit("written")

    xr.testing.assert_identical(place.read(), dataset())


@HELD
def test_commits_append_along_a_dimension(
    place: Place, held: Callable[[xr.Dataset], xr.Dataset]
) -> None:
    place.write(held(dataset(slice(0, 3))), encoding=CHUNKS)
    place.write(held(dataset(slice(3, 6))), append_dim="time")
    place.write(held(dataset(slice(6, 10))), append_dim="time")

    xr.testing.assert_identical(place.read(), dataset())


def test_one_session_appends_more_than_once(place: Place) -> None:
    session = place.session()
    to_icechunk(dataset(slice(0, 4)), session, encoding=CHUNKS)
    to_icechunk(dataset(slice(4, 5)), session, append_dim="time")
    to_icechunk(dataset(slice(5, 10)), session, mode="a", append_dim="time")
    session.commit("three writes")

    xr.testing.assert_identical(place.read(), dataset())


@pytest.mark.parametrize("region", ["auto", {"time": slice(3, 6)}, {"time": "auto"}])
def test_a_region_is_written_where_its_labels_are(place: Place, region: Any) -> None:
    place.write(dataset(), encoding=CHUNKS)
    part = dataset(slice(3, 6))[["temperature"]] * 2
    place.write(part.drop_vars(["x", "y"] if region != "auto" else []), region=region)

    expected = dataset()
    expected["temperature"][3:6] *= 2
    xr.testing.assert_equal(place.read(), expected)


def test_a_region_of_dasks_chunks_fills_arrays_made_before(place: Place) -> None:
    place.write(xr.zeros_like(dataset()), encoding=CHUNKS)
    for start in (0, 3, 6, 9):
        place.write(in_dask(dataset(slice(start, start + 3))), region="auto")

    xr.testing.assert_equal(place.read(), dataset())


def test_mode_w_replaces_all_that_was_there(place: Place) -> None:
    place.write(dataset(), encoding=CHUNKS)
    smaller = dataset(slice(0, 2))[["count"]].rename(count="number")
    place.write(smaller, mode="w")

    xr.testing.assert_identical(place.read(), smaller)


def test_mode_a_replaces_variables_and_keeps_the_others(place: Place) -> None:
    place.write(dataset(), encoding=CHUNKS)
    place.write(dataset()[["count"]] + 1, mode="a")

    expected = dataset()
    expected["count"] = expected["count"] + 1
    xr.testing.assert_equal(place.read(), expected)


def test_without_a_mode_nothing_is_written_over(place: Place) -> None:
    place.write(dataset())

    with pytest.raises(FileExistsError, match="mode 'w-'"):
        to_icechunk(dataset(), place.session())


def test_groups_are_written_side_by_side(place: Place) -> None:
    place.write(dataset(slice(0, 5)), group="first/half")
    place.write(dataset(slice(5, 10)), group="second")

    xr.testing.assert_identical(place.read("first/half"), dataset(slice(0, 5)))
    xr.testing.assert_identical(place.read("second"), dataset(slice(5, 10)))


def test_an_array_without_a_name_is_read_back_by_xarray(place: Place) -> None:
    array = dataset()["temperature"].rename(None)
    place.write(array)

    store = open_repository(REFERENCE, place.path).readonly_session("main").store
    found = xr.open_dataarray(store, engine="zarr", consolidated=False, chunks=None)
    xr.testing.assert_identical(found.load(), array)


def test_dask_chunks_that_share_a_chunk_of_zarr_are_refused_or_aligned(place: Place) -> None:
    askew = dataset().chunk({"time": 2})

    with pytest.raises(ValueError, match="chunk"):
        to_icechunk(askew, place.session(), encoding=CHUNKS)
    place.write(askew, encoding=CHUNKS, align_chunks=True)
    xr.testing.assert_identical(place.read(), dataset())


def test_a_read_only_session_is_refused(place: Place) -> None:
    session = place.repository.readonly_session("main")

    with pytest.raises(ic.ReadOnlyError, match="writable_session"):
        to_icechunk(dataset(), session)


def test_dasks_other_processes_are_refused_and_its_threads_are_not(place: Place) -> None:
    with dask.config.set(scheduler="processes"):
        with pytest.raises(ic.SessionStateError, match="threads"):
            to_icechunk(in_dask(dataset()), place.session())
        place.write(dataset())
    with dask.config.set(scheduler="threads"):
        place.write(in_dask(dataset()), mode="w")

    xr.testing.assert_identical(place.read(), dataset())


def test_only_sessions_and_xarrays_objects_are_taken(place: Place) -> None:
    with pytest.raises(ic.InvalidInputError, match="writable_session"):
        to_icechunk(dataset(), place.session().store)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Dataset"):
        to_icechunk({"a": 1}, place.session())  # type: ignore[arg-type]


def test_without_xarray_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['xarray'] = None; import icechunk_stream.xarray"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )

    assert done.returncode == 1
    assert "icechunk-stream[xarray]" in done.stderr
