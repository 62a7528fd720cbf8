"""Many processes commit to one branch: every commit is in its history, with all that it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
FOUR_OF_EACH = Work(ours=4, theirs=4, commits=25)


def assert_all_are_kept(place: Place, work: Work, spec_version: int) -> None:
    Repository.create(storage(OURS, place), spec_version=spec_version)
    prepare(opened(OURS, place), work)
    calls = run(place, work)
    assert_written_once(calls)
    for library in (OURS, THEIRS):
        repository = opened(library, place)
        first, second, *others = messages(repository)
        assert (first, second) == (ROOT, "prepare")
        assert sorted(others) == work.messages
        assert read(repository.readonly_session("main").store) == work.contents


@pytest.mark.parametrize("spec_version", [1, 2])
def test_eight_processes_on_local_disk_lose_no_commit(spec_version: int, tmp_path: Path) -> None:
    assert_all_are_kept(local(tmp_path / "repository"), EIGHT_OF_OURS, spec_version)


@pytest.mark.parametrize("spec_version", [1, 2])
def test_eight_processes_on_an_object_store_lose_no_commit(
    spec_version: int, bucket: Bucket
) -> None:
    assert_all_are_kept(bucket.place(), EIGHT_OF_OURS, spec_version)


@pytest.mark.compat
@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
def test_two_libraries_on_an_object_store_lose_no_commit(spec_version: int, bucket: Bucket) -> None:
    assert_all_are_kept(bucket.place(), FOUR_OF_EACH, spec_version)
