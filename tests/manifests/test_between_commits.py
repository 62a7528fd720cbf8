"""Merges that no commit waits for: made in between, and taken over by a later one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pytest
import zarr

from icechunk_stream import Repository, Tiered, local_filesystem_storage
from icechunk_stream.effects import monotonic
from icechunk_stream.testing.storage_calls import Fail
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.manifests.checks import check_manifests

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.compat,
    pytest.mark.filterwarnings("ignore:The LocalFileSystem"),
]

# Three of like size merge, and no commit waits for a merge unless twelve are there.
POLICY = Tiered(cell_refs=64, ratio=3, most=12, shared_refs=32, quick_refs=1)
BATCH = 4


class Stream:
    """Appends of equal batches to an array, and what it has to hold."""

    def __init__(self, folder: Path, spec_version: int = 1) -> None:
        self.folder = folder
        self.storage = WrappedStorage(local_filesystem_storage(str(folder), durability="os"))
        created = Repository.create(self.storage, spec_version=spec_version)
        self.repository = created.with_manifest_policy(POLICY)
        self.expected = np.zeros(0, "i4")
        session = self.repository.writable_session("main")
        zarr.create_array(
            session.store, name="a", shape=(0,), chunks=(1,), dtype="i4", fill_value=-1
        )
        session.commit("create")

    def append(self, *, wait: bool = True) -> None:
        session = self.repository.writable_session("main")
        new = np.arange(BATCH, dtype="i4") + len(self.expected)
        self.expected = np.append(self.expected, new)
        array = zarr.open_array(session.store, path="a", mode="r+")
        array.resize(len(self.expected))
        array[-BATCH:] = new
        session.commit("append")
        if wait:
            self.wait()

    def write(self, index: int, value: int) -> None:
        session = self.repository.writable_session("main")
        zarr.open_array(session.store, path="a", mode="r+")[index] = value
        self.expected[index] = value
        session.commit("late")

    def wait(self) -> None:
        self.repository._upkeep.finish()

    @property
    def boxes(self) -> list[list[int]]:
        node = self.repository.readonly_session("main").reader.array("/a")
        found: list[list[int]] = node.manifests.extents[:, 0].tolist()
        return found

    def check(self) -> None:
        """Both libraries read what was written; every chunk is in one manifest."""
        chunks = check_manifests(self.repository)["/a"]
        assert chunks == {(index,) for index in range(len(self.expected))}
        reference = icechunk.Repository.open(icechunk.local_filesystem_storage(str(self.folder)))
        for repository in (self.repository, reference):
            store: Any = repository.readonly_session("main").store
            np.testing.assert_array_equal(
                zarr.open_array(store, path="a", mode="r")[:], self.expected
            )


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_merge_made_after_a_commit_is_part_of_the_next(tmp_path: Path, spec_version: int) -> None:
    stream = Stream(tmp_path, spec_version)
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
    stream = Stream(tmp_path)
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
    stream = Stream(tmp_path)
    for _ in range(4):
        stream.append()
    stream.write(5, 500)

    assert stream.boxes == [[0, 12], [12, 16]]
    stream.check()


def test_a_merge_that_waited_long_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing refers to it, so that a garbage collection may have taken it."""
    stream = Stream(tmp_path)
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
    stream = Stream(tmp_path)
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
    stream = Stream(tmp_path)
    for _ in range(40):
        stream.append(wait=False)
        stream.repository = Repository.open(stream.storage).with_manifest_policy(POLICY)
        assert sum(high - low < POLICY.cell_refs for low, high in stream.boxes) <= POLICY.most
    stream.check()


def _tip_files(stream: Stream) -> list[Any]:
    id = stream.repository.lookup_branch("main")
    return stream.repository.list_manifest_files(id)
