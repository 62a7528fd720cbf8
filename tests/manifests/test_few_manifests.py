"""However an array is written, it has few manifests."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zarr

from icechunk_stream import Repository, Tiered, in_memory_storage
from tests.manifests.checks import check_manifests

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

POLICY = Tiered(cell_refs=64, ratio=3, most=8, shared_refs=32)
SIDE = 24
Tile = tuple[slice, slice]


def tiles_anywhere() -> Iterator[Tile]:
    """Squares of two by two chunks in any order: no axis has them side by side."""
    corners = list(product(range(0, SIDE, 2), repeat=2))
    for number in np.random.default_rng(7).permutation(len(corners)).tolist():
        row, column = corners[number]
        yield slice(row, row + 2), slice(column, column + 2)


def both_axes_in_turn() -> Iterator[Tile]:
    """A square that grows by a row, then by a column, and so on."""
    yield slice(0, 1), slice(0, 1)
    for length in range(1, SIDE):
        yield slice(length, length + 1), slice(0, length)
        yield slice(0, length + 1), slice(length, length + 1)


@pytest.mark.parametrize("order", [tiles_anywhere, both_axes_in_turn])
def test_writes_all_over_an_array_leave_few_manifests(order: object) -> None:
    assert callable(order)
    repository = Repository.create(in_memory_storage()).with_manifest_policy(POLICY)
    expected: npt.NDArray[np.int32] = np.zeros((SIDE, SIDE), "i4")
    session = repository.writable_session("main")
    zarr.create_array(
        session.store, name="a", shape=(SIDE, SIDE), chunks=(1, 1), dtype="i4", fill_value=0
    )
    session.commit("create")

    most = 0
    for number, tile in enumerate(order(), start=1):
        session = repository.writable_session("main")
        zarr.open_array(session.store, path="a", mode="r+")[tile] = number
        expected[tile] = number
        session.commit("write")
        repository._upkeep.finish()
        node = repository.readonly_session("main").reader.array("/a")
        most = max(most, len(node.manifests))

    chunks = check_manifests(repository)["/a"]
    assert len(chunks) == SIDE * SIDE
    # As many as would be full, twice, and those that are open.
    assert most <= 2 * SIDE * SIDE // POLICY.cell_refs + POLICY.most
    store = repository.readonly_session("main").store
    np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[:], expected)
