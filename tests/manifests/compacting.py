"""Repositories whose manifests are worth merging, and what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

if TYPE_CHECKING:
    from collections.abc import Sequence


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
