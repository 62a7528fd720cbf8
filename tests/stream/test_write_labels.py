"""Labels are stored as zarr would store them, in the objects of the batch."""

from __future__ import annotations

import asyncio
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

import icechunk_stream as ic
from icechunk_stream.errors import FormatError
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.dimensions import append, regular
from icechunk_stream.stream.layout import Rows
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.packs import PackWriter
from icechunk_stream.stream.refs_batch import ref_tables
from icechunk_stream.stream.row_source import RowsInMemory
from icechunk_stream.stream.warm_units import WarmUnits
from icechunk_stream.stream.write_chunks import write_labels
from tests.stream.cells import plan_of

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: dict[str, dict[str, Any]] = {
    "numbers": {"dtype": "int64", "fill_value": 0},
    "floats": {"dtype": "float64", "fill_value": np.nan},
    "shards": {"dtype": "int64", "fill_value": 0},
    "texts": {"dtype": "string", "fill_value": ""},
}


def stored_array(store: Any, kind: str, unit: int) -> Any:
    sizes: dict[str, Any] = (
        {"chunks": (1,), "shards": (unit,)} if kind == "shards" else {"chunks": (unit,)}
    )
    return zarr.create_array(
        store, name="t", shape=(0,), dimension_names=("t",), **sizes, **KINDS[kind]
    )


def made(kind: str, unit: int) -> ic.Repository:
    repository = ic.Repository.create(ic.in_memory_storage())
    session = repository.writable_session("main")
    stored_array(session.store, kind, unit)
    session.commit("array")
    return repository


def append_labels(
    repository: ic.Repository, labels: Any, inline: int, warm: WarmUnits, start: int
) -> None:
    base = repository.readonly_session("main")
    plan = plan_of(base, ["t"], ["t"], shape=(start + len(labels),), grows=(True,))
    with PackWriter(repository.storage, inline) as writer:
        refs = write_labels(plan, start, labels, writer, warm)
        writer.flush()
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="t", mode="r+").resize((start + len(labels),))
    for path, table in ref_tables([refs]).items():
        session.edits.set_refs(path, table)
    session.commit("labels")


def labels_in(repository: ic.Repository, name: str = "t") -> Any:
    store = repository.readonly_session("main").store
    array: Any = zarr.open_array(store, path=name, mode="r")
    return array[...]


def stored(store: Any, key: str) -> bytes | None:
    """A chunk; None where it was never written."""
    found = asyncio.run(store.get(key, default_buffer_prototype()))
    return None if found is None else found.to_bytes()


def labels_of(kind: str, count: int) -> Any:
    if kind == "texts":
        return np.array([f"station {number}" for number in range(count)], np.dtypes.StringDType())
    # The first label is the fill value.
    return np.arange(count).astype(KINDS[kind]["dtype"])


@settings(max_examples=30)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    unit=st.integers(1, 7),
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    inline=st.sampled_from([0, 512]),
)
def test_labels_in_any_pieces_become_what_zarr_stores(
    kind: str, unit: int, counts: Sequence[int], inline: int
) -> None:
    labels = labels_of(kind, sum(counts))
    repository, warm = made(kind, unit), WarmUnits()
    for start, stop in pairwise(accumulate(counts, initial=0)):
        warm.begin()
        append_labels(repository, labels[start:stop], inline, warm, start)
    assert labels_in(repository).tolist() == labels.tolist()
    store = repository.readonly_session("main").store
    alike = stored_array(MemoryStore(), kind, unit)
    alike.resize((len(labels),))
    alike[...] = labels
    for number in range(-(-len(labels) // unit)):
        key = f"t/c/{number}"
        assert stored(store, key) == stored(alike.store, key)


def test_more_labels_are_stored_than_a_codec_takes_units_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("unit_codec", "write_chunks"):
        monkeypatch.setattr(f"icechunk_stream.stream.{module}.MAX_UNITS", 16)
    repository = made("numbers", 2)
    labels = np.arange(75)
    append_labels(repository, labels, 512, WarmUnits(), 0)
    assert (labels_in(repository) == labels).all()


def test_labels_that_cannot_be_read_are_an_error_which_names_their_array() -> None:
    repository = made("numbers", 8)
    append_labels(repository, np.arange(3), 0, WarmUnits(), 0)
    for info in repository.storage.list("chunks/"):
        repository.storage.put(info.key, b"\0" * info.size)
    with pytest.raises(FormatError, match="a stored chunk of /t, "):
        append_labels(repository, np.arange(3, 5), 0, WarmUnits(), 3)


@pytest.mark.parametrize("kind", ["regular", "append"])
def test_the_labels_of_a_batch_lie_with_its_incomplete_chunks(kind: str) -> None:
    time = regular(0, 1) if kind == "regular" else append()
    storage = ic.in_memory_storage()
    layout = Rows({"time": time}, {"temp": "float64"}, {"time": 4_096})
    batches = Batches.open(storage, StreamSettings(layout, "a"))
    random = np.random.default_rng(0)
    for batch in range(3):
        before = len(list(storage.list("chunks/")))
        times = np.arange(1_000) + 1_000 * batch
        rows = pa.table({"time": times, "temp": random.random(1_000)})
        batches.write(Call("a", "query", batch), RowsInMemory(rows))
        assert len(list(storage.list("chunks/"))) == before + 1
    assert labels_in(batches.repository, "time").tolist() == list(range(3_000))
