"""Chunks are inline, or ranges of few objects; those that stay do not share one with others."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.assets import chunk_key
from icechunk_stream.errors import InternalError, InvalidInputError, StorageError
from icechunk_stream.format.chunk_refs import InlineChunk, NativeChunk, RefKind
from icechunk_stream.format.ids import ChunkId
from icechunk_stream.format.ref_rows import DELETED, payload_of
from icechunk_stream.storage import Span, Storage, local_filesystem_storage
from icechunk_stream.storage.memory import MemoryStorage
from icechunk_stream.stream.packs import PackWriter, Placed
from icechunk_stream.stream.refs_batch import REFS, RefRows, ref_tables

if TYPE_CHECKING:
    from pathlib import Path

    from icechunk_stream.storage import BytesLike


def stored(storage: Storage, placed: Placed) -> bytes:
    match placed:
        case InlineChunk(data):
            return data
        case NativeChunk(offset=offset, length=length):
            return storage.get(chunk_key(placed), Span(offset, offset + length))


def objects(storage: Storage) -> list[int]:
    return sorted(info.size for info in storage.list("chunks/"))


chunks = st.lists(st.tuples(st.binary(min_size=1, max_size=60), st.booleans()), max_size=40)


@given(chunks=chunks, inline=st.integers(0, 30), pack_size=st.integers(1, 100))
def test_every_chunk_is_read_back_from_where_it_was_placed(
    chunks: list[tuple[bytes, bool]], inline: int, pack_size: int
) -> None:
    storage = MemoryStorage()
    writer = PackWriter(storage, inline, pack_size)
    placed = [writer.add(data, is_complete=complete) for data, complete in chunks]
    writer.flush()
    assert [stored(storage, each) for each in placed] == [data for data, _ in chunks]
    assert [isinstance(each, InlineChunk) for each in placed] == [
        len(data) <= inline for data, _ in chunks
    ]
    native = [each for each in placed if isinstance(each, NativeChunk)]
    assert sum(objects(storage)) == sum(each.length for each in native)
    assert max(objects(storage), default=0) <= max(pack_size, *(c.length for c in native), 0)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_long_and_short_chunks_lie_in_one_object_side_by_side(place: str, tmp_path: Path) -> None:
    storage = MemoryStorage() if place == "memory" else local_filesystem_storage(str(tmp_path))
    sizes = (10, 70_000, 5, 65_536, 65_535, 7, 200_000, 200_000)
    chunks = [np.random.default_rng(size).bytes(size) for size in sizes]
    writer = PackWriter(storage, 0)
    placed = [writer.add(memoryview(data), is_complete=True) for data in chunks]
    writer.flush()
    assert [stored(storage, each) for each in placed] == chunks
    assert objects(storage) == [sum(sizes)]


@pytest.mark.parametrize("size", [5_000, 300_000])
def test_a_pack_is_in_memory_once_while_it_is_stored(size: int) -> None:
    class Measured(MemoryStorage):
        def _put(self, key: str, data: BytesLike) -> None:
            assert memoryview(data).nbytes == count * size
            held.append(tracemalloc.get_traced_memory())

    count, held = 12_000_000 // size, list[tuple[int, int]]()
    tracemalloc.start()
    writer = PackWriter(Measured(), 0)
    for _ in range(count):
        writer.add(bytes(size), is_complete=True)
    writer.flush()
    tracemalloc.stop()
    ((now, peak),) = held
    assert now < 1.2 * count * size
    assert peak < 1.3 * count * size


def test_a_chunk_is_not_changed_by_the_next_one() -> None:
    long = bytearray(70_000)
    writer = PackWriter(MemoryStorage(), 0)
    writer.add(long, is_complete=True)
    writer.add(b"short", is_complete=True)
    assert long == bytes(70_000)


@given(chunks=chunks)
def test_complete_and_partial_chunks_never_share_an_object(
    chunks: list[tuple[bytes, bool]],
) -> None:
    writer = PackWriter(MemoryStorage(), 0, 100)
    ids: dict[bool, set[object]] = {True: set(), False: set()}
    for data, complete in chunks:
        chunk = writer.add(data, is_complete=complete)
        assert isinstance(chunk, NativeChunk)
        ids[complete].add(chunk.id)
    assert ids[True].isdisjoint(ids[False])


def test_what_waits_never_exceeds_the_pack_size() -> None:
    storage = MemoryStorage()
    writer = PackWriter(storage, 0, 100)
    for number in range(25):
        writer.add(bytes(10), is_complete=number % 3 == 0)
        assert (number + 1) * 10 - sum(objects(storage)) <= 100
    writer.flush()
    assert len(objects(storage)) <= 5


def test_a_chunk_as_long_as_a_pack_is_an_object_of_its_own() -> None:
    storage = MemoryStorage()
    writer = PackWriter(storage, 0, 100)
    writer.add(bytes(10), is_complete=True)
    large = writer.add(memoryview(bytes(range(100))), is_complete=True)
    assert objects(storage) == [100]
    assert stored(storage, large) == bytes(range(100))
    writer.flush()
    assert objects(storage) == [10, 100]


def test_nothing_is_stored_for_inline_chunks_alone() -> None:
    storage = MemoryStorage()
    writer = PackWriter(storage, 512)
    assert writer.add(bytes(512), is_complete=True) == InlineChunk(bytes(512))
    writer.flush()
    writer.flush()
    assert objects(storage) == []


def test_a_writer_goes_on_after_a_flush_in_new_objects() -> None:
    storage = MemoryStorage()
    writer = PackWriter(storage, 0)
    first = writer.add(b"one", is_complete=True)
    writer.flush()
    second = writer.add(b"two", is_complete=True)
    writer.flush()
    assert isinstance(first, NativeChunk)
    assert isinstance(second, NativeChunk)
    assert first.id != second.id
    assert [stored(storage, each) for each in (first, second)] == [b"one", b"two"]


def test_what_cannot_be_stored_is_an_error_of_the_flush() -> None:
    class Full(MemoryStorage):
        def _put(self, key: str, data: object) -> None:
            raise StorageError("no space is left", key=key)

    writer = PackWriter(Full(), 0)
    writer.add(b"data", is_complete=True)
    with pytest.raises(StorageError, match="no space"):
        writer.flush()


@pytest.mark.parametrize(("inline", "size"), [(-1, 10), (0, 0)])
def test_sizes_that_make_no_sense_are_refused(inline: int, size: int) -> None:
    with pytest.raises(InvalidInputError, match="give 0 or more"):
        PackWriter(MemoryStorage(), inline, size)


def test_a_chunk_without_bytes_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no bytes"):
        PackWriter(MemoryStorage()).add(b"", is_complete=True)


# -- references ------------------------------------------------------------------------------------

payloads = st.one_of(
    st.none(),
    st.builds(InlineChunk, st.binary(min_size=1, max_size=20)),
    st.builds(
        NativeChunk,
        st.builds(ChunkId, st.binary(min_size=12, max_size=12)),
        st.integers(0, 2**40),
        st.integers(1, 2**40),
    ),
)
indices = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 5))


@given(
    found=st.dictionaries(st.tuples(st.sampled_from("abc"), indices), payloads),
    cuts=st.lists(st.integers(0, 10), max_size=3),
)
def test_references_come_back_by_array_and_in_order(
    found: dict[tuple[str, tuple[int, int]], Placed | None], cuts: list[int]
) -> None:
    rows, batches = RefRows(), []
    for (path, index), payload in found.items():
        if payload is None:
            rows.delete(path, index)
        else:
            rows.add(path, index, payload)
        if len(rows) in cuts:
            batches.append(pickle.loads(pickle.dumps(rows.take())))
    tables = ref_tables([*batches, rows.take()])
    seen = {
        (path, tuple(index)): payload_of(table, row)
        for path, table in tables.items()
        for row, index in enumerate(table.indices.tolist())
    }
    assert seen == found
    assert list(seen) == sorted(found)
    for table in tables.values():
        if DELETED not in table.kinds:
            table.check()


def test_references_have_the_documented_columns() -> None:
    rows = RefRows()
    rows.add("/a", (1, 2), InlineChunk(b"xy"))
    rows.delete("/a", (1, 3))
    batch = rows.take()
    assert batch.schema == REFS
    assert batch.to_pylist() == [
        {
            "path": "/a",
            "index": [1, 2],
            "kind": int(RefKind.INLINE),
            "chunk_id": bytes(12),
            "offset": 0,
            "length": 2,
            "inline": b"xy",
        },
        {
            "path": "/a",
            "index": [1, 3],
            "kind": DELETED,
            "chunk_id": bytes(12),
            "offset": 0,
            "length": 0,
            "inline": None,
        },
    ]
    assert rows.take().num_rows == 0


def test_references_of_one_array_have_its_rank() -> None:
    rows = RefRows()
    rows.add("/a", (1, 2), InlineChunk(b"x"))
    rows.add("/a", (1,), InlineChunk(b"x"))
    with pytest.raises(InternalError, match=r"\[1, 2\] dimensions"):
        ref_tables([rows.take()])


def test_a_slice_of_references_keeps_its_ids() -> None:
    rows = RefRows()
    ids = [bytes([number]) * 12 for number in range(1, 4)]
    for number, id in enumerate(ids):
        rows.add("/a", (number,), NativeChunk(ChunkId(id), 0, 5))
    tables = ref_tables([pa.RecordBatch.from_arrays(rows.take().columns, schema=REFS).slice(1)])
    assert [each.tobytes() for each in np.asarray(tables["/a"].chunk_ids)] == ids[1:]
