"""Processes that are killed at storage calls of three commits on local disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icechunk_stream import Repository
from icechunk_stream.storage import LocalStorage
from tests.concurrency import killed_compactions
from tests.concurrency.kills import run
from tests.concurrency.three_commits import ALL, assert_all_committed_once
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("spec_version", [1, 2])
def test_whoever_comes_after_a_killed_writer_goes_on_from_the_tip(
    spec_version: int, every: int, tmp_path: Path
) -> None:
    histories = run(tmp_path, spec_version, every)
    assert len(histories) > len(ALL)
    reached = [len(at_first) for at_first, _ in histories]
    assert reached == sorted(reached)
    assert set(reached) == {1, 2, 3}
    for number, (at_first, in_the_end) in enumerate(histories, 1):
        assert at_first == ALL[: len(at_first)]
        assert in_the_end == ALL
        path = tmp_path / str(number)
        assert_all_committed_once(Repository.open(LocalStorage(path)))
        if spec_version in SPEC_VERSIONS:
            theirs = REFERENCE.local_filesystem_storage(str(path))
            assert_all_committed_once(REFERENCE.Repository.open(theirs))


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_killed_compaction_loses_nothing_and_the_next_one_ends(
    spec_version: int, every: int, tmp_path: Path
) -> None:
    found = killed_compactions.run(tmp_path, spec_version, every)

    # Every manifest read and written, the snapshot, its log, and the swap.
    assert len(found) > (15 + 3) // every
    landed = [each["had_landed"] for each in found]
    assert landed == sorted(landed)
    for each in found:
        assert each["is_whole"]
        assert each["has_all_chunks"]
        assert each["is_compact"]
