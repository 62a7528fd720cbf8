"""Manifests merged for readers: what becomes one, what stays, and who may commit meanwhile."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from zarr.core.sync import sync

from icechunk_stream import (
    AlreadyCompact,
    Compacted,
    CompactionProgress,
    FormatError,
    InvalidInputError,
    ManifestTotals,
    RefNotFoundError,
    Repository,
    RepositoryConfig,
    SessionStateError,
    VirtualChunkContainer,
    VirtualChunkSpec,
    in_memory_storage,
    local_filesystem_store,
)
from icechunk_stream.errors import CommitStateUnknownError, StorageError
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.testing.storage_calls import Fail, LoseAnswer
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.manifests.checks import arrays, check_manifests, tip
from tests.manifests.compacting import (
    NAMES,
    READERS,
    SCATTERED,
    append,
    scattered,
    script,
    sizes,
    values,
)
from tests.manifests.splits import along_first_axis

if TYPE_CHECKING:
    from pathlib import Path


def test_small_neighbours_become_full_manifests_and_values_stay(spec_version: int) -> None:
    repository = scattered(spec_version)
    before, chunks = values(repository), check_manifests(repository)
    assert sizes(repository) == {f"/{name}": [4] * 12 for name in NAMES}

    outcome = repository.compact(branch="main")

    assert isinstance(outcome, Compacted)
    assert sizes(repository) == {f"/{name}": [20, 20, 8] for name in NAMES}
    assert values(repository) == before
    assert check_manifests(repository) == chunks
    assert outcome.before.manifests == 36
    # The three ends are small, and two of them fit into one manifest.
    assert outcome.after.manifests == 6 + 3
    assert outcome.before.refs == outcome.after.refs == outcome.written.refs == 144
    assert outcome.after == ManifestTotals.of(tip(repository).manifest_files)
    assert outcome.lost_races == 0
    assert outcome.snapshot_id == repository.lookup_branch("main")


def test_what_is_merged_already_is_not_written_again(spec_version: int) -> None:
    repository = scattered(spec_version)
    first = repository.compact(branch="main")
    script(repository).forget()

    again = repository.compact(branch="main")

    assert again == AlreadyCompact(
        first.snapshot_id, ManifestTotals.of(tip(repository).manifest_files)
    )
    assert script(repository).calls_of("put") == []
    assert "nothing to do" in str(again)


def test_only_what_was_added_is_merged_the_next_time(spec_version: int) -> None:
    repository = scattered(spec_version)
    repository.compact(branch="main")
    full = {id.tobytes() for node in arrays(tip(repository)) for id in node.manifests.ids[:2]}
    append(repository.with_manifest_policy(SCATTERED), ["a"], 15)

    outcome = repository.compact(branch="main")

    assert isinstance(outcome, Compacted)
    assert outcome.written.refs == 23
    assert full <= {file.id.raw for file in tip(repository).manifest_files}
    assert sizes(repository)["/a"] == [20, 20, 23]


def test_arrays_of_few_chunks_share_a_manifest(spec_version: int) -> None:
    repository = scattered(spec_version, commits=2, size=1)

    outcome = repository.compact(branch="main")

    assert isinstance(outcome, Compacted)
    assert (outcome.before.manifests, outcome.after.manifests) == (6, 1)
    assert sizes(repository) == {f"/{name}": [2] for name in NAMES}
    assert values(repository) == {key: [0, 1] for key in NAMES}


def test_references_that_no_array_uses_vanish(spec_version: int) -> None:
    repository = scattered(spec_version, commits=3, size=1)
    repository.compact(branch="main")
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[:] = 9
    sync(session.store.delete_dir("b"))
    session.commit("other values")
    (left,) = [file for file in tip(repository).manifest_files if file.num_chunk_refs == 9]

    outcome = repository.compact(branch="main")

    assert isinstance(outcome, Compacted)
    assert left.id not in {file.id for file in tip(repository).manifest_files}
    assert outcome.after.refs == 6
    assert outcome.after.manifests == 1
    assert values(repository) == {"a": [9] * 3, "c": [0, 1, 2]}


def test_new_cells_part_manifests_that_reach_across(spec_version: int) -> None:
    repository = scattered(spec_version)
    before = values(repository)
    config = RepositoryConfig.default()
    config.manifest = along_first_axis(7)
    other = repository.reopen(config).with_manifest_policy(READERS)

    other.compact(branch="main")

    assert set(map(tuple, sizes(other).values())) == {(7, 7, 7, 7, 7, 7, 6)}
    assert values(other) == before
    assert isinstance(other.compact(branch="main"), AlreadyCompact)


def test_the_commit_changes_nothing_and_says_how_manifests_are_split(spec_version: int) -> None:
    repository = scattered(spec_version)
    repository.set_default_commit_metadata({"by": "x", "job": 1})

    id = repository.rewrite_manifests("merged", branch="main", metadata={"job": 2})

    log = repository._assets.transaction_log(SnapshotId.parse(id))
    assert not any(len(getattr(log, name)) for name in ("new_arrays", "updated_arrays"))
    assert dict(log.updated_chunks) == {}
    newest = next(iter(repository.ancestry(branch="main")))
    every = {"path_matches": {"regex": ".*"}}
    rule = [every, [{"condition": "Any", "num_chunks": 2**32 - 1}]]
    assert newest.message == "merged"
    assert newest.metadata == {
        "by": "x",
        "job": 2,
        "__icechunk": {"splitting_config": {"split_sizes": [rule]}},
    }


def test_rewriting_commits_also_where_nothing_had_to_be_written(spec_version: int) -> None:
    repository = scattered(spec_version)
    ids = [repository.rewrite_manifests("merged", branch="main") for _ in range(2)]

    assert [each.message for each in repository.ancestry(branch="main")][:2] == ["merged"] * 2
    files = [{each.id for each in repository.list_manifest_files(id)} for id in ids]
    assert files[0] == files[1]


def test_an_amended_commit_keeps_its_log_and_loses_its_manifests() -> None:
    repository = scattered(2)
    before, count = values(repository), len(list(repository.ancestry(branch="main")))
    old = SnapshotId.parse(repository.lookup_branch("main"))

    outcome = repository.compact("amended", branch="main", commit_method="amend")

    logs = [
        repository._assets.transaction_log(SnapshotId.parse(id))
        for id in (str(old), outcome.snapshot_id)
    ]
    assert next(sorted(log.updated_chunks) for log in logs) == sorted(logs[1].updated_chunks)
    assert next(each.message for each in repository.ancestry(branch="main")) == "amended"
    assert len(list(repository.ancestry(branch="main"))) == count
    assert values(repository) == before


def test_what_cannot_be_amended_or_is_not_there_is_refused() -> None:
    for spec_version, error in ((1, FormatError), (2, SessionStateError)):
        repository = Repository.create(in_memory_storage(), spec_version=spec_version)
        with pytest.raises(error, match="amend"):
            repository.compact(branch="main", commit_method="amend")
        with pytest.raises(RefNotFoundError):
            repository.compact(branch="other")
        with pytest.raises(InvalidInputError, match="'squash'"):
            repository.rewrite_manifests("x", branch="main", commit_method="squash")  # type: ignore[arg-type]


def test_progress_is_told_until_everything_is_written(spec_version: int) -> None:
    told: list[CompactionProgress] = []
    repository = scattered(spec_version)

    repository.compact(branch="main", on_progress=told.append)

    written = [each.refs_written for each in told]
    assert written == sorted(written)
    assert len(told) > 2
    assert told[-1] == CompactionProgress(144, 144, 0)


def test_references_of_every_kind_stay_what_they_are(spec_version: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(200)))
    prefix = f"file://{tmp_path}/"
    config = RepositoryConfig.default()
    config.set_virtual_chunk_container(
        VirtualChunkContainer(prefix, local_filesystem_store(str(tmp_path)))
    )
    repository = Repository.create(
        in_memory_storage(), config, {prefix: None}, spec_version=spec_version
    ).with_manifest_policy(SCATTERED)
    session = repository.writable_session("main")
    zarr.create_array(
        session.store, name="v", shape=(600,), chunks=(1,), dtype="uint8", compressors=None
    )
    wide = zarr.create_array(
        session.store, name="w", shape=(3, 900), chunks=(1, 900), dtype="uint8"
    )
    wide[:] = 7
    session.commit("arrays")
    for number in range(6):
        session = repository.writable_session("main")
        spec = VirtualChunkSpec([2 * number], f"{prefix}file", number, 1, None, None)
        session.store.set_virtual_refs("v", [spec])
        zarr.open_array(session.store, path="v")[2 * number + 1] = 100 + number
        session.commit("both kinds")
    before = values(repository)
    readers = repository.with_manifest_policy(READERS)

    assert isinstance(readers.compact(branch="main"), Compacted)

    assert values(readers) == before
    assert before["v"][:4] == [0, 100, 1, 101]
    assert readers.readonly_session("main").all_virtual_chunk_locations() == [f"{prefix}file"] * 6


# -- what fails ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fail(), LoseAnswer()])
def test_whatever_call_fails_nothing_is_lost_and_the_next_one_succeeds(
    spec_version: int, fault: Any
) -> None:
    for number in range(1, 200):
        repository = scattered(spec_version, commits=4)
        expected = values(repository)
        storage = repository.storage
        assert isinstance(storage, WrappedStorage)
        storage.script.forget()
        storage.script.disturb(fault, nth=number)
        failed = _fails(partial(repository.compact, branch="main"))
        reached = len(storage.script.calls) >= number
        storage.script.calm()
        assert values(repository) == expected
        repository.compact(branch="main")
        assert values(repository) == expected
        assert isinstance(repository.compact(branch="main"), AlreadyCompact)
        check_manifests(repository)
        if not (failed or reached):
            return
    pytest.fail("it never ended")


def _fails(call: Any) -> bool:
    try:
        call()
    except (StorageError, CommitStateUnknownError):
        return True
    return False


def test_an_empty_repository_has_nothing_to_merge(spec_version: int) -> None:
    repository = Repository.create(in_memory_storage(), spec_version=spec_version)

    outcome = repository.compact(branch="main")

    assert outcome == AlreadyCompact(repository.lookup_branch("main"), ManifestTotals(0, 0, 0))
    assert repository.rewrite_manifests("still", branch="main") == repository.lookup_branch("main")


def test_scalars_and_arrays_without_chunks_stay(spec_version: int) -> None:
    repository = scattered(spec_version)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="one", shape=(), dtype="float64")[...] = 3.5
    zarr.create_array(session.store, name="none", shape=(4, 4), chunks=(1, 1), dtype="int8")
    session.commit("more")

    repository.compact(branch="main")

    store = repository.readonly_session("main").store
    assert np.asarray(zarr.open_array(store, path="one", mode="r")[...]).item() == 3.5
    assert sizes(repository)["/one"] == [1]
    assert sizes(repository)["/none"] == []
