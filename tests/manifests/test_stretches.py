"""Late data cut full manifests, so that more of them in the same place write little anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream import RepositoryConfig, Tiered
from icechunk_stream.format.boxes import overlap
from icechunk_stream.manifests.stretches import cut_around, was_cut
from tests.manifests.checks import stored_manifests
from tests.manifests.splits import along_first_axis
from tests.manifests.stream import Stream

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.compat,
    pytest.mark.filterwarnings("ignore:The LocalFileSystem"),
]

PLACES = st.tuples(st.integers(0, 40), st.integers(0, 6))
# A stretch has four references or more, and what follows it sixteen.
POLICY = Tiered(cell_refs=64, ratio=4, most=12, shared_refs=32, quick_refs=1_000)


def written_by(stream: Stream, index: int | slice, value: int) -> int:
    """References in the manifests that a late write makes."""
    before = set(stored_manifests(stream.repository))
    stream.write(index, value)
    now = stored_manifests(stream.repository)
    return sum(len(manifest) for id, manifest in now.items() if id not in before)


@pytest.mark.parametrize("spec_version", [1, 2])
def test_late_values_beside_earlier_ones_write_few_references(
    tmp_path: Path, spec_version: int
) -> None:
    stream = Stream(tmp_path, POLICY, spec_version)
    stream.append(64)

    assert written_by(stream, slice(20, 22), 500) == 64
    assert stream.boxes == [[0, 19], [19, 23], [23, 64]]
    assert written_by(stream, 19, 501) == 4
    assert stream.boxes == [[0, 19], [19, 23], [23, 64]]
    stream.check()


def test_at_the_end_of_a_full_manifest_the_rest_stays_full(tmp_path: Path) -> None:
    stream = Stream(tmp_path, POLICY)
    stream.append(64)

    assert written_by(stream, 62, 500) == 64
    assert stream.boxes == [[0, 60], [60, 64]]
    assert written_by(stream, 63, 501) == 4
    stream.check()


def test_what_was_cut_stays_apart_while_the_stream_goes_on(tmp_path: Path) -> None:
    stream = Stream(tmp_path, POLICY)
    stream.append(64)
    stream.write(20, 500)
    for _ in range(50):
        stream.append()

    assert stream.boxes[:4] == [[0, 18], [18, 22], [22, 64], [64, 128]]
    assert written_by(stream, 21, 501) == 4
    stream.check()


def test_cells_that_writing_has_left_behind_stay_cut_or_become_one(tmp_path: Path) -> None:
    stream = Stream(tmp_path, POLICY, config=RepositoryConfig(manifest=along_first_axis(64)))
    stream.append(256)
    for late in (20, 64 + 62, 128 + 1, 128 + 62, 128 + 57, 128 + 53):
        stream.write(late, 500 + late)
    cut = [box for box in stream.boxes if box[0] >= 128][:-1]
    for _ in range(3):
        stream.append()

    assert stream.boxes[:5] == [[0, 18], [18, 22], [22, 64], [64, 124], [124, 128]]
    assert len(cut) > POLICY.ratio
    assert stream.boxes[5:7] == [[128, 192], [192, 256]]
    stream.check()


def test_cuts_all_over_a_manifest_are_joined_again(tmp_path: Path) -> None:
    stream = Stream(tmp_path, POLICY)
    stream.append(64)
    for number in range(60):
        stream.write(number * 37 % 64, 1_000 + number)
        stream.append(1)
        assert sum(high <= 64 for _, high in stream.boxes) <= 2 * POLICY.ratio
    stream.check()


def test_late_values_all_over_a_manifest_leave_it_whole(tmp_path: Path) -> None:
    stream = Stream(tmp_path, POLICY)
    stream.append(64)

    assert written_by(stream, slice(1, 63), 500) == 64
    assert stream.boxes == [[0, 64]]
    stream.check()


def test_deleted_chunks_cut_as_late_ones_do(tmp_path: Path) -> None:
    stream = Stream(tmp_path, POLICY)
    stream.append(64)
    # The fill value: its chunk goes.
    stream.write(20, -1)

    assert stream.boxes == [[0, 18], [18, 23], [23, 64]]


def test_where_two_axes_could_be_cut_the_shorter_stretch_counts() -> None:
    indices = np.stack(np.meshgrid(np.arange(8), np.arange(64), indexing="ij"), -1)
    changed = np.array([[time, 20] for time in range(8)], np.uint32)

    parts = cut_around(indices.reshape(-1, 2).astype(np.uint32), changed, Tiered(cell_refs=512))

    assert parts is not None
    assert [len(part) for part in parts] == [144, 32, 336]


@given(
    places=st.sets(PLACES, min_size=1),
    data=st.data(),
    cell_refs=st.integers(1, 80),
)
def test_parts_hold_every_row_once_and_do_not_overlap(
    places: set[tuple[int, int]], data: st.DataObject, cell_refs: int
) -> None:
    indices = np.array(sorted(places), np.uint32)
    # Of what changed, some is deleted.
    changed = np.array(data.draw(st.lists(PLACES, min_size=1)), np.uint32)
    policy = Tiered(cell_refs=cell_refs)

    parts = cut_around(indices, changed, policy)

    if parts is None:
        return
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(indices)))
    boxes = [(indices[rows].min(axis=0), indices[rows].max(axis=0) + 1) for rows in parts]
    assert not overlap(np.stack([np.stack(box, axis=1) for box in boxes]).astype(np.uint32))
    holding = [rows for rows in parts if set(map(tuple, indices[rows])) & set(map(tuple, changed))]
    assert len(holding) <= 1
    sizes = [len(rows) for rows in parts]
    assert policy.is_full(sizes[0]) or was_cut(sizes, policy)


def test_only_what_grows_steeply_and_is_large_tells_of_a_cut() -> None:
    assert was_cut([60, 4, 17], POLICY)
    assert was_cut([4, 40], POLICY)
    # Too many, too small, too flat, and as a stream leaves them.
    assert not was_cut([10, 10, 4, 4, 40], POLICY)
    assert not was_cut([60, 4, 15], POLICY)
    assert not was_cut([60, 12, 20], POLICY)
    assert not was_cut([40, 20, 4], POLICY)
