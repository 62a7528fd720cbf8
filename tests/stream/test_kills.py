"""A driver that is killed before or after any call of its storage, and started again."""

from __future__ import annotations

import re
import signal
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xarray as xr

from tests.concurrency.places import THEIRS, local, opened
from tests.stream.killed_stream import (
    BATCHES,
    ROWS,
    START,
    Driver,
    Point,
    calls_of,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.concurrency.places import Bucket, Place
    from tests.stream.killed_stream import Kind, When

pytestmark = pytest.mark.compat

PLACES = ["local_places", "buckets"]
# The object that tells the tip: of spec v1 that of the branch, of spec v2 "repo".
TIP = "re[fp]*"
POINTS = [
    Point("after", 6, "put", "chunks/*"),
    Point("before", 9, "put", "manifests/*"),
    Point("before", 8, "put_if", TIP),
    Point("after", 5, "put_if", TIP),
    Point("before", 3, "put", "chunks/*"),
    Point("after", 4, "put", "transactions/*"),
    Point("before", 7, "put", "snapshots/*"),
    Point("after", 1, "put_if", "*"),
]


@pytest.fixture
def local_places(tmp_path: Path) -> Callable[[str], Place]:
    return lambda name: local(tmp_path / name / "repository")


@pytest.fixture
def buckets(bucket: Bucket) -> Callable[[str], Place]:
    return bucket.place


def read(place: Place) -> xr.Dataset:
    """What the reference reads, without a warning."""
    store = opened(THEIRS, place).readonly_session("main").store
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found: xr.Dataset = xr.open_zarr(store, consolidated=False).load()
        return found


def assert_every_row_once(place: Place) -> None:
    found = read(place)
    ids = list(range(BATCHES * ROWS))
    assert found["id"].values.tolist() == ids
    assert found["value"].values.tolist() == [id * id for id in ids]


def assert_latest_updates(place: Place) -> None:
    found = read(place)
    hours = np.datetime64(START.replace(tzinfo=None), "ns") + np.arange(BATCHES) * np.timedelta64(
        1, "h"
    )
    assert found["time"].values.tolist() == hours.tolist()
    latest = [100 * window + min(window + 2, BATCHES - 1) for window in range(BATCHES)]
    assert found["value"].values.tolist() == latest


def assert_batches_once(place: Place) -> None:
    history = opened(THEIRS, place).ancestry(branch="main")
    marks = [each.metadata.get("icechunk_stream") for each in history]
    assert [each["batch_id"] for each in marks if each] == list(range(BATCHES))[::-1]


def assert_right(driver: Driver) -> None:
    assert_batches_once(driver.place)
    if driver.kind == "appends":
        assert_every_row_once(driver.place)
    else:
        assert_latest_updates(driver.place)


class Matrix:
    """Streams of a kind, each in a place of its own, with drivers that are killed."""

    def __init__(
        self, folder: Path, place: Callable[[str], Place], spec: int, kind: Kind = "appends"
    ) -> None:
        self._folder, self._place, self._spec, self._kind = folder, place, spec, kind
        whole = self._driver("whole")
        assert run(whole) == 0
        assert_right(whole)
        self.calls = calls_of(whole)

    def kill(self, point: Point) -> None:
        """Kill a driver and start another one, which finishes the work."""
        name = f"{point.when}-{point.method}-{point.key}-{point.nth}"
        driver = self._driver(re.sub(r"[^a-z0-9-]", "_", name))
        assert run(replace(driver, killed=point)) == -signal.SIGKILL
        assert run(driver) == 0
        assert_right(driver)

    def _driver(self, name: str) -> Driver:
        return Driver(self._place(name), self._folder / name, self._spec, self._kind)


@pytest.mark.parametrize(("places", "count"), [("local_places", 8), ("buckets", 4)])
@pytest.mark.parametrize("spec", [1, 2])
def test_a_killed_driver_that_starts_again_writes_every_row_once(
    tmp_path: Path, request: pytest.FixtureRequest, places: str, count: int, spec: int
) -> None:
    matrix = Matrix(tmp_path, request.getfixturevalue(places), spec)
    for point in POINTS[:count]:
        matrix.kill(point)


@pytest.mark.parametrize("spec", [1, 2])
def test_updates_of_a_killed_driver_leave_what_its_last_batch_knew(
    tmp_path: Path, local_places: Callable[[str], Place], spec: int
) -> None:
    matrix = Matrix(tmp_path, local_places, spec, "updates")
    for point in POINTS[:4]:
        matrix.kill(point)


@pytest.mark.soak
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["appends", "updates"])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("spec", [1, 2])
def test_a_driver_may_be_killed_at_every_call(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    places: str,
    spec: int,
    kind: Kind,
    when: When,
) -> None:
    matrix = Matrix(tmp_path, request.getfixturevalue(places), spec, kind)
    for nth in range(1, matrix.calls + 1):
        matrix.kill(Point(when, nth))
