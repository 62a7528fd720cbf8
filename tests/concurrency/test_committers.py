"""Many processes commit to one branch: every commit is in its history, with all that it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from icechunk_stream import Repository
from tests.concurrency.committers import Work, prepare, run
from tests.concurrency.contents import read
from tests.concurrency.places import OURS, THEIRS, Bucket, Place, local, opened, storage
from tests.concurrency.three_commits import ROOT, messages
from tests.concurrency.written_once import assert_written_once
from tests.oracle.libraries import SPEC_VERSIONS

if TYPE_CHECKING:
    from pathlib import Path

EIGHT_OF_OURS = Work(ours=8, theirs=0, commits=25)
FOUR_OF_EACH = Work(ours=4, theirs=4, commits=15)


def assert_all_are_kept(place: Place, work: Work, spec_version: int) -> None:
    Repository.create(storage(OURS, place), spec_version=spec_version)
    prepare(opened(OURS, place), work)
    calls = run(place, work)
    assert_written_once(calls)
    for library in (OURS, THEIRS) if spec_version in SPEC_VERSIONS else (OURS,):
        repository = opened(library, place)
        first, second, *others = messages(repository)
        assert (first, second) == (ROOT, "prepare")
        assert sorted(others) == work.messages
        assert read(repository.readonly_session("main").store) == work.contents
        if spec_version == 2:
            assert_log_is_whole(repository, work)


def assert_log_is_whole(repository: Any, work: Work) -> None:
    """Spec v2 logs every commit once, each later than the one before; of either library."""
    updates = list(repository.ops_log())
    times = [update.updated_at for update in updates]
    assert times == sorted(set(times), reverse=True)
    assert len(updates) == work.total + 2
    backups = [update.backup_path for update in updates]
    assert backups[0] is None
    assert len(set(backups)) == len(backups)


@pytest.mark.parametrize("spec_version", [1, 2])
def test_eight_processes_on_local_disk_lose_no_commit(spec_version: int, tmp_path: Path) -> None:
    assert_all_are_kept(local(tmp_path / "repository"), EIGHT_OF_OURS, spec_version)


@pytest.mark.compat
@pytest.mark.parametrize("spec_version", [1, 2])
def test_eight_processes_on_an_object_store_lose_no_commit(
    spec_version: int, bucket: Bucket
) -> None:
    assert_all_are_kept(bucket.place(), EIGHT_OF_OURS, spec_version)


@pytest.mark.compat
@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
def test_two_libraries_on_an_object_store_lose_no_commit(spec_version: int, bucket: Bucket) -> None:
    assert_all_are_kept(bucket.place(), FOUR_OF_EACH, spec_version)
