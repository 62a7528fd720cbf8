"""The stored splitting of arrays that a stream makes: where it is stored, and what it leaves."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import yaml

import icechunk_stream as ic
from icechunk_stream.config import SplitAxis, SplitPathMatches
from icechunk_stream.errors import BadRowsError
from icechunk_stream.format.flexbuffers import decode_flexbuffer
from icechunk_stream.stored_config import edit_config_in_repo
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Rows, append, fixed
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.stream.row_source import RowsInMemory
from tests.stream.split_streams import (
    CELL,
    LAYOUT,
    RULES,
    STATIONS,
    cells,
    config_writes,
    open_stream,
    rows,
    split_by,
    stored,
    write,
)

both_specs = pytest.mark.parametrize("spec", [1, 2])


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
    with pytest.raises(BadRowsError):
        open_stream(storage).write(Call("obs", "query", 0), RowsInMemory(bad))
    assert ic.Repository.fetch_config(storage) is None
