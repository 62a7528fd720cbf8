"""What a session's store writes, refuses and keeps."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream as ic
from icechunk_stream.storage import BytesLike
from icechunk_stream.storage.memory import MemoryStorage
from tests.zarr.documents import GROUP, array

PROTOTYPE = default_buffer_prototype()
INLINE = 512


class WatchedStorage(MemoryStorage):
    """Counts chunk objects as they are put, and does what a test wants before each."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[str] = []
        self.before_chunk: Callable[[], object] = bool

    def _put(self, key: str, data: BytesLike) -> None:
        if key.startswith("chunks/"):
            self.before_chunk()
            self.chunks.append(key)
        super()._put(key, data)


@pytest.fixture
def storage() -> WatchedStorage:
    return WatchedStorage()


@pytest.fixture(params=[1, 2])
def session(request: pytest.FixtureRequest, storage: WatchedStorage) -> Any:
    """Arrays of one, two and no dimensions, a group, and one chunk that is committed."""
    repository = ic.Repository.create(storage, spec_version=request.param)
    first = repository.writable_session("main")
    for key, document in {
        "zarr.json": GROUP,
        "a/zarr.json": array([10], [2]),
        "g/zarr.json": GROUP,
        "g/m/zarr.json": array([4, 6], [2, 2]),
        "g/s/zarr.json": array([]),
    }.items():
        put(first.store, key, document)
    put(first.store, "a/c/4", b"committed")
    first.commit("made")
    return repository.writable_session("main")


def put(store: ic.IcechunkStore, key: str, data: bytes) -> None:
    store.set_sync(key, PROTOTYPE.buffer.from_bytes(data))


def get(store: ic.IcechunkStore, key: str) -> bytes | None:
    found = store.get_sync(key)
    return None if found is None else found.to_bytes()


def keys(store: ic.IcechunkStore) -> list[str]:
    async def collected() -> list[str]:
        return sorted([key async for key in store.list()])

    return asyncio.run(collected())


REFUSED: list[tuple[str, bytes, type[Exception], ic.ErrorKind]] = [
    ("no/c/0", b"x", ic.NodeNotFoundError, ic.ErrorKind.NODE_NOT_FOUND),
    ("g/c/0", b"x", ic.InvalidInputError, ic.ErrorKind.NOT_AN_ARRAY),
    ("a/c/5", b"x", ic.InvalidInputError, ic.ErrorKind.INVALID_CHUNK_INDEX),
    ("a/c/0/0", b"x", ic.InvalidInputError, ic.ErrorKind.INVALID_CHUNK_INDEX),
    ("a/c", b"x", ic.InvalidInputError, ic.ErrorKind.INVALID_CHUNK_INDEX),
    ("g/s/c/0", b"x", ic.InvalidInputError, ic.ErrorKind.INVALID_CHUNK_INDEX),
    ("a/c/0", b"", ic.InvalidInputError, ic.ErrorKind.ZERO_LENGTH_CHUNK),
    ("a/.zarray", b"{}", ic.SessionStateError, ic.ErrorKind.UNIMPLEMENTED),
    ("a/0", b"x", ic.InvalidInputError, ic.ErrorKind.INVALID_KEY),
    ("a/zarr.json", GROUP, ic.AlreadyExistsError, ic.ErrorKind.NODE_ALREADY_EXISTS),
    ("g/zarr.json", array([3]), ic.AlreadyExistsError, ic.ErrorKind.NODE_ALREADY_EXISTS),
    ("a/zarr.json", array([1, 1]), ic.InvalidInputError, ic.ErrorKind.INVALID_ARRAY_METADATA),
    ("a/zarr.json", b"{", ic.InvalidInputError, ic.ErrorKind.BAD_METADATA),
]


@pytest.mark.parametrize(("key", "data", "error", "kind"), REFUSED)
def test_what_cannot_be_stored_is_refused_and_changes_nothing(
    session: ic.Session, key: str, data: bytes, error: type[Exception], kind: ic.ErrorKind
) -> None:
    with pytest.raises(error) as caught:
        put(session.store, key, data)

    assert caught.value.kind == kind  # type: ignore[attr-defined]
    assert not session.has_uncommitted_changes


def test_the_chunk_of_a_dimension_without_length_is_outside_of_its_grid(
    session: ic.Session,
) -> None:
    put(session.store, "empty/zarr.json", array([0], [2]))

    with pytest.raises(ic.InvalidInputError) as caught:
        put(session.store, "empty/c/0", b"x")
    assert caught.value.kind == ic.ErrorKind.INVALID_CHUNK_INDEX


def test_a_value_has_to_be_a_buffer_of_zarr(session: ic.Session) -> None:
    with pytest.raises(TypeError, match="Buffer"):
        session.store.set_sync("a/c/0", b"x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Buffer"):
        asyncio.run(session.store.set_if_not_exists("a/c/0", b"x"))  # type: ignore[arg-type]


def test_parts_of_values_are_not_written(session: ic.Session) -> None:
    with pytest.raises(ic.SessionStateError) as caught:
        asyncio.run(session.store.set_partial_values([("a/c/0", 0, b"x")]))
    assert caught.value.kind == ic.ErrorKind.UNIMPLEMENTED


def test_chunks_longer_than_the_threshold_become_objects(
    session: ic.Session, storage: WatchedStorage
) -> None:
    put(session.store, "a/c/0", b"x" * INLINE)
    put(session.store, "a/c/1", b"y" * (INLINE + 1))

    assert session.chunk_type("/a", [0]) is ic.ChunkType.inline
    assert session.chunk_type("/a", [1]) is ic.ChunkType.native
    assert len(storage.chunks) == 1
    assert get(session.store, "a/c/1") == b"y" * (INLINE + 1)


def test_a_threshold_of_zero_makes_an_object_of_every_chunk(storage: WatchedStorage) -> None:
    config = ic.RepositoryConfig(inline_chunk_threshold_bytes=0)
    session = ic.Repository.create(storage, config=config).writable_session("main")
    put(session.store, "a/zarr.json", array([1]))
    put(session.store, "a/c/0", b"x")

    assert session.chunk_type("/a", [0]) is ic.ChunkType.native


def test_writing_a_document_again_is_no_change(session: ic.Session) -> None:
    put(session.store, "a/zarr.json", array([10], [2]))

    assert not session.has_uncommitted_changes


def test_a_node_keeps_its_id_until_it_is_deleted(session: ic.Session) -> None:
    before = session.get_node_id("/a")
    put(session.store, "a/zarr.json", array([20], [2]))
    assert session.get_node_id("/a") == before

    session.store.delete_sync("a/zarr.json")
    put(session.store, "a/zarr.json", array([20], [2]))
    assert session.get_node_id("/a") != before
    assert get(session.store, "a/c/4") is None


def test_another_kind_of_node_takes_a_path_that_was_freed(session: ic.Session) -> None:
    session.store.delete_sync("a/zarr.json")
    put(session.store, "a/zarr.json", GROUP)

    assert get(session.store, "a/zarr.json") == GROUP


def test_a_grown_array_takes_more_chunks_and_a_shrunk_one_hides_them(session: ic.Session) -> None:
    put(session.store, "a/zarr.json", array([20], [2]))
    put(session.store, "a/c/9", b"new")
    put(session.store, "a/zarr.json", array([4], [2]))

    assert get(session.store, "a/c/4") is None
    session.commit("shrunk")
    assert keys(session.store)[:2] == ["a/zarr.json", "g/m/zarr.json"]


def test_deleting_an_array_leaves_what_is_below_it(session: ic.Session) -> None:
    put(session.store, "a/b/zarr.json", GROUP)
    session.store.delete_sync("a/zarr.json")

    assert [key for key in keys(session.store) if key.startswith("a")] == ["a/b/zarr.json"]


def test_deleting_a_group_deletes_all_below_it_and_no_neighbour(session: ic.Session) -> None:
    put(session.store, "gg/zarr.json", GROUP)
    put(session.store, "g/m/c/0/0", b"x")
    session.store.delete_sync("g/zarr.json")

    assert keys(session.store) == ["a/c/4", "a/zarr.json", "gg/zarr.json", "zarr.json"]


def test_a_folder_of_chunks_is_deleted_by_whole_components(session: ic.Session) -> None:
    put(session.store, "t/zarr.json", array([20, 2]))
    for row, column in [(1, 0), (1, 1), (10, 0), (11, 1)]:
        put(session.store, f"t/c/{row}/{column}", b"x")
    asyncio.run(session.store.delete_dir("t/c/1"))

    assert keys(session.store)[-4:] == ["t/c/10/0", "t/c/11/1", "t/zarr.json", "zarr.json"]


@pytest.mark.parametrize("key", ["a/c/5", "a/c/0/0", "no/c/0", "g/c/0", "no/zarr.json", ".zgroup"])
def test_deleting_what_is_not_there_is_no_change(session: ic.Session, key: str) -> None:
    session.store.delete_sync(key)

    assert not session.has_uncommitted_changes


def test_clear_deletes_everything_also_without_a_root(session: ic.Session) -> None:
    session.store.delete_sync("zarr.json")
    put(session.store, "alone/zarr.json", array([1]))
    session.store.sync_clear()

    assert keys(session.store) == []


def test_a_chunk_whose_object_cannot_be_put_leaves_the_session_as_it_was(
    session: ic.Session, storage: WatchedStorage
) -> None:
    def fail() -> None:
        raise ic.StorageError("the disk is full")

    storage.before_chunk = fail
    for write in (session.store.set_sync, lambda *pair: asyncio.run(session.store.set(*pair))):
        with pytest.raises(ic.StorageError, match="full"):
            write("a/c/0", PROTOTYPE.buffer.from_bytes(b"x" * 1000))

    assert get(session.store, "a/c/0") is None
    assert not session.has_uncommitted_changes


def test_an_array_deleted_while_its_chunk_is_put_takes_no_chunk(
    session: ic.Session, storage: WatchedStorage
) -> None:
    storage.before_chunk = lambda: session.store.delete_sync("a/zarr.json")

    with pytest.raises(ic.NodeNotFoundError):
        put(session.store, "a/c/0", b"x" * 1000)
    assert "a/zarr.json" not in keys(session.store)


def test_an_array_that_shrinks_while_its_chunk_is_put_takes_no_chunk_outside(
    session: ic.Session, storage: WatchedStorage
) -> None:
    storage.before_chunk = lambda: put(session.store, "a/zarr.json", array([2], [2]))

    with pytest.raises(ic.InvalidInputError) as caught:
        put(session.store, "a/c/3", b"x" * 1000)
    assert caught.value.kind == ic.ErrorKind.INVALID_CHUNK_INDEX


def test_the_first_of_two_writers_wins_where_only_an_absent_chunk_is_set(
    session: ic.Session, storage: WatchedStorage
) -> None:
    """The second one begins before the first has put its object, and ends earlier."""

    def overtake() -> None:
        storage.before_chunk = bool
        put(session.store, "a/c/0", b"second" * 200)

    storage.before_chunk = overtake
    value = PROTOTYPE.buffer.from_bytes(b"first" * 200)
    asyncio.run(session.store.set_if_not_exists("a/c/0", value))

    assert get(session.store, "a/c/0") == b"second" * 200


def test_a_committed_chunk_is_not_absent(session: ic.Session) -> None:
    value = PROTOTYPE.buffer.from_bytes(b"other")
    asyncio.run(session.store.set_if_not_exists("a/c/4", value))

    assert get(session.store, "a/c/4") == b"committed"
    assert not session.has_uncommitted_changes


def test_chunks_that_are_written_at_once_are_put_at_once(
    session: ic.Session, storage: WatchedStorage
) -> None:
    """None of the puts returns before all have begun."""
    count = 5
    storage.before_chunk = threading.Barrier(count, timeout=60).wait
    value = PROTOTYPE.buffer.from_bytes(b"x" * 1000)

    async def write() -> None:
        await asyncio.gather(*(session.store.set(f"a/c/{at}", value) for at in range(count)))

    asyncio.run(write())
    assert all(get(session.store, f"a/c/{at}") == b"x" * 1000 for at in range(count))


def test_threads_lose_no_change_of_each_other(session: ic.Session) -> None:
    def work(worker: int) -> None:
        put(session.store, f"w{worker}/zarr.json", array([100]))
        for at in range(100):
            put(session.store, f"w{worker}/c/{at}", bytes([worker + 1, at]))
            put(session.store, f"g/m/c/{at % 2}/{worker % 3}", bytes([worker]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    session.commit("many hands")

    for worker in range(8):
        found = [get(session.store, f"w{worker}/c/{at}") for at in range(100)]
        assert found == [bytes([worker + 1, at]) for at in range(100)]
    assert sum(key.startswith("g/m/c") for key in keys(session.store)) == 6


def test_the_values_of_zarr_arrays_are_read_back_before_and_after_a_commit(
    session: ic.Session,
) -> None:
    values = np.arange(24, dtype="u1").reshape(4, 6)
    made = zarr.open_array(session.store, path="g/m")
    made[...] = values
    made[1:3, 2:5] = 77
    values[1:3, 2:5] = 77

    assert np.array_equal(made[...], values)
    session.commit("values")
    after = zarr.open_array(session.store, path="g/m", mode="r")
    assert np.array_equal(after[...], values)


def test_a_store_of_a_committed_session_refuses_writes(session: ic.Session) -> None:
    store = session.store
    put(store, "a/c/0", b"x")
    session.commit("done")

    with pytest.raises(ic.ReadOnlyError, match="writable_session"):
        put(store, "a/c/1", b"x")
    assert get(store, "a/c/0") == b"x"


def test_a_chunk_that_is_still_being_put_when_a_commit_begins_is_not_lost_in_silence(
    session: ic.Session, storage: WatchedStorage
) -> None:
    edits = session.edits
    storage.before_chunk = edits.close

    with pytest.raises(ic.ReadOnlyError, match="commit") as caught:
        put(session.store, "a/c/0", b"x" * 1000)
    assert caught.value.kind == ic.ErrorKind.READ_ONLY_SESSION
    assert not session.has_uncommitted_changes

    storage.before_chunk = bool
    edits.reopen()
    put(session.store, "a/c/0", b"x" * 1000)
    assert session.has_uncommitted_changes


READ_ONLY_CALLS: list[Callable[[ic.IcechunkStore], Any]] = [
    lambda store: put(store, "a/c/0", b"x"),
    lambda store: asyncio.run(store.set("a/c/0", PROTOTYPE.buffer.from_bytes(b"x"))),
    lambda store: asyncio.run(store.set_if_not_exists("a/c/0", PROTOTYPE.buffer.from_bytes(b"x"))),
    lambda store: asyncio.run(store.delete("a/c/0")),
    lambda store: asyncio.run(store.delete_dir("a")),
    lambda store: asyncio.run(store.clear()),
    lambda store: store.sync_clear(),
    lambda store: store.set_virtual_ref("a/c/0", "s3://b/k", offset=0, length=1),
    lambda store: store.set_virtual_refs("/a", []),
    lambda store: store.set_virtual_refs_arr("/a", (0,), [], *np.zeros((2, 0), np.uint64)),
]


@pytest.mark.parametrize("call", READ_ONLY_CALLS)
def test_a_store_opened_for_reading_refuses_every_write(
    session: ic.Session, call: Callable[[ic.IcechunkStore], Any]
) -> None:
    with pytest.raises(ic.ReadOnlyError, match="read-only mode") as caught:
        call(session.store.with_read_only(read_only=True))

    assert caught.value.kind == ic.ErrorKind.READ_ONLY_STORE
    assert isinstance(caught.value, ValueError)
    assert not session.has_uncommitted_changes


def test_a_store_opened_for_reading_can_be_opened_for_writing_again(session: ic.Session) -> None:
    reader = session.store.with_read_only(read_only=True)
    put(reader.with_read_only(read_only=False), "a/c/0", b"x")

    assert get(reader, "a/c/0") == b"x"
