"""zarr's conformance suite for stores.

What is overridden here gives keys and values that a store of zarr v3 hierarchies can hold:
documents are documents, chunks belong to an array that is there, and have at least one byte.
"""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.core.sync import _collect_aiterator, sync
from zarr.testing.store import StoreTests
from zarr.testing.utils import assert_bytes_equal

import icechunk_stream as ic
from icechunk_stream.store.keys import ChunkKey, parse_key
from icechunk_stream.store.values import payload_length
from tests.zarr.documents import GROUP, array

if TYPE_CHECKING:
    from pathlib import Path

    from zarr.abc.store import ByteRequest

PROTOTYPE = default_buffer_prototype()
CHUNK_KEYS = pytest.mark.parametrize("key", ["c/0", "foo/c/0/0", "foo/bar/c"])
FOUR_BYTES = b"\x01\x02\x03\x04"


def buffer(data: bytes) -> cpu.Buffer:
    return cpu.Buffer.from_bytes(data)


def make_array(store: ic.IcechunkStore, key: str) -> None:
    """The array that a chunk belongs to."""
    parsed = parse_key(key)
    if isinstance(parsed, ChunkKey):
        store.session.edits.set_document_if_absent(parsed.path, array([1000] * len(parsed.index)))


def _plain(value: Any) -> Any:
    return value.to_bytes() if isinstance(value, Buffer) else value


async def listed(keys: Any) -> list[str]:
    return sorted(await _collect_aiterator(keys))


class TestStore(StoreTests[ic.IcechunkStore, cpu.Buffer]):
    store_cls = ic.IcechunkStore
    buffer_cls = cpu.Buffer

    async def set(self, store: ic.IcechunkStore, key: str, value: Buffer) -> None:
        make_array(store, key)
        parsed = parse_key(key)
        if isinstance(parsed, ChunkKey):
            store.session.edits.set_chunk(parsed.path, parsed.index, value.to_bytes())
        else:
            store.session.edits.set_document(parsed.path, value.to_bytes())  # type: ignore[union-attr]

    async def get(self, store: ic.IcechunkStore, key: str) -> Buffer:
        reader, parsed = store.session.reader, parse_key(key)
        if not isinstance(parsed, ChunkKey):
            return buffer(reader.node(parsed.path).user_data)  # type: ignore[union-attr]
        payload = reader.payload(reader.array(parsed.path), parsed.index)
        assert payload is not None
        return buffer(reader.bytes(payload, 0, payload_length(payload)))

    @pytest.fixture
    def store_kwargs(self, session: Any) -> dict[str, Any]:
        return {"session": session, "read_only": False}

    @pytest.fixture
    def store(self, open_kwargs: dict[str, Any]) -> ic.IcechunkStore:
        return sync(self.store_cls.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> ic.IcechunkStore:
        return self.store_cls(**store_kwargs)

    def test_store_repr(self, store: ic.IcechunkStore) -> None:
        assert repr(store) == str(store) == f"IcechunkStore({store.session!r})"

    def test_store_supports_writes(self, store: ic.IcechunkStore) -> None:
        assert store.supports_writes
        assert store.supports_deletes

    def test_store_supports_listing(self, store: ic.IcechunkStore) -> None:
        assert store.supports_listing

    @pytest.mark.parametrize("spec_version", [1, 2])
    async def test_serializable_store(  # type: ignore[override]
        self, tmp_path: Path, spec_version: int
    ) -> None:
        """Only what cannot lose writes is pickled."""
        storage = ic.local_filesystem_storage(tmp_path)
        repository = ic.Repository.create(storage, spec_version=spec_version)
        store = repository.writable_session("main").store
        with pytest.raises(ic.SessionStateError, match=r"Session\.fork"):
            pickle.dumps(store)

        make_array(store, "c/0")
        await store.set("c/0", buffer(FOUR_BYTES))
        store.session.commit("a chunk")
        copy = pickle.loads(pickle.dumps(store.session.store))

        assert copy == store.session.store
        assert copy.read_only
        assert_bytes_equal(await copy.get("c/0", PROTOTYPE), buffer(FOUR_BYTES))

    async def test_with_read_only_store(self, open_kwargs: dict[str, Any]) -> None:
        reader = await self.store_cls.open(**{**open_kwargs, "read_only": True})
        writer = reader.with_read_only(read_only=False)

        assert not writer._is_open
        assert not writer.read_only
        await writer.set("foo/zarr.json", buffer(GROUP))
        await writer.delete("foo/zarr.json")
        for store in (reader, writer.with_read_only(read_only=True)):
            assert store.read_only
            with pytest.raises(ValueError, match="store was opened in read-only mode and does not"):
                await store.set("foo/zarr.json", buffer(GROUP))
            with pytest.raises(ic.ReadOnlyError):
                await store.delete("foo/zarr.json")

    @CHUNK_KEYS
    @pytest.mark.parametrize(
        "byte_range",
        [None, RangeByteRequest(1, 4), OffsetByteRequest(1), SuffixByteRequest(1)],
    )
    async def test_get(  # type: ignore[override]
        self, store: ic.IcechunkStore, key: str, byte_range: ByteRequest
    ) -> None:
        await super().test_get(store, key, FOUR_BYTES, byte_range)

    async def test_get_many(self, store: ic.IcechunkStore) -> None:
        keys = [f"c/{number}" for number in range(10)]
        for key in keys:
            await self.set(store, key, buffer(key.encode()))
        found = await _collect_aiterator(store._get_many((key, PROTOTYPE, None) for key in keys))

        values = {key: None if value is None else value.to_bytes() for key, value in found}
        assert values == {key: key.encode() for key in keys}

    @CHUNK_KEYS
    async def test_getsize(self, store: ic.IcechunkStore, key: str) -> None:  # type: ignore[override]
        await super().test_getsize(store, key, FOUR_BYTES)

    async def test_getsize_prefix(self, store: ic.IcechunkStore) -> None:
        for key in ("a/c/0/0", "a/c/0/1", "a/c/1/0", "ab/c/0"):
            await self.set(store, key, buffer(FOUR_BYTES))

        assert await store.getsize_prefix("a") == 3 * 4 + await store.getsize("a/zarr.json")

    async def test_getsize_raises(self, store: ic.IcechunkStore) -> None:
        """Repositories tell an array that lacks a chunk from one that is not there."""
        with pytest.raises(ic.NodeNotFoundError):
            await store.getsize("c/1000")
        make_array(store, "c/0")
        assert await store.getsize("c/0") == 0

    @pytest.mark.parametrize(
        ("key", "data"),
        [
            ("zarr.json", GROUP),
            ("foo/zarr.json", array([3])),
            ("c/0", FOUR_BYTES),
            ("foo/c/0/0", b"\x00"),
            ("foo/bar/c", FOUR_BYTES * 1000),
        ],
    )
    async def test_set(self, store: ic.IcechunkStore, key: str, data: bytes) -> None:
        make_array(store, key)
        await super().test_set(store, key, data)

    async def test_set_not_open(self, store_not_open: ic.IcechunkStore) -> None:
        make_array(store_not_open, "c/0")
        await super().test_set_not_open(store_not_open)

    async def test_set_many(self, store: ic.IcechunkStore) -> None:
        values = {"zarr.json": GROUP, "a/zarr.json": array([2]), "b/zarr.json": array([])}
        chunks = {"a/c/0": b"first", "a/c/1": b"second", "b/c": FOUR_BYTES * 1000}
        await store._set_many((key, buffer(data)) for key, data in values.items())
        await store._set_many((key, buffer(data)) for key, data in chunks.items())

        for key, data in (values | chunks).items():
            assert (await self.get(store, key)).to_bytes() == data

    @pytest.mark.parametrize(
        "key_ranges",
        [
            [],
            [("zarr.json", RangeByteRequest(0, 2))],
            [("foo/c/0", RangeByteRequest(0, 2)), ("zarr.json", None)],
            [
                ("foo/c/0", RangeByteRequest(0, 2)),
                ("foo/c/1", SuffixByteRequest(2)),
                ("foo/c/2", OffsetByteRequest(2)),
            ],
        ],
    )
    async def test_get_partial_values(
        self, store: ic.IcechunkStore, key_ranges: list[tuple[str, ByteRequest]]
    ) -> None:
        values = {key: GROUP if key == "zarr.json" else key.encode() for key, _ in key_ranges}
        for key, data in values.items():
            await self.set(store, key, buffer(data))
        found = await store.get_partial_values(PROTOTYPE, (pair for pair in key_ranges))

        assert len(found) == len(key_ranges)
        for (key, byte_range), part in zip(key_ranges, found, strict=True):
            whole = await store.get(key, PROTOTYPE, byte_range)
            assert whole is not None
            assert part is not None
            assert part.to_bytes() == whole.to_bytes()

    async def test_exists(self, store: ic.IcechunkStore) -> None:
        assert not await store.exists("foo/zarr.json")
        await store.set("foo/zarr.json", buffer(GROUP))
        assert await store.exists("foo/zarr.json")
        with pytest.raises(ic.InvalidInputError):
            await store.exists("foo")

    async def test_delete(self, store: ic.IcechunkStore) -> None:
        await store.set("foo/zarr.json", buffer(GROUP))
        assert await store.exists("foo/zarr.json")
        await store.delete("foo/zarr.json")
        assert not await store.exists("foo/zarr.json")

    async def test_delete_dir(self, store: ic.IcechunkStore) -> None:
        await store.set("zarr.json", buffer(GROUP))
        await store.set("foo-bar/zarr.json", buffer(GROUP))
        await store.set("foo/zarr.json", buffer(array([1])))
        await store.set("foo/c/0", buffer(b"chunk"))
        await store.delete_dir("foo")

        assert await listed(store.list()) == ["foo-bar/zarr.json", "zarr.json"]

    @pytest.mark.parametrize("key", ["zarr.json", "foo/zarr.json", "foo/c/0", "foo/.zarray"])
    async def test_delete_nonexistent_key_does_not_raise(  # type: ignore[override]
        self, store: ic.IcechunkStore, key: str
    ) -> None:
        await store.delete(key)
        assert store.session.reader.node("/foo") is None

    async def test_is_empty(self, store: ic.IcechunkStore) -> None:
        assert await store.is_empty("")
        await store.set("zarr.json", buffer(GROUP))
        await store.set("foo/zarr.json", buffer(GROUP))
        for prefix, expected in {
            "": False,
            "fo": True,
            "foo/": False,
            "foo": False,
            "x/": True,
        }.items():
            assert await store.is_empty(prefix) is expected

    @pytest.mark.parametrize("key", ["zarr.json", "foo/zarr.json"])
    async def test_clear(self, store: ic.IcechunkStore, key: str) -> None:  # type: ignore[override]
        await self.set(store, key, buffer(GROUP))
        await store.clear()
        assert await store.is_empty("")
        assert await listed(store.list()) == []

    async def test_list(self, store: ic.IcechunkStore) -> None:
        assert await listed(store.list()) == []
        values = {f"foo/c/{number}": b"x" for number in range(10)}
        await store.set("foo/zarr.json", buffer(array([10])))
        await store._set_many((key, buffer(data)) for key, data in values.items())

        assert await listed(store.list()) == sorted(["foo/zarr.json", *values])

    async def test_list_prefix(self, store: ic.IcechunkStore) -> None:
        keys = ["zarr.json", "a/zarr.json", "a/b/zarr.json", "a/b/c/zarr.json", "ab/zarr.json"]
        await store._set_many((key, buffer(GROUP)) for key in keys)

        for prefix in ("", "a/", "a/b/", "a/b/c/"):
            expected = sorted(key for key in keys if key.startswith(prefix))
            assert await listed(store.list_prefix(prefix)) == expected

    async def test_list_empty_path(self, store: ic.IcechunkStore) -> None:
        keys = ["foo/bar/zarr.json", "foo/bar/c/1", "foo/baz/zarr.json", "foo/baz/c/0"]
        for key in keys:
            data = array([2]) if key.endswith("zarr.json") else b"x"
            await store.set(key, buffer(data))

        assert await listed(store.list()) == sorted(keys)
        assert await listed(store.list_prefix("")) == sorted(keys)
        assert await listed(store.list_prefix("foo/bar/")) == ["foo/bar/c/1", "foo/bar/zarr.json"]

    async def test_list_dir(self, store: ic.IcechunkStore) -> None:
        assert await listed(store.list_dir("")) == []
        await store.set("foo/zarr.json", buffer(GROUP))
        await store.set("foo/bar/zarr.json", buffer(array([3, 3])))
        for key in ("foo/bar/c/0/1", "foo/bar/c/0/2", "foo/bar/c/2/0"):
            await store.set(key, buffer(b"x"))

        folders = {"foo": ["bar", "zarr.json"], "foo/bar": ["c", "zarr.json"]}
        chunks = {"foo/bar/c": ["0", "2"], "foo/bar/c/0": ["1", "2"], "foo/bar/c/1": []}
        for folder, names in (folders | chunks).items():
            assert await listed(store.list_dir(folder)) == names
            assert await listed(store.list_dir(f"{folder}/")) == names

    async def test_set_if_not_exists(self, store: ic.IcechunkStore) -> None:
        make_array(store, "k/c/0")
        for key, first, second in [
            ("k/c/0", b"0000", b"1111"),
            ("k/c/1", b"0" * 1000, b"1" * 1000),
            ("g/zarr.json", GROUP, array([3])),
        ]:
            await store.set_if_not_exists(key, buffer(first))
            await store.set_if_not_exists(key, buffer(second))
            assert await store.get(key, PROTOTYPE) == buffer(first)

    # The next four are of zarr 3.1, whose stores have methods for whole documents.

    async def test_get_bytes(self, store: ic.IcechunkStore) -> None:
        await self.set(store, "zarr.json", buffer(GROUP))
        read = getattr(store, "_get_bytes", store.get)
        assert bytes(_plain(await read("zarr.json", prototype=PROTOTYPE))) == GROUP

    def test_get_bytes_sync(self, store: ic.IcechunkStore) -> None:
        sync(self.set(store, "zarr.json", buffer(GROUP)))
        read = getattr(store, "_get_bytes_sync", store.get_sync)
        assert bytes(_plain(read("zarr.json", prototype=PROTOTYPE))) == GROUP

    async def test_get_json(self, store: ic.IcechunkStore) -> None:
        await self.set(store, "zarr.json", buffer(GROUP))
        read = getattr(store, "_get_json", store.get)
        found = _plain(await read("zarr.json", prototype=PROTOTYPE))
        assert found in (GROUP, json.loads(GROUP))

    def test_get_json_sync(self, store: ic.IcechunkStore) -> None:
        sync(self.set(store, "zarr.json", buffer(GROUP)))
        read = getattr(store, "_get_json_sync", store.get_sync)
        assert _plain(read("zarr.json", prototype=PROTOTYPE)) in (GROUP, json.loads(GROUP))

    def test_get_sync(self, store: ic.IcechunkStore) -> None:
        sync(self.set(store, "c/0", buffer(FOUR_BYTES)))
        result = store.get_sync("c/0")
        assert result is not None
        assert_bytes_equal(result, buffer(FOUR_BYTES))

    def test_get_sync_missing(self, store: ic.IcechunkStore) -> None:
        assert store.get_sync("c/0") is None
        assert store.get_sync("zarr.json") is None

    @pytest.mark.parametrize("size", [4, 4000])
    def test_set_sync(self, store: ic.IcechunkStore, size: int) -> None:  # type: ignore[override]
        make_array(store, "c/0")
        store.set_sync("c/0", buffer(b"x" * size))
        assert sync(self.get(store, "c/0")).to_bytes() == b"x" * size

    def test_delete_sync(self, store: ic.IcechunkStore) -> None:
        make_array(store, "c/0")
        store.set_sync("c/0", buffer(FOUR_BYTES))
        store.delete_sync("c/0")
        assert store.get_sync("c/0") is None

    def test_delete_sync_missing(self, store: ic.IcechunkStore) -> None:
        store.delete_sync("c/0")
        store.delete_sync("zarr.json")
        assert not store.session.has_uncommitted_changes

    @pytest.mark.parametrize("direction", ["set_async_get_sync", "set_sync_get_async"])
    async def test_sync_async_set_get_parity(self, store: ic.IcechunkStore, direction: str) -> None:
        make_array(store, "c/0")
        if direction == "set_async_get_sync":
            await store.set("c/0", buffer(FOUR_BYTES))
            result = store.get_sync("c/0")
        else:
            store.set_sync("c/0", buffer(FOUR_BYTES))
            result = await store.get("c/0", PROTOTYPE)
        assert result is not None
        assert_bytes_equal(result, buffer(FOUR_BYTES))

    async def test_delete_sync_visible_to_async_get(self, store: ic.IcechunkStore) -> None:
        await self.set(store, "c/0", buffer(FOUR_BYTES))
        store.delete_sync("c/0")
        assert await store.get("c/0", PROTOTYPE) is None

    @pytest.mark.parametrize(
        "byte_range",
        [None, RangeByteRequest(1, 4), OffsetByteRequest(1), SuffixByteRequest(1)],
    )
    async def test_get_sync_byte_range_parity(
        self, store: ic.IcechunkStore, byte_range: ByteRequest | None
    ) -> None:
        await self.set(store, "c/0", buffer(FOUR_BYTES))
        awaited = await store.get("c/0", PROTOTYPE, byte_range)
        direct = store.get_sync("c/0", byte_range=byte_range)
        assert awaited is not None
        assert direct is not None
        assert_bytes_equal(direct, awaited)
