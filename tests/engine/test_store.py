"""The zarr store of a read-only session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import zarr
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, default_buffer_prototype

import icechunk_stream as ic

PROTOTYPE = default_buffer_prototype()
DOCUMENT = "group1/small_chunks/zarr.json"
CHUNK = "group1/small_chunks/c/0"


@pytest.fixture
def store(fixture_repository: Path) -> ic.IcechunkStore:
    storage = ic.local_filesystem_storage(fixture_repository)
    return ic.Repository.open(storage).readonly_session("main").store


def _bytes(buffer: Buffer | None) -> bytes | None:
    return None if buffer is None else buffer.to_bytes()


@pytest.mark.parametrize(
    "key", [DOCUMENT, CHUNK, "zarr.json", "group1/small_chunks/c/999", "no/c/0"]
)
@pytest.mark.parametrize("byte_range", [None, SuffixByteRequest(1), RangeByteRequest(0, 1)])
def test_the_synchronous_path_gives_what_the_asynchronous_one_gives(
    store: ic.IcechunkStore, key: str, byte_range: Any
) -> None:
    awaited = asyncio.run(store.get(key, PROTOTYPE, byte_range))
    direct = store.get_sync(key, prototype=PROTOTYPE, byte_range=byte_range)

    assert _bytes(direct) == _bytes(awaited)
    assert (awaited is None) == (key.endswith("999") or key.startswith("no/"))


def test_partial_values_come_in_the_order_asked_for(store: ic.IcechunkStore) -> None:
    ranges = [(DOCUMENT, RangeByteRequest(0, 1)), ("no/zarr.json", None), (DOCUMENT, None)]
    values = asyncio.run(store.get_partial_values(PROTOTYPE, ranges))

    whole = asyncio.run(store.get(DOCUMENT, PROTOTYPE))
    assert whole is not None
    assert [_bytes(value) for value in values] == [b"{", None, whole.to_bytes()]


def test_both_codec_pipelines_of_zarr_read_the_same_values(store: ic.IcechunkStore) -> None:
    pipelines = getattr(zarr.core, "codec_pipeline")  # noqa: B009
    names = [
        name for name in dir(pipelines) if name.endswith("Pipeline") and name != "CodecPipeline"
    ]
    values = []
    for name in names:
        with zarr.config.set({"codec_pipeline.path": f"zarr.core.codec_pipeline.{name}"}):
            array = zarr.open_array(store, path="group1/small_chunks", mode="r")
            values.append(array[...].tolist())  # type: ignore[union-attr]

    assert names
    assert all(value == values[0] for value in values)


WRITES: list[Callable[[ic.IcechunkStore, Buffer], Coroutine[None, None, None]]] = [
    lambda store, value: store.set(CHUNK, value),
    lambda store, value: store.set_if_not_exists(CHUNK, value),
    lambda store, value: store.delete(CHUNK),
    lambda store, value: store.delete_dir("group1"),
    lambda store, value: store.clear(),
]


@pytest.mark.parametrize("write", WRITES)
def test_writing_to_a_read_only_session_says_what_to_do(
    store: ic.IcechunkStore, write: Callable[..., Coroutine[None, None, None]]
) -> None:
    with pytest.raises(ic.ReadOnlyError, match="writable_session") as caught:
        asyncio.run(write(store, PROTOTYPE.buffer.from_bytes(b"x")))

    assert caught.value.kind == ic.ErrorKind.READ_ONLY_SESSION


def test_zarr_is_told_what_the_store_can_do(store: ic.IcechunkStore) -> None:
    assert store.read_only
    assert store.supports_writes
    assert store.supports_deletes
    assert store.supports_listing
    assert not store.supports_partial_writes
    assert not store.supports_consolidated_metadata


def test_a_missing_chunk_object_is_an_error_and_never_fill_values(
    store: ic.IcechunkStore, fixture_repository: Path
) -> None:
    for chunk in (fixture_repository / "chunks").iterdir():
        chunk.unlink()

    with pytest.raises(ic.StorageError) as caught:
        asyncio.run(_first_native(store))
    assert caught.value.kind == ic.ErrorKind.OBJECT_NOT_FOUND
    assert "chunks/" in str(caught.value)


def test_a_cut_chunk_object_is_an_error_and_never_short_data(
    store: ic.IcechunkStore, fixture_repository: Path
) -> None:
    for chunk in (fixture_repository / "chunks").iterdir():
        chunk.write_bytes(chunk.read_bytes()[:-1])

    with pytest.raises(ic.FormatError) as caught:
        asyncio.run(_first_native(store))
    assert caught.value.kind == ic.ErrorKind.INVALID_OBJECT_SIZE
    assert caught.value.key.startswith("chunks/")


async def _first_native(store: ic.IcechunkStore) -> Buffer | None:
    async for batch in store.array_chunk_iterator("group1/big_chunks"):
        kinds = batch[1].tolist()
        index = batch[0][kinds.index(ic.ChunkType.native.value)].tolist()
        key = "/".join(["group1/big_chunks/c", *map(str, index)])
        return await store.get(key, PROTOTYPE)
    raise AssertionError("the fixture has no native chunk")
