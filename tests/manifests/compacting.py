"""Repositories whose manifests are worth merging, and what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from icechunk_stream import Repository, Tiered, in_memory_storage
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.manifests.checks import arrays, stored_manifests, tip

if TYPE_CHECKING:
    from collections.abc import Sequence

# Nothing merges by itself.
SCATTERED = Tiered(ratio=900, most=1_000, shared_refs=1)
READERS = Tiered(cell_refs=20, shared_refs=10)
NAMES = ("a", "b", "c")


def create_arrays(repository: Any, names: Sequence[str]) -> None:
    session = repository.writable_session("main")
    group = zarr.open_group(session.store, mode="w")
    for name in names:
        group.create_array(name, shape=(0,), chunks=(1,), dtype="int32", fill_value=-1)
    session.commit("arrays")


def append(repository: Any, names: Sequence[str], count: int, **options: Any) -> str:
    """So many new chunks at the end of each array, all of different values."""
    session = repository.writable_session("main")
    for name in names:
        array = zarr.open_array(session.store, path=name)
        (length,) = array.shape
        array.resize((length + count,))
        array[length:] = np.arange(length, length + count)
    snapshot: str = session.commit(f"append {count} to {' '.join(names)}", **options)
    return snapshot


def values(repository: Any, branch: str = "main") -> dict[str, list[int]]:
    """What every array holds."""
    store = repository.readonly_session(branch).store
    group = zarr.open_group(store, mode="r")
    return {name: np.asarray(array[...]).tolist() for name, array in sorted(group.arrays())}


def scattered(spec_version: int, commits: int = 12, size: int = 4) -> Repository:
    """Three arrays with a small manifest of each commit; a wrapper around memory holds them."""
    storage = WrappedStorage(in_memory_storage())
    repository = Repository.create(storage, spec_version=spec_version)
    repository = repository.with_manifest_policy(SCATTERED)
    create_arrays(repository, NAMES)
    for _ in range(commits):
        append(repository, NAMES, size)
    return repository.with_manifest_policy(READERS)


def sizes(repository: Repository) -> dict[str, list[int]]:
    """How many references each manifest of an array has of it."""
    manifests = stored_manifests(repository)
    return {
        node.path: [len(manifests[id.tobytes()].arrays[node.id]) for id in node.manifests.ids]
        for node in arrays(tip(repository))
    }


def writes(repository: Repository, key: str = "manifests/*") -> list[str]:
    return [call.key for call in script(repository).calls_of("put", key)]


def script(repository: Repository) -> Any:
    storage = repository.storage
    assert isinstance(storage, WrappedStorage)
    return storage.script
