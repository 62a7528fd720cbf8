"""The stored splitting of arrays that a stream makes: who else writes them keeps their layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
import yaml
import zarr

import icechunk_stream as ic
from icechunk_stream.config import SplitAxis, SplitPathMatches
from icechunk_stream.errors import ConflictError
from icechunk_stream.format.flexbuffers import decode_flexbuffer
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.stored_config import edit_config_in_repo
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Rows, append, fixed, regular
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.stream.row_source import RowsInMemory
from tests.engine.altered import Interrupted, InterruptedAfter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from icechunk_stream.config import SplitSizes
    from icechunk_stream.storage import Storage

both_specs = pytest.mark.parametrize("spec", [1, 2])

# One chunk for each station: a cell has 131,072 / 16,384 = 8 chunks of time.
STATIONS = np.arange(16_384)
CELL = 8
LAYOUT = Rows(
    dims={"time": regular("2024-01-01", "1h"), "station": fixed(STATIONS)},
    variables={"temp": "float32", "rain.mm": "float32"},
    chunks={"time": 1, "station": 1},
)
RULES: SplitSizes = (
    (
        SplitPathMatches(r"^/data/(?:rain\.mm|temp)$"),
        ((SplitAxis(0), CELL),),
    ),
    (SplitPathMatches("^/data/time$"), ((SplitAxis(0), 131_072),)),
)


def rows(*hours: int) -> RowsInMemory:
    """A row for one station at each hour."""
    frame = pd.DataFrame(
        {
            "time": pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, unit="h"),
            "station": np.full(len(hours), 5),
            "temp": np.array(hours, "f4"),
            "rain.mm": np.array(hours, "f4") / 2,
        }
    )
    return RowsInMemory(pa.Table.from_pandas(frame, preserve_index=False))


def open_stream(storage: Storage, app: str = "obs", **options: Any) -> Batches:
    return Batches.open(storage, StreamSettings(LAYOUT, app, group="/data", **options))


def write(batches: Batches, number: int, *hours: int, app: str = "obs") -> Committed:
    outcome = batches.write(Call(app, f"query of {app}", number), rows(*hours))
    assert isinstance(outcome, Committed)
    return outcome


def stored(storage: Storage) -> SplitSizes:
    config = ic.Repository.fetch_config(storage)
    splitting = config and config.manifest and config.manifest.splitting
    return (splitting.split_sizes if splitting else None) or ()


def split_by(*rules: tuple[str, int]) -> ic.RepositoryConfig:
    condition, axis = ic.ManifestSplitCondition, ic.ManifestSplitDimCondition
    sizes = {condition.path_matches(regex): {axis.Axis(0): size} for regex, size in rules}
    splitting = ic.ManifestSplittingConfig.from_dict(sizes)
    return ic.RepositoryConfig(manifest=ic.ManifestConfig(splitting=splitting))


def extents(storage: Storage, path: str) -> list[list[list[int]]]:
    repository = ic.Repository.open(storage)
    id = SnapshotId.parse(repository.lookup_branch("main"))
    node = repository._assets.snapshot(id).nodes.get(path)
    assert isinstance(node, ArrayNode)
    boxes: list[list[list[int]]] = node.manifests.extents.tolist()
    return boxes


def cells(storage: Storage, path: str, size: int = CELL) -> set[int]:
    """The cells along the time that manifests lie in, each within one."""
    times = [box[0] for box in extents(storage, path)]
    assert all(first // size == (end - 1) // size for first, end in times)
    return {first // size for first, _ in times}


def config_writes(storage: Storage) -> int:
    """How often a configuration was stored since the repository was made."""
    repository = ic.Repository.open(storage)
    if repository.spec_version == 2:
        return sum(each.kind == ic.UpdateType.ConfigChanged() for each in repository.ops_log())
    kept = [each for each in storage.list("overwritten/") if "config.yaml" in each.key]
    return len(kept) + (storage.stat("config.yaml") is not None)


@both_specs
def test_new_arrays_are_split_by_a_stored_rule_from_the_first_batch_on(spec: int) -> None:
    storage = ic.in_memory_storage()
    write(open_stream(storage, spec_version=spec), 0, *range(20))
    config = ic.Repository.fetch_config(storage)
    assert stored(storage) == RULES
    assert config_writes(storage) == 1
    assert config is not None
    assert config.manifest is not None
    assert config.manifest.max_concurrent_manifest_fetches_during_commit == 16
    for name in ("temp", "rain.mm"):
        assert cells(storage, f"/data/{name}") == {0, 1, 2}


@both_specs
def test_neither_later_batches_nor_restarts_store_it_again(spec: int) -> None:
    storage = ic.in_memory_storage()
    batches = open_stream(storage, spec_version=spec)
    write(batches, 0, 0)
    write(batches, 1, 1)
    write(open_stream(storage, spec_version=spec), 2, *range(2, 20))
    assert config_writes(storage) == 1
    assert stored(storage) == RULES
    assert cells(storage, "/data/temp") == {0, 1, 2}


@both_specs
def test_nothing_is_stored_where_that_is_refused(spec: int) -> None:
    storage = ic.in_memory_storage()
    write(open_stream(storage, spec_version=spec, manage_splitting=False), 0, *range(20))
    assert config_writes(storage) == 0
    assert ic.Repository.fetch_config(storage) is None


@both_specs
def test_arrays_that_are_there_keep_what_they_have(spec: int) -> None:
    storage = ic.in_memory_storage()
    write(open_stream(storage, spec_version=spec, manage_splitting=False), 0, *range(4))
    write(open_stream(storage, spec_version=spec), 1, *range(4, 20))
    assert ic.Repository.fetch_config(storage) is None


@both_specs
def test_a_variable_that_comes_later_gets_its_rule_then(spec: int) -> None:
    storage = ic.in_memory_storage()
    variables = {"temp": "float32"}
    layout = Rows(dims=LAYOUT.dims, variables=variables, chunks=LAYOUT.chunks)
    settings = StreamSettings(layout, "obs", group="/data", spec_version=spec)
    Batches.open(storage, settings).write(Call("obs", "query of obs", 0), rows(0))
    before = stored(storage)
    write(open_stream(storage), 1, 1)
    wanted = SplitPathMatches(r"^/data/rain\.mm$"), ((SplitAxis(0), CELL),)
    assert stored(storage) == (wanted, *before)
    assert config_writes(storage) == 2


@both_specs
def test_what_users_stored_is_kept_and_goes_after_the_new_rules(spec: int) -> None:
    storage = ic.in_memory_storage()
    theirs = split_by(("^/other/", 7), (r"mm$", 5))
    theirs.inline_chunk_threshold_bytes = 3
    assert theirs.manifest is not None
    theirs.manifest.max_concurrent_manifest_fetches_during_commit = 2
    ic.Repository.create(storage, theirs, spec_version=spec)
    write(open_stream(storage), 0, *range(20))
    config = ic.Repository.fetch_config(storage)

    temp = SplitPathMatches("^/data/temp$"), ((SplitAxis(0), CELL),)
    assert theirs.manifest.splitting is not None
    assert theirs.manifest.splitting.split_sizes is not None
    theirs.manifest.splitting.split_sizes = (
        temp,
        RULES[1],
        *theirs.manifest.splitting.split_sizes,
    )
    assert config == theirs
    assert cells(storage, "/data/temp") == {0, 1, 2}
    assert cells(storage, "/data/rain.mm", 5) == {0, 1, 2, 3}


def test_unknown_settings_of_a_file_are_kept() -> None:
    storage = ic.in_memory_storage()
    ic.Repository.create(storage, spec_version=1)
    there = {
        "future": {"list": [1, -2, "x"], "deep": {"flag": True}},
        "storage": {"future": 1.5, "storage_class": "GLACIER"},
        "manifest": {"future": "yes", "splitting": {"future": None}},
    }
    storage.put("config.yaml", yaml.safe_dump(there).encode())
    write(open_stream(storage), 0, 0)

    found = ic.Repository.open(storage).config
    assert found.storage == ic.StorageSettings(storage_class="GLACIER")
    assert stored(storage) == RULES
    text = storage.get("config.yaml").decode().replace("!path_matches", "").replace("!Axis", "")
    document = yaml.safe_load(text)
    assert document["future"] == there["future"]
    assert document["storage"] == there["storage"]
    manifest = document["manifest"]
    assert manifest.pop("max_concurrent_manifest_fetches_during_commit") == 16
    assert len(manifest["splitting"].pop("split_sizes")) == 2
    assert manifest == there["manifest"]


def test_unknown_settings_of_a_repo_object_are_kept() -> None:
    storage = ic.in_memory_storage()
    repository = ic.Repository.create(storage, spec_version=2)
    future: Any = {"list": [1, -2, "x"], "deep": {"flag": True}}
    there: Any = {"future": future, "manifest": {"future": future, "splitting": {"future": 1.5}}}
    edit_config_in_repo(repository._assets, repository._update_rules, lambda _: there)
    write(open_stream(storage), 0, 0)

    raw = ic.Repository.open(storage)._assets.repo_info().config
    assert raw is not None
    document: Any = decode_flexbuffer(raw, where="repo")
    assert stored(storage) == RULES
    manifest = document["manifest"]
    assert manifest.pop("max_concurrent_manifest_fetches_during_commit") == 16
    assert len(manifest["splitting"].pop("split_sizes")) == 2
    assert document == there


@both_specs
def test_rules_given_on_opening_do_not_hide_the_stored_ones(spec: int) -> None:
    storage = ic.in_memory_storage()
    theirs = split_by((r"mm$", 5))
    for number in range(3):
        batches = open_stream(storage, spec_version=spec, config=theirs)
        write(batches, number, *range(number * 8, number * 8 + 8))
    assert stored(storage) == (
        (SplitPathMatches("^/data/temp$"), ((SplitAxis(0), CELL),)),
        RULES[1],
        *split_by((r"mm$", 5)).manifest.splitting.split_sizes,  # type: ignore[union-attr, misc]
    )
    assert cells(storage, "/data/temp") == {0, 1, 2}
    assert cells(storage, "/data/rain.mm", 5) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("spec", "key"), [(1, "config.yaml"), (2, "repo")])
def test_of_two_creators_at_once_one_stores_the_rules(spec: int, key: str) -> None:
    storage = Interrupted(key, lambda _: None)
    storage.before = None
    ours, theirs = (open_stream(storage, app, spec_version=spec) for app in ("obs", "other"))
    storage.before = lambda _: write(theirs, 0, *range(4), app="other")
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


def test_no_cell_of_an_array_that_does_not_grow_is_stored() -> None:
    storage = ic.in_memory_storage()
    layout = Rows(
        dims={"station": fixed(STATIONS)}, variables={"temp": "float32"}, chunks={"station": 1}
    )
    batches = Batches.open(storage, StreamSettings(layout, "obs"))
    assert isinstance(batches.write(Call("obs", "query", 0), rows(0)), Committed)
    assert ic.Repository.fetch_config(storage) is None


def test_a_growing_axis_beside_the_time_gets_room_too() -> None:
    storage = ic.in_memory_storage()
    layout = Rows(
        dims={"station": append(), "time": append()},
        variables={"temp": "float32"},
        chunks={"time": 1, "station": 1},
    )
    batches = Batches.open(storage, StreamSettings(layout, "obs"))
    assert isinstance(batches.write(Call("obs", "query", 0), rows(0, 1)), Committed)
    sizes = ((SplitAxis(0), 16), (SplitAxis(1), 8_192))
    assert stored(storage) == (
        (SplitPathMatches("^/(?:station|time)$"), ((SplitAxis(0), 131_072),)),
        (SplitPathMatches("^/temp$"), sizes),
    )


def test_a_batch_that_fails_stores_no_rules() -> None:
    storage = ic.in_memory_storage()
    bad = pa.Table.from_pandas(pd.DataFrame({"time": pd.to_datetime(["2020-01-01"])}))
    for name, kind in (("station", pa.int64()), ("temp", pa.float32()), ("rain.mm", pa.float32())):
        bad = bad.append_column(name, pa.array([5], kind))
    with pytest.raises(ic.errors.BadRowsError):
        open_stream(storage).write(Call("obs", "query", 0), RowsInMemory(bad))
    assert ic.Repository.fetch_config(storage) is None


def append_by_reference(folder: Path, hours: range) -> None:
    """What another writer does: longer arrays, and more chunks."""
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)))
    for first in range(hours.start, hours.stop, 3):
        session = repository.writable_session("main")
        data = zarr.open_group(session.store, path="data", mode="r+")
        end = min(first + 3, hours.stop)
        time = data["time"]
        assert isinstance(time, zarr.Array)
        step = int(time[1] - time[0])  # type: ignore[call-overload, operator]
        time.resize((end,))
        time[first:end] = int(time[0]) + step * np.arange(first, end)  # type: ignore[call-overload]
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
