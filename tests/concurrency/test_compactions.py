"""Manifests are merged while processes of both libraries commit: every commit stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icechunk_stream import AlreadyCompact, Repository
from tests.concurrency.committers import COMPACTION, SMALL, Work, prepare, run
from tests.concurrency.contents import read
from tests.concurrency.places import OURS, THEIRS, Bucket, Place, local, opened, storage
from tests.concurrency.three_commits import ROOT, messages
from tests.manifests.checks import check_manifests
from tests.oracle.libraries import SPEC_VERSIONS

if TYPE_CHECKING:
    from pathlib import Path

THREE_OF_OURS = Work(ours=3, theirs=0, commits=12, compacts=True)
TWO_OF_EACH = Work(ours=2, theirs=2, commits=10, compacts=True)


def assert_nothing_is_lost(place: Place, work: Work, spec_version: int) -> None:
    Repository.create(storage(OURS, place), spec_version=spec_version)
    prepare(opened(OURS, place), work)
    run(place, work)
    ours = opened(OURS, place).with_manifest_policy(SMALL)
    ours.compact(COMPACTION, branch="main")
    for library in (OURS, THEIRS) if spec_version in SPEC_VERSIONS else (OURS,):
        repository = opened(library, place)
        first, second, *others = messages(repository)
        assert (first, second) == (ROOT, "prepare")
        assert sorted(each for each in others if each != COMPACTION) == work.messages
        # How many came between commits is up to the processes; the last one is always there.
        assert COMPACTION in others
        assert read(repository.readonly_session("main").store) == work.contents
    check_manifests(ours)
    assert isinstance(ours.compact(branch="main"), AlreadyCompact)


@pytest.mark.parametrize("spec_version", [1, 2])
def test_compactions_beside_our_writers_on_local_disk_lose_nothing(
    spec_version: int, tmp_path: Path
) -> None:
    assert_nothing_is_lost(local(tmp_path / "repository"), THREE_OF_OURS, spec_version)


@pytest.mark.compat
@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
def test_compactions_beside_writers_of_both_libraries_lose_nothing(
    spec_version: int, bucket: Bucket
) -> None:
    assert_nothing_is_lost(bucket.place(), TWO_OF_EACH, spec_version)
