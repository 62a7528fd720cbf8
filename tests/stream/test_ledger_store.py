"""Ledgers in real repositories of both specs, beside and between commits of the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr

import icechunk_stream as ic
from icechunk_stream.errors import FormatError, InvalidInputError
from icechunk_stream.stream.ledger import LedgerEntry
from icechunk_stream.stream.ledger_record import (
    LedgerRecord,
)
from icechunk_stream.stream.ledger_store import (
    check_app_id,
    forget_ledger,
    is_of_batch,
    ledger_path,
    list_ledgers,
    list_waits,
    read_ledger,
    read_record,
    snapshot_metadata,
    write_ledger,
    write_waiting,
)
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS
from tests.stream.ledgers import ATTRIBUTES, ENTRY, PATH

if TYPE_CHECKING:
    from pathlib import Path

    from icechunk_stream.reading import SnapshotReader

pytestmark = pytest.mark.compat


@pytest.fixture(params=SPEC_VERSIONS, ids="v{}".format)
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> ic.Repository:
    storage = ic.local_filesystem_storage(tmp_path / "repository")
    return ic.Repository.create(storage, spec_version=request.param)


@pytest.fixture
def reference(repository: ic.Repository, tmp_path: Path) -> Any:
    """The reference library's view of the same repository."""
    return REFERENCE.Repository.open(
        REFERENCE.local_filesystem_storage(str(tmp_path / "repository"))
    )


def commit(repository: ic.Repository, app_id: str, entry: LedgerEntry) -> str:
    session = repository.writable_session("main")
    write_ledger(session, app_id, entry)
    metadata = snapshot_metadata(app_id, entry.batch_id, entry.query_id)
    return session.commit(f"batch {entry.batch_id}", metadata)


def tip(repository: ic.Repository) -> SnapshotReader:
    return repository.readonly_session("main").reader


# -- round trips -----------------------------------------------------------------------------------


def test_an_entry_is_read_back_and_a_new_one_takes_its_place(repository: ic.Repository) -> None:
    assert read_ledger(tip(repository), "obs-v1") is None

    commit(repository, "obs-v1", ENTRY)
    assert read_ledger(tip(repository), "obs-v1") == ENTRY

    commit(repository, "obs-v1", LedgerEntry("q", 8))
    assert read_ledger(tip(repository), "obs-v1") == LedgerEntry("q", 8)


def test_the_reference_reads_the_ledger_as_attributes(
    repository: ic.Repository, reference: Any
) -> None:
    commit(repository, "obs-v1", ENTRY)

    store = reference.readonly_session("main").store
    root = zarr.open_group(store, mode="r")
    assert dict(root["_icechunk_stream/obs-v1"].attrs) == ATTRIBUTES
    assert [name for name, _ in root.members(max_depth=None)] == [
        "_icechunk_stream",
        "_icechunk_stream/obs-v1",
    ]


def test_the_reference_reads_the_batch_in_the_snapshot_metadata(
    repository: ic.Repository, reference: Any
) -> None:
    made = commit(repository, "obs-v1", ENTRY)

    found = next(iter(reference.ancestry(branch="main")))
    assert found.id == made
    assert found.metadata == {
        "icechunk_stream": {"app_id": "obs-v1", "batch_id": 7, "query_id": ENTRY.query_id}
    }
    assert is_of_batch(found.metadata, "obs-v1", 7, ENTRY.query_id)
    assert not is_of_batch(found.metadata, "obs-v1", 8, ENTRY.query_id)
    assert not is_of_batch({}, "obs-v1", 7, ENTRY.query_id)


def test_xarray_opens_the_root_beside_a_ledger_without_a_warning(
    repository: ic.Repository, reference: Any
) -> None:
    written = xr.Dataset({"temp": ("x", np.arange(3.0))}, attrs={"title": "t"})
    session = reference.writable_session("main")
    written.to_zarr(session.store, consolidated=False)
    session.commit("data")
    commit(repository, "obs-v1", ENTRY)

    for library in (repository, reference):
        store: Any = library.readonly_session("main").store
        xr.testing.assert_identical(xr.open_zarr(store, consolidated=False).load(), written)
        tree = xr.open_datatree(store, engine="zarr", consolidated=False)
        assert tree["_icechunk_stream/obs-v1"].attrs == ATTRIBUTES


def test_a_ledger_outlives_commits_of_the_reference_and_expired_history(
    repository: ic.Repository, reference: Any
) -> None:
    commit(repository, "obs-v1", ENTRY)
    session = reference.writable_session("main")
    zarr.open_group(session.store, mode="a").create_group("other", attributes={"a": 1})
    latest = session.commit("other's")
    when = reference.lookup_snapshot(latest).written_at

    reference.expire_snapshots(older_than=when)
    reference.garbage_collect(when)

    again = ic.Repository.open(repository.storage)
    assert read_ledger(tip(again), "obs-v1") == ENTRY


def test_two_drivers_of_a_stream_conflict_in_both_libraries(
    repository: ic.Repository, reference: Any
) -> None:
    commit(repository, "obs-v1", ENTRY)
    ours, solver = repository.writable_session("main"), ic.ConflictDetector()
    write_ledger(ours, "obs-v1", replace(ENTRY, batch_id=8))
    theirs = reference.writable_session("main")
    zarr.open_group(theirs.store, path=PATH, mode="a").attrs["batch_id"] = 8
    commit(repository, "obs-v1", replace(ENTRY, batch_id=8))

    with pytest.raises(ic.RebaseFailedError):
        ours.commit("twin", rebase_with=solver)
    with pytest.raises(REFERENCE.RebaseFailedError):
        theirs.commit("twin", rebase_with=REFERENCE.ConflictDetector())


def test_streams_do_not_touch_each_others_ledgers(repository: ic.Repository) -> None:
    commit(repository, "one", ENTRY)
    session = repository.writable_session("main")
    write_ledger(session, "two", LedgerEntry("q", 0))
    commit(repository, "one", replace(ENTRY, batch_id=8))

    session.commit("rebased", rebase_with=ic.ConflictDetector())

    assert list_ledgers(tip(repository)) == {
        "one": LedgerRecord(replace(ENTRY, batch_id=8)),
        "two": LedgerRecord(LedgerEntry("q", 0)),
    }


def test_writing_a_ledger_changes_the_root_group_only_where_there_is_none(
    repository: ic.Repository,
) -> None:
    session = repository.writable_session("main")
    zarr.create_group(session.store, attributes={"title": "kept"})
    write_ledger(session, "obs-v1", ENTRY)

    assert read_ledger(session.reader, "obs-v1") == ENTRY
    assert dict(zarr.open_group(session.store, mode="r").attrs) == {"title": "kept"}


def test_a_stream_that_was_forgotten_has_no_ledger(repository: ic.Repository) -> None:
    commit(repository, "obs-v1", ENTRY)
    session = repository.writable_session("main")

    forget_ledger(session, "obs-v1")
    session.commit("forget")

    assert read_record(tip(repository), "obs-v1") is None
    assert list_ledgers(tip(repository)) == {}


# -- the way ---------------------------------------------------------------------------------------


def test_the_way_is_asked_for_before_the_first_batch_and_no_longer_after_it(
    repository: ic.Repository,
) -> None:
    session = repository.writable_session("main")
    write_waiting(session, "obs-v1", 1_000)
    session.commit("way")

    assert read_record(tip(repository), "obs-v1") == LedgerRecord(None, 1_000)
    assert read_ledger(tip(repository), "obs-v1") is None
    assert list_waits(tip(repository)) == {"obs-v1": 1_000}

    commit(repository, "obs-v1", ENTRY)
    assert read_record(tip(repository), "obs-v1") == LedgerRecord(ENTRY, None)
    assert list_waits(tip(repository)) == {}


def test_asking_for_the_way_keeps_the_last_batch(repository: ic.Repository) -> None:
    commit(repository, "obs-v1", ENTRY)
    session = repository.writable_session("main")

    write_waiting(session, "obs-v1", 1_000)
    assert read_record(session.reader, "obs-v1") == LedgerRecord(ENTRY, 1_000)

    write_waiting(session, "obs-v1", None)
    assert read_record(session.reader, "obs-v1") == LedgerRecord(ENTRY)


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("app_id", ["obs-v1", "a", "_a", "A.b_c-9", "9", "c", "x" * 128])
def test_a_name_that_every_store_takes_is_an_app_id(app_id: str, repository: ic.Repository) -> None:
    commit(repository, app_id, ENTRY)

    assert list_ledgers(tip(repository)) == {app_id: LedgerRecord(ENTRY)}


@pytest.mark.parametrize(
    "app_id",
    [
        "",
        "a/b",
        "/a",
        "__a",
        ".",
        "..",
        ".a",
        "-a",
        "a b",
        "é",
        "a\n",
        "zarr.json",
        "x" * 129,
        None,
        1,
    ],
)
def test_other_names_are_refused(app_id: Any) -> None:
    with pytest.raises(InvalidInputError, match="the app_id is"):
        check_app_id(app_id)


# -- what others put in the place of a ledger -----------------------------------------------------


def test_damaged_ledgers_of_others_stop_no_stream(repository: ic.Repository) -> None:
    session = repository.writable_session("main")
    write_ledger(session, "mine", ENTRY)
    write_waiting(session, "slow", 1_000)
    group = zarr.open_group(session.store, mode="a")
    group.create_group("_icechunk_stream/damaged", attributes={"version": 1, "batch_id": "x"})
    group.create_group("_icechunk_stream/mine/below", attributes={"version": 9})
    session.commit("damage")
    reader = tip(repository)

    assert read_ledger(reader, "mine") == ENTRY
    assert list_waits(reader) == {"slow": 1_000}
    for read in (lambda: read_ledger(reader, "damaged"), lambda: list_ledgers(reader)):
        with pytest.raises(FormatError, match=r"^/_icechunk_stream/damaged: "):
            read()


def test_an_array_in_a_ledgers_place_is_refused(repository: ic.Repository) -> None:
    session = repository.writable_session("main")
    zarr.create_array(session.store, name=PATH[1:], shape=(1,), dtype="i1")

    with pytest.raises(FormatError, match="an array is there"):
        read_ledger(session.reader, "obs-v1")
    with pytest.raises(ic.AlreadyExistsError):
        write_ledger(session, "obs-v1", ENTRY)


@pytest.mark.parametrize("path", ["", "_icechunk_stream"])
def test_an_array_in_the_place_of_a_group_above_is_refused(
    path: str, repository: ic.Repository
) -> None:
    session = repository.writable_session("main")
    zarr.create_array(session.store, name=path or None, shape=(1,), dtype="i1")

    with pytest.raises(FormatError, match="an array is there, and no group"):
        write_ledger(session, "obs-v1", ENTRY)


def test_the_path_of_a_ledger_is_below_the_folder_of_all_streams() -> None:
    assert ledger_path("obs-v1") == PATH
