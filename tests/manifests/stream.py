"""A stream of appended batches, late values among them, and what has to be there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import zarr

from icechunk_stream import Repository, local_filesystem_storage
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.manifests.checks import check_manifests

if TYPE_CHECKING:
    from pathlib import Path

    from icechunk_stream import RepositoryConfig, Tiered

BATCH = 4


class Stream:
    """Appends of equal batches to an array, and what it has to hold."""

    def __init__(
        self,
        folder: Path,
        policy: Tiered,
        spec_version: int = 1,
        config: RepositoryConfig | None = None,
    ) -> None:
        self.folder = folder
        self.storage = WrappedStorage(local_filesystem_storage(str(folder), durability="os"))
        created = Repository.create(self.storage, config, spec_version=spec_version)
        self.repository = created.with_manifest_policy(policy)
        self.expected = np.zeros(0, "i4")
        session = self.repository.writable_session("main")
        zarr.create_array(
            session.store, name="a", shape=(0,), chunks=(1,), dtype="i4", fill_value=-1
        )
        session.commit("create")

    def append(self, count: int = BATCH, *, wait: bool = True) -> None:
        session = self.repository.writable_session("main")
        new = np.arange(count, dtype="i4") + len(self.expected)
        self.expected = np.append(self.expected, new)
        array = zarr.open_array(session.store, path="a", mode="r+")
        array.resize(len(self.expected))
        array[-count:] = new
        session.commit("append")
        if wait:
            self.wait()

    def write(self, index: int | slice, value: int) -> None:
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
