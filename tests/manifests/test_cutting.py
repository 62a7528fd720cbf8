"""Compaction cuts manifests that are too large, as long as straight cuts part them well."""

from __future__ import annotations

import numpy as np
import zarr

from icechunk_stream import AlreadyCompact, Repository, Tiered, in_memory_storage
from tests.manifests.checks import check_manifests
from tests.manifests.compacting import SCATTERED, scattered, sizes, values


def test_a_manifest_that_is_too_large_is_cut(spec_version: int) -> None:
    repository = scattered(spec_version, commits=1, size=100)
    before = values(repository)

    repository.compact(branch="main")

    assert set(map(tuple, sizes(repository).values())) == {(20,) * 5}
    assert values(repository) == before
    check_manifests(repository)


def test_what_no_cut_parts_well_stays(spec_version: int) -> None:
    """Sixteen chunks, of which every straight cut leaves one side fewer than eight."""
    repository = Repository.create(in_memory_storage(), spec_version=spec_version)
    repository = repository.with_manifest_policy(SCATTERED)
    session = repository.writable_session("main")
    array = zarr.create_array(
        session.store, name="a", shape=(6, 3), chunks=(1, 1), dtype="int8", fill_value=0
    )
    expected = np.ones((6, 3), "int8")
    expected[1, 1:] = 0
    array[...] = expected
    session.commit("write")
    repository = repository.with_manifest_policy(Tiered(cell_refs=8, shared_refs=1))

    outcome = repository.compact(branch="main")

    assert isinstance(outcome, AlreadyCompact)
    assert sizes(repository) == {"/a": [16]}
    np.testing.assert_array_equal(values(repository)["a"], expected)
