"""Objects that hold chunks of several arrays, of which one is deleted and collected by others."""

from __future__ import annotations

import subprocess
import warnings
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import xarray as xr

from icechunk_stream.format.chunk_refs import NativeChunk
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Rows, append, fixed
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.stream.row_source import RowsInMemory
from tests.concurrency.places import OURS, THEIRS, local, opened, storage
from tests.oracle.libraries import legacy_python
from tests.stream.collector import collect, delete_and_collect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.concurrency.places import Place

pytestmark = pytest.mark.compat

ROOT = Path(__file__).parents[2]
GROUP = "data"
VARIABLES = ("temp", "wind", "rain")
STATIONS, TIMES = 200, 3
# The second batch rewrites what the first one left incomplete, so that it leaves garbage.
CHUNKS = {"time": 2, "station": 100}


def layout(variables: Sequence[str]) -> Rows:
    return Rows(
        dims={"time": append(), "station": fixed(range(STATIONS))},
        variables=dict.fromkeys(variables, "float64"),
        chunks=CHUNKS,
    )


def values_of(variable: str, batches: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    random = np.random.default_rng(VARIABLES.index(variable))
    return random.normal(size=(batches * TIMES, STATIONS))


def rows_of(batch: int, variables: Sequence[str]) -> pa.Table:
    rows = slice(batch * TIMES, (batch + 1) * TIMES)
    times = np.repeat(np.arange(rows.start, rows.stop), STATIONS)
    columns = {name: values_of(name, batch + 1)[rows].reshape(-1) for name in variables}
    stations = np.tile(np.arange(STATIONS), TIMES)
    return pa.table({"time": times, "station": stations, **columns})


def stream_to(place: Place, spec: int, variables: Sequence[str] = VARIABLES) -> Batches:
    settings = StreamSettings(layout(variables), "obs", spec_version=spec, group=GROUP)
    return Batches.open(storage(OURS, place), settings)


def write(batches: Batches, batch: int, variables: Sequence[str] = VARIABLES) -> None:
    rows = RowsInMemory(rows_of(batch, variables))
    assert isinstance(batches.write(Call("obs", "query", batch), rows), Committed)


def packs(place: Place) -> dict[str, set[str]]:
    """The arrays whose chunks an object of the tip holds, by its id."""
    found: dict[str, set[str]] = defaultdict(set)
    reader = opened(OURS, place).readonly_session("main").reader
    for name in VARIABLES:
        node = reader.node(f"/{GROUP}/{name}")
        columns = [] if node is None else reader.all_columns(node)
        for rows in columns:
            for index in rows.indices().tolist():
                payload = reader.payload(node, index)
                assert isinstance(payload, NativeChunk)
                found[str(payload.id)].add(name)
    return found


def stored(place: Place) -> set[str]:
    return {path.name for path in (Path(place["local"]) / "chunks").iterdir()}


def assert_values(place: Place, batches: int, variables: Sequence[str]) -> None:
    store = opened(THEIRS, place).readonly_session("main").store
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = xr.open_zarr(store, group=GROUP, consolidated=False).load()
    assert found["time"].values.tolist() == list(range(batches * TIMES))
    for name in variables:
        np.testing.assert_array_equal(found[name].values, values_of(name, batches), name)


def assert_collected(place: Place, before: dict[str, set[str]], deleted: int) -> None:
    """All that is needed is left, and nothing else once manifests are compacted.

    Until then a manifest that arrays share still names what the deleted one had.
    """
    kept = packs(place)
    assert set(kept) == {id for id, names in before.items() if names != {"temp"}}
    assert set(kept) <= stored(place)
    assert_values(place, 2, ["wind", "rain"])
    opened(OURS, place).compact(branch="main")
    assert deleted + collect(opened(THEIRS, place)) > 0
    assert packs(place) == kept
    assert stored(place) == set(kept)
    assert_values(place, 2, ["wind", "rain"])


@pytest.fixture(params=[1, 2])
def spec(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def two_batches(place: Place, spec: int) -> Batches:
    batches = stream_to(place, spec)
    write(batches, 0)
    write(batches, 1)
    assert_values(place, 2, VARIABLES)
    assert set(VARIABLES) in packs(place).values()
    return batches


def test_arrays_that_share_objects_with_a_deleted_one_stay_readable(
    tmp_path: Path, spec: int
) -> None:
    place = local(tmp_path)
    batches = two_batches(place, spec)
    before = packs(place)
    deleted = delete_and_collect(opened(THEIRS, place), f"{GROUP}/temp")
    assert_collected(place, before, deleted)
    # The stream goes on, and makes the array that it lacks for the rows that come.
    write(batches, 2)
    assert_values(place, 3, ["wind", "rain"])
    store = opened(THEIRS, place).readonly_session("main").store
    made = xr.open_zarr(store, group=GROUP, consolidated=False)["temp"].values
    np.testing.assert_array_equal(made[2 * TIMES :], values_of("temp", 3)[2 * TIMES :])
    assert np.isnan(made[: 2 * TIMES]).all()


def test_a_stream_may_go_on_without_the_array(tmp_path: Path, spec: int) -> None:
    place = local(tmp_path)
    two_batches(place, spec)
    before = packs(place)
    assert_collected(place, before, delete_and_collect(opened(THEIRS, place), f"{GROUP}/temp"))
    others = ("wind", "rain")
    batches = stream_to(place, spec, others)
    write(batches, 2, others)
    assert_values(place, 3, others)
    assert set(others) in packs(place).values()


def test_the_older_reference_collects_around_shared_objects(tmp_path: Path) -> None:
    place = local(tmp_path)
    batches = two_batches(place, 1)
    before = packs(place)
    command = [str(legacy_python()), "-m", "tests.stream.collector", str(tmp_path), f"{GROUP}/temp"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert_collected(place, before, int(done.stdout))
    write(batches, 2)
    assert_values(place, 3, ["wind", "rain"])
