"""Merges that no commit waits for: made in between, and taken over by a later one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import zarr

from icechunk_stream import Repository, Tiered
from icechunk_stream.effects import monotonic
from icechunk_stream.testing.storage_calls import Fail
from tests.manifests.stream import Stream

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.compat,
    pytest.mark.filterwarnings("ignore:The LocalFileSystem"),
]

# Three of like size merge, and no commit waits for a merge unless twelve are there.
POLICY = Tiered(cell_refs=64, ratio=3, most=12, shared_refs=32, quick_refs=1)


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_merge_made_after_a_commit_is_part_of_the_next(tmp_path: Path, spec_version: int) -> None:
    stream = Stream(tmp_path, POLICY, spec_version)
    for _ in range(4):
        stream.append()

    # The fourth commit asked for the merge of three, which the fifth takes over.
    assert stream.boxes == [[0, 4], [4, 8], [8, 12], [12, 16]]
    stream.storage.script.forget()
    stream.append()

    assert stream.boxes == [[0, 12], [12, 16], [16, 20]]
    assert len(stream.storage.script.calls_of("put", "manifests/*")) == 1
    stream.check()


def test_a_merge_of_manifests_that_changed_meanwhile_is_not_taken_over(tmp_path: Path) -> None:
    stream = Stream(tmp_path, POLICY)
    for _ in range(4):
        stream.append()
    other = Repository.open(stream.storage.inner).with_manifest_policy(POLICY)
    session = other.writable_session("main")
    zarr.open_array(session.store, path="a", mode="r+")[5] = 500
    session.commit("late, by another process")
    stream.expected[5] = 500
    stream.append()

    assert stream.boxes[0] == [0, 4]
    stream.check()


def test_late_values_are_written_into_a_merge_that_is_taken_over(tmp_path: Path) -> None:
    stream = Stream(tmp_path, POLICY)
    for _ in range(4):
        stream.append()
    stream.write(5, 500)

    assert stream.boxes == [[0, 12], [12, 16]]
    stream.check()


def test_a_merge_that_waited_long_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing refers to it, so that a garbage collection may have taken it."""
    stream = Stream(tmp_path, POLICY)
    for _ in range(4):
        stream.append()
    stored = {info.key for info in stream.storage.list("manifests/")}
    used = {f"manifests/{file.id}" for file in _tip_files(stream)}
    for key in stored - used:
        stream.storage.delete_many([key])
    later = monotonic() + 601
    monkeypatch.setattr("icechunk_stream.upkeep.monotonic", lambda: later)
    stream.append()

    assert stream.boxes[0] == [0, 4]
    stream.check()


def test_a_merge_that_cannot_be_stored_is_reported_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(tmp_path, POLICY)
    for _ in range(3):
        stream.append()
    # The commit's own manifest is the first, and the merge's the second.
    stream.storage.script.disturb(Fail(), method="put", key="manifests/*", nth=2)
    with caplog.at_level(logging.WARNING, "icechunk_stream.upkeep"):
        stream.append()

    assert "manifests were not merged" in caplog.text
    stream.append()
    stream.append()
    assert stream.boxes[0] == [0, 16]
    stream.check()


def test_where_merges_never_come_to_an_end_a_commit_makes_them(tmp_path: Path) -> None:
    """As in jobs of one commit each."""
    stream = Stream(tmp_path, POLICY)
    for _ in range(40):
        stream.append(wait=False)
        stream.repository = Repository.open(stream.storage).with_manifest_policy(POLICY)
        assert sum(not POLICY.is_full(high - low) for low, high in stream.boxes) <= POLICY.most
    stream.check()


def _tip_files(stream: Stream) -> list[Any]:
    id = stream.repository.lookup_branch("main")
    return stream.repository.list_manifest_files(id)
