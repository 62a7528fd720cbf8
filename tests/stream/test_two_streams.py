"""Streams of two processes that write the same arrays at once."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import xarray as xr

from tests.concurrency.places import THEIRS, local, opened
from tests.stream.other_streams import Job, Stream, at_once, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.concurrency.places import Bucket, Place

pytestmark = pytest.mark.compat

BATCHES = 200
SLOW_BATCHES = 2
# Many times what a quick stream takes for a batch: without being let through it would go on losing.
PAUSE = 0.4
MOST_LOSSES = 20


def read(place: Place) -> xr.Dataset:
    """What the reference reads, without a warning."""
    store = opened(THEIRS, place).readonly_session("main").store
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found: xr.Dataset = xr.open_zarr(store, consolidated=False, decode_cf=False).load()
        return found


def assert_all_there(place: Place, counts: Sequence[int]) -> None:
    """Every row of the streams, given how many batches each wrote."""
    values: dict[int, int] = {}
    levels: dict[int, int] = {}
    for number, count in enumerate(counts):
        for batch in range(count):
            rows = rows_of(number, batch)
            values |= zip(rows["id"], rows["value"], strict=True)
            levels |= zip(rows["slot"], rows["level"], strict=True)
    found = read(place)
    ids = found["id"].values.tolist()
    assert len(ids) == len(values)
    assert dict(zip(ids, found["value"].values.tolist(), strict=True)) == values
    assert found["slot"].values.tolist() == list(range(max(levels) + 1))
    held = dict(enumerate(found["level"].values.tolist()))
    assert {slot: held[slot] for slot in levels} == levels


def assert_in_order(place: Place, said: Sequence[Sequence[Any]]) -> None:
    """The branch has one snapshot for each batch, those of one stream in their order."""
    history = reversed(list(opened(THEIRS, place).ancestry(branch="main")))
    marks = {each.id: each.metadata.get("icechunk_stream", {}) for each in history}
    for number, batches in enumerate(said):
        app = f"stream-{number}"
        own = [(mark["batch_id"], id) for id, mark in marks.items() if mark.get("app_id") == app]
        assert own == [(batch, id) for batch, _, id in batches]
        assert [batch for batch, _, _ in batches] == list(range(len(batches)))


def write_at_once(place: Place, spec: int) -> None:
    said = at_once([Job(place, number, spec, BATCHES) for number in range(2)])
    assert [len(batches) for batches in said] == [BATCHES, BATCHES]
    assert_all_there(place, [BATCHES, BATCHES])
    assert_in_order(place, said)
    assert any(lost for batches in said for _, lost, _ in batches)


@pytest.mark.parametrize("spec", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_two_streams_lose_no_row_on_local_disk(tmp_path: Path, spec: int) -> None:
    write_at_once(local(tmp_path), spec)


@pytest.mark.parametrize("spec", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_two_streams_lose_no_row_in_a_bucket(bucket: Bucket, spec: int) -> None:
    write_at_once(bucket.place(), spec)


@pytest.mark.parametrize("spec", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_slow_stream_goes_on_beside_a_quick_one(tmp_path: Path, spec: int) -> None:
    place, stop = local(tmp_path / "repository"), tmp_path / "stop"
    quick = Stream(Job(place, 0, spec, None, stop=str(stop)))
    slow = Stream(Job(place, 1, spec, SLOW_BATCHES, pause=PAUSE))
    try:
        assert [quick.receive(), slow.receive()] == ["ready", "ready"]
        quick.begin()
        first = quick.receive()
        slow.begin()
        slowly = slow.rest()
        stop.touch()
        quickly = [first, *quick.rest()]
    finally:
        quick.end()
        slow.end()
    assert len(slowly) == SLOW_BATCHES
    assert len(quickly) > SLOW_BATCHES
    assert_all_there(place, [len(quickly), len(slowly)])
    assert_in_order(place, [quickly, slowly])
    assert all(0 < lost < MOST_LOSSES for _, lost, _ in slowly)
