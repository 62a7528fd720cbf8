"""The stored splitting of arrays that a stream makes, beside other writers and after a stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import icechunk_stream as ic
from icechunk_stream.errors import ConflictError
from tests.engine.altered import Interrupted, InterruptedAfter
from tests.stream.split_streams import (
    RULES,
    STATIONS,
    cells,
    config_writes,
    open_stream,
    split_by,
    stored,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from icechunk_stream.storage import Storage

both_specs = pytest.mark.parametrize("spec", [1, 2])


@pytest.mark.parametrize(("spec", "key"), [(1, "config.yaml"), (2, "repo")])
def test_of_two_creators_at_once_one_stores_the_rules(spec: int, key: str) -> None:
    storage = Interrupted(key, lambda _: None)
    storage.before = None
    ours, theirs = (open_stream(storage, app, spec_version=spec) for app in ("obs", "other"))

    def overtake(_: Storage) -> None:
        write(theirs, 0, *range(4), app="other")

    storage.before = overtake
    write(ours, 0, *range(4, 20))

    assert stored(storage) == RULES
    assert config_writes(storage) == 1
    assert cells(storage, "/data/temp") == {0, 1, 2}
    found = xr.open_zarr(
        ic.Repository.open(storage).readonly_session("main").store, group="data", consolidated=False
    )
    np.testing.assert_array_equal(found["temp"][:, 5], np.arange(20))


@pytest.mark.parametrize(("spec", "key"), [(1, "config.yaml"), (2, "repo")])
def test_a_configuration_that_comes_between_is_kept(spec: int, key: str) -> None:
    storage = Interrupted(key, lambda _: None)
    storage.before = None
    batches = open_stream(storage, spec_version=spec)

    def save(there: Storage) -> None:
        config = split_by(("^/other/", 7))
        config.inline_chunk_threshold_bytes = 3
        ic.Repository.open(there, config).save_config()

    storage.before = save
    write(batches, 0, *range(20))

    config = ic.Repository.fetch_config(storage)
    assert config is not None
    assert config.inline_chunk_threshold_bytes == 3
    assert stored(storage)[:2] == RULES
    assert len(stored(storage)) == 3
    assert cells(storage, "/data/temp") == {0, 1, 2}
    # What this repository would save lacks what came between.
    with pytest.raises(ConflictError, match="open it again"):
        batches.repository.save_config()


@pytest.mark.parametrize(("spec", "key"), [(1, "config.yaml"), (2, "repo")])
def test_races_lost_in_a_row_are_run_again(spec: int, key: str) -> None:
    storage = Interrupted(key, lambda _: None)
    storage.before = None
    batches = open_stream(storage, spec_version=spec)
    losses: list[int] = []

    def save(there: Storage) -> None:
        losses.append(len(losses))
        config = ic.RepositoryConfig(inline_chunk_threshold_bytes=len(losses))
        ic.Repository.open(there, config).save_config()
        storage.before = save if len(losses) < 4 else None

    storage.before = save
    write(batches, 0, *range(20))

    assert losses == [0, 1, 2, 3]
    config = ic.Repository.fetch_config(storage)
    assert config is not None
    assert config.inline_chunk_threshold_bytes == 4
    assert stored(storage) == RULES


class Killed(BaseException):
    pass


@both_specs
@pytest.mark.parametrize("where", [Interrupted, InterruptedAfter])
def test_a_stop_around_the_configuration_does_no_harm(spec: int, where: type[Interrupted]) -> None:
    """Stopped just before or after the write of the rules, the next start goes on."""
    storage = where("config.yaml" if spec == 1 else "repo", lambda _: None)
    storage.before = None
    batches = open_stream(storage, spec_version=spec)

    def kill(_: Storage) -> None:
        raise Killed

    storage.before = kill
    with pytest.raises(Killed):
        write(batches, 0, 0)
    assert ic.Repository.open(storage).readonly_session("main").reader.node("/data/temp") is None
    write(open_stream(storage, spec_version=spec), 0, *range(20))

    assert stored(storage) == RULES
    assert config_writes(storage) == 1
    assert cells(storage, "/data/temp") == {0, 1, 2}


def append_by_reference(folder: Path, hours: range) -> None:
    """What another writer does: longer arrays, and more chunks."""
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)))
    for first in range(hours.start, hours.stop, 3):
        session = repository.writable_session("main")
        data = zarr.open_group(session.store, path="data", mode="r+")
        end = min(first + 3, hours.stop)
        time = data["time"]
        assert isinstance(time, zarr.Array)
        start, second = np.asarray(time[:2])
        time.resize((end,))
        time[first:end] = start + (second - start) * np.arange(first, end)
        for name, scale in (("temp", 1), ("rain.mm", 2)):
            array = data[name]
            assert isinstance(array, zarr.Array)
            array.resize((end, len(STATIONS)))
            array[first:end, 5] = np.arange(first, end) / scale
        session.commit("appended")


def append_by_us(folder: Path, hours: range) -> None:
    batches = open_stream(ic.local_filesystem_storage(str(folder)))
    for number, first in enumerate(range(hours.start, hours.stop, 3), start=1):
        write(batches, number, *range(first, min(first + 3, hours.stop)))


@pytest.mark.compat
@both_specs
def test_the_reference_splits_what_it_appends_where_we_do(tmp_path: Path, spec: int) -> None:
    found = []
    acts: dict[str, Callable[[Path, range], None]] = {
        "ours": append_by_us,
        "theirs": append_by_reference,
    }
    for name, act in acts.items():
        storage = ic.local_filesystem_storage(str(tmp_path / name))
        write(open_stream(storage, spec_version=spec), 0, *range(5))
        act(tmp_path / name, range(5, 20))
        found.append([cells(storage, f"/data/{each}") for each in ("temp", "rain.mm")])
        write(open_stream(storage), 1 if name == "theirs" else 6, *range(20, 30))
        assert cells(storage, "/data/temp") == {0, 1, 2, 3}
        store = icechunk.Repository.open(
            icechunk.local_filesystem_storage(str(tmp_path / name))
        ).readonly_session("main")
        read = xr.open_zarr(store.store, group="data", consolidated=False)
        np.testing.assert_array_equal(read["temp"][:, 5], np.arange(30))
        np.testing.assert_array_equal(read["rain.mm"][:, 5], np.arange(30) / 2)
    assert found == [[{0, 1, 2}] * 2] * 2
