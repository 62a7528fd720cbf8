"""Chunks are stored while a batch goes on, and nothing is committed before they are."""

from __future__ import annotations

import time
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from icechunk_stream.errors import ConflictingRowsError, InvalidInputError, StorageError
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.dimensions import Dimension, fixed, regular
from icechunk_stream.stream.layout import Rows
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.stream.packs import PackWriter
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.stream.variables import Variable
from tests.stream.slow_storage import SLOWLY, SlowStorage

STATIONS = 400
DIMS: dict[str, Dimension] = {"time": regular(0, 1), "station": fixed(range(STATIONS))}
LAYOUT = Rows(DIMS, {"temp": "float64"})
# The second grid is written after the first.
TWO_GRIDS = Rows(DIMS, {"temp": "float64", "level": Variable("float64", dims=("time",))})


def rows(at: int, *, levels: object = None) -> RowsInMemory:
    columns = {
        "time": np.full(STATIONS, at),
        "station": np.arange(STATIONS),
        "temp": np.random.default_rng(at).random(STATIONS),
        "level": np.full(STATIONS, float(at)) if levels is None else levels,
    }
    return RowsInMemory(pa.table(columns))


def call(batch: int) -> Call:
    return Call("a", "query", batch)


@pytest.fixture
def storage() -> SlowStorage:
    return SlowStorage()


def begun(storage: SlowStorage, layout: Rows) -> Batches:
    """After the first batch; from now on it is slow."""
    found = Batches.open(storage, StreamSettings(layout, "a"))
    found.write(call(0), rows(0))
    storage.is_slow = True
    return found


@pytest.fixture
def batches(storage: SlowStorage) -> Batches:
    return begun(storage, LAYOUT)


def test_a_batch_is_committed_with_all_of_its_chunks(
    batches: Batches, storage: SlowStorage
) -> None:
    before = storage.chunks
    assert isinstance(batches.write(call(1), rows(1)), Committed)
    assert storage.chunks > before


def test_a_batch_whose_chunks_cannot_be_stored_is_not_committed(
    batches: Batches, storage: SlowStorage
) -> None:
    tip = batches.repository.lookup_branch("main")
    storage.fails = True
    with pytest.raises(StorageError, match="no space is left"):
        batches.write(call(1), rows(1))
    assert batches.repository.lookup_branch("main") == tip
    storage.fails = False
    again = Batches.open(storage, StreamSettings(LAYOUT, "a")).write(call(1), rows(1))
    assert isinstance(again, Committed)


def test_after_an_error_nothing_is_stored_behind_the_back_of_whoever_gets_it(
    storage: SlowStorage,
) -> None:
    batches = begun(storage, TWO_GRIDS)
    with pytest.raises(ConflictingRowsError, match="level"):
        batches.write(call(1), rows(1, levels=np.arange(STATIONS) / 2))
    found = storage.chunks
    time.sleep(2 * SLOWLY)
    assert storage.chunks == found


def test_nothing_that_was_begun_goes_on_once_an_error_has_left_the_writer(
    storage: SlowStorage,
) -> None:
    storage.is_slow = True
    with suppress(InvalidInputError), PackWriter(storage, 0) as writer:
        writer.add(b"data", is_complete=True)
        writer.start()
        writer.add(b"", is_complete=True)
    found = storage.chunks
    time.sleep(2 * SLOWLY)
    assert storage.chunks == found


def test_what_could_not_be_stored_is_an_error_each_time_that_one_asks(
    storage: SlowStorage,
) -> None:
    storage.is_slow = storage.fails = True
    writer = PackWriter(storage, 0)
    writer.add(b"data", is_complete=True)
    writer.start()
    for ask in (writer.wait, writer.wait, writer.flush, writer.start):
        with pytest.raises(StorageError, match="no space is left"):
            ask()
