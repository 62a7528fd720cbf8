"""Arrays without dimensions, whose boxes have no sides."""

from __future__ import annotations

import zarr

from icechunk_stream import Repository, in_memory_storage
from tests.manifests.checks import check_manifests


def test_scalars_are_written_and_deleted_in_one_commit() -> None:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    for name in ("a", "b", "c"):
        zarr.create_array(session.store, name=name, shape=(), dtype="i4", fill_value=0)[...] = 1
    session.commit("create")

    session = repository.writable_session("main")
    session.edits.delete_chunk("/a", ())
    zarr.open_array(session.store, path="b", mode="r+")[...] = 2
    zarr.open_array(session.store, path="c", mode="r+").attrs["note"] = "the chunk stays"
    session.commit("change")

    assert check_manifests(repository) == {"/a": set(), "/b": {()}, "/c": {()}}
    store = repository.readonly_session("main").store
    values = [zarr.open_array(store, path=name, mode="r")[()] for name in "abc"]
    assert values == [0, 2, 1]
