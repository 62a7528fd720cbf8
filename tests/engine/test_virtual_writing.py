"""References to chunks outside of the repository: what is taken, refused and read back."""

from __future__ import annotations

import asyncio
import os
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream as ic
from tests.zarr.documents import GROUP, array

PROTOTYPE = default_buffer_prototype()
CONTENT = bytes(range(256))
FAR = "s3://bucket/folder/"
Refs = list[tuple[list[int], str, int, int]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "one.bin").write_bytes(CONTENT)
    return tmp_path / "files"


@pytest.fixture(params=[1, 2])
def repository(request: pytest.FixtureRequest, folder: Path) -> ic.Repository:
    near = f"file://{folder}/"
    config = ic.RepositoryConfig.default()
    for prefix, store in [
        (near, ic.local_filesystem_store(str(folder))),
        (FAR, ic.s3_store(region="us-east-1")),
        ("s3://bucket/named/", ic.s3_store(region="us-east-1")),
    ]:
        name = "named" if "named" in prefix else None
        config.set_virtual_chunk_container(ic.VirtualChunkContainer(prefix, store, name=name))
    return ic.Repository.create(
        ic.in_memory_storage(),
        config=config,
        spec_version=request.param,
        authorize_virtual_chunk_access={near: None},
    )


@pytest.fixture
def session(repository: ic.Repository) -> Any:
    session = repository.writable_session("main")
    for key, document in {
        "g/zarr.json": GROUP,
        "a/zarr.json": array([100], [10]),
        "m/zarr.json": array([4, 3, 5]),
        "s/zarr.json": array([]),
    }.items():
        session.store.set_sync(key, PROTOTYPE.buffer.from_bytes(document))
    return session


def get(store: ic.IcechunkStore, key: str) -> bytes | None:
    found = store.get_sync(key)
    return None if found is None else found.to_bytes()


def refs(store: ic.IcechunkStore, path: str) -> Refs:
    async def collected() -> Refs:
        found: Refs = []
        async for indices, _, places, offsets, lengths, _ in store.array_chunk_iterator(path):
            columns = (indices.tolist(), places, offsets.tolist(), lengths.tolist())
            found += zip(*columns, strict=True)
        return sorted(found)

    return asyncio.run(collected())


def numbers(*values: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array(values, np.uint64)


def test_a_referenced_range_is_read_before_and_after_a_commit(
    session: ic.Session, folder: Path
) -> None:
    location = f"file://{folder}/one.bin"
    session.store.set_virtual_ref("a/c/3", location, offset=7, length=10)

    assert get(session.store, "a/c/3") == CONTENT[7:17]
    assert session.chunk_type("/a", [3]) is ic.ChunkType.virtual
    session.commit("referenced")
    assert get(session.store, "a/c/3") == CONTENT[7:17]
    assert session.all_virtual_chunk_locations() == [location]


def test_a_chunk_written_over_a_reference_replaces_it(session: ic.Session) -> None:
    session.store.set_virtual_ref("a/c/3", f"{FAR}x", offset=0, length=10)
    session.store.set_sync("a/c/3", PROTOTYPE.buffer.from_bytes(b"here"))

    assert get(session.store, "a/c/3") == b"here"
    assert session.all_virtual_chunk_locations() == []


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("a/zarr.json", ic.ErrorKind.NOT_ALLOWED),
        ("a/.zarray", ic.ErrorKind.NOT_ALLOWED),
        ("a/x", ic.ErrorKind.INVALID_KEY),
        ("no/c/0", ic.ErrorKind.NODE_NOT_FOUND),
        ("g/c/0", ic.ErrorKind.NOT_AN_ARRAY),
        ("a/c/10", ic.ErrorKind.INVALID_CHUNK_INDEX),
        ("a/c/0/0", ic.ErrorKind.INVALID_CHUNK_INDEX),
    ],
)
def test_only_a_chunk_of_an_array_can_be_elsewhere(
    session: ic.Session, key: str, kind: ic.ErrorKind
) -> None:
    with pytest.raises(ic.IcechunkError) as caught:
        session.store.set_virtual_ref(key, f"{FAR}x", offset=0, length=1)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("offset", "length", "kind"),
    [
        (0, 0, ic.ErrorKind.ZERO_LENGTH_CHUNK),
        (-1, 5, ic.ErrorKind.INVALID_VIRTUAL_REF),
        (0, -5, ic.ErrorKind.INVALID_VIRTUAL_REF),
        (2**64 - 1, 1, ic.ErrorKind.INVALID_VIRTUAL_REF),
    ],
)
def test_a_range_that_no_object_has_is_refused(
    session: ic.Session, offset: int, length: int, kind: ic.ErrorKind
) -> None:
    with pytest.raises(ic.InvalidInputError) as caught:
        session.store.set_virtual_ref("a/c/0", f"{FAR}x", offset=offset, length=length)
    assert caught.value.kind == kind


@pytest.mark.parametrize("location", ["s3://other/x", "vcc://unknown/x", "gs://bucket/folder/x"])
def test_a_location_of_no_container_is_refused_unless_it_is_not_looked_up(
    session: ic.Session, location: str
) -> None:
    with pytest.raises(ic.InvalidInputError) as caught:
        session.store.set_virtual_ref("a/c/0", location, offset=0, length=1)
    assert caught.value.kind == ic.ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK

    session.store.set_virtual_ref("a/c/0", location, offset=0, length=1, validate_container=False)
    assert session.chunk_type("/a", [0]) is ic.ChunkType.virtual


def test_a_file_changed_since_it_was_referenced_is_not_read(
    session: ic.Session, folder: Path
) -> None:
    file = folder / "one.bin"
    location = f"file://{file}"
    written = datetime.fromtimestamp(int(file.stat().st_mtime) + 1, UTC)
    session.store.set_virtual_ref("a/c/0", location, offset=0, length=4, checksum=written)
    session.store.set_virtual_ref("a/c/1", location, offset=0, length=4, checksum="another")
    assert get(session.store, "a/c/0") == CONTENT[:4]

    later = (written + timedelta(hours=1)).timestamp()
    os.utime(file, (later, later))
    for key in ("a/c/0", "a/c/1"):
        with pytest.raises(ic.StorageError) as caught:
            get(session.store, key)
        assert caught.value.kind == ic.ErrorKind.VIRTUAL_CHUNK_MODIFIED


@pytest.mark.parametrize(
    "time",
    [
        datetime(2020, 1, 1),  # noqa: DTZ001
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1960, 1, 1, tzinfo=UTC),
        datetime(2107, 1, 1, tzinfo=UTC),
    ],
)
def test_a_time_that_cannot_be_stored_is_refused(session: ic.Session, time: datetime) -> None:
    with pytest.raises(ic.InvalidInputError) as caught:
        session.store.set_virtual_ref("a/c/0", f"{FAR}x", offset=0, length=1, checksum=time)
    assert caught.value.kind == ic.ErrorKind.INVALID_VIRTUAL_REF
    with pytest.raises(ic.InvalidInputError):
        ic.VirtualChunkSpec([0], f"{FAR}x", 0, 1, last_updated_at_checksum=time)


def test_many_references_are_given_one_by_one(session: ic.Session) -> None:
    specs = [ic.VirtualChunkSpec([at], f"{FAR}{at}", at, 1 + at) for at in range(5)]

    assert session.store.set_virtual_refs("/a", specs) is None
    assert refs(session.store, "a") == [([at], f"{FAR}{at}", at, 1 + at) for at in range(5)]


def test_those_that_no_container_takes_are_left_out_and_returned(session: ic.Session) -> None:
    locations = [f"{FAR}0", "s3://other/1", f"{FAR}2", "file:///elsewhere/3"]
    specs = [ic.VirtualChunkSpec([at], place, 0, 1) for at, place in enumerate(locations)]
    columns = numbers(0, 0, 0, 0), numbers(1, 1, 1, 1)

    assert session.store.set_virtual_refs("a", specs) == [(1,), (3,)]
    assert session.store.set_virtual_refs_arr("a", (4,), locations, *columns, arr_offset=(4,)) == [
        (5,),
        (7,),
    ]
    assert [index for index, *_ in refs(session.store, "a")] == [[0], [2], [4], [6]]


def test_of_two_references_to_one_chunk_the_last_one_counts(session: ic.Session) -> None:
    specs = [ic.VirtualChunkSpec([0], f"{FAR}{name}", 0, 1) for name in ("first", "last")]
    session.store.set_virtual_refs("a", specs)

    assert refs(session.store, "a") == [([0], f"{FAR}last", 0, 1)]


def test_nothing_is_recorded_where_one_of_many_is_wrong(session: ic.Session) -> None:
    good = ic.VirtualChunkSpec([0], f"{FAR}x", 0, 1)
    for wrong in (
        ic.VirtualChunkSpec([10], f"{FAR}x", 0, 1),
        ic.VirtualChunkSpec([1, 1], f"{FAR}x", 0, 1),
        ic.VirtualChunkSpec([1], f"{FAR}x", 0, 0),
        ic.VirtualChunkSpec([1], "no url", 0, 1),
    ):
        with pytest.raises(ic.InvalidInputError):
            session.store.set_virtual_refs("a", [good, wrong])
    assert refs(session.store, "a") == []


def test_no_references_are_no_change_but_the_array_has_to_be_there(
    repository: ic.Repository, session: ic.Session
) -> None:
    session.commit("arrays")
    session = repository.writable_session("main")

    assert session.store.set_virtual_refs("a", []) is None
    assert session.store.set_virtual_refs_arr("a", (2,), ["", ""], *[numbers(0, 0)] * 2) is None
    assert not session.has_uncommitted_changes
    with pytest.raises(ic.NodeNotFoundError):
        session.store.set_virtual_refs("no", [])
    with pytest.raises(ic.NodeNotFoundError):
        session.store.set_virtual_refs_arr("no", (0,), [], numbers(), numbers())


def test_a_box_is_filled_with_its_last_axis_fastest(session: ic.Session) -> None:
    locations = [f"{FAR}{at}" if at != 4 else "" for at in range(8)]
    columns = np.arange(8, dtype="u8"), np.arange(8, dtype="u8") + 1
    session.store.set_virtual_refs_arr(
        "m", (2, 1, 4), locations, *columns, arr_offset=(1, 2, 1), checksum="etag"
    )

    expected = [
        (
            [1 + row, 2, 1 + column],
            f"{FAR}{4 * row + column}",
            4 * row + column,
            4 * row + column + 1,
        )
        for row in range(2)
        for column in range(4)
        if (row, column) != (1, 0)
    ]
    assert refs(session.store, "m") == expected


def test_the_one_chunk_of_a_scalar_is_a_box_too(session: ic.Session) -> None:
    session.store.set_virtual_refs_arr("s", (), [f"{FAR}x"], numbers(3), numbers(4))

    assert refs(session.store, "s") == [([], f"{FAR}x", 3, 4)]


BAD_COLUMNS: dict[str, tuple[Any, ...]] = {
    "too few chunks": ((3,), [f"{FAR}x"] * 2, numbers(0, 0), numbers(1, 1)),
    "too few offsets": ((2,), [f"{FAR}x"] * 2, numbers(0), numbers(1, 1)),
    "too few lengths": ((2,), [f"{FAR}x"] * 2, numbers(0, 0), numbers(1)),
    "no location": ((1,), [None], numbers(0), numbers(1)),
    "no text": ((1,), [7], numbers(0), numbers(1)),
    "fractions": ((1,), [f"{FAR}x"], np.array([0.5]), numbers(1)),
    "negative": ((1,), [f"{FAR}x"], np.array([-1]), numbers(1)),
    "two axes": ((1,), [f"{FAR}x"], np.zeros((1, 1), np.uint64), numbers(1)),
    "too far": ((1,), [f"{FAR}x"], numbers(2**64 - 1), numbers(1)),
    "another rank": ((1, 1), [f"{FAR}x"], numbers(0), numbers(1)),
    "empty chunk": ((1,), [f"{FAR}x"], numbers(0), numbers(0)),
    "outside": ((11,), [f"{FAR}x"] * 11, np.zeros(11, "u8"), np.ones(11, "u8")),
    "no url": ((1,), ["bucket/key"], numbers(0), numbers(1)),
}


@pytest.mark.parametrize("columns", BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_columns_that_do_not_fit_are_refused_as_a_whole(
    session: ic.Session, columns: tuple[Any, ...]
) -> None:
    with pytest.raises(ic.InvalidInputError):
        session.store.set_virtual_refs_arr("a", *columns)
    assert refs(session.store, "a") == []


@pytest.mark.parametrize("offset", [(-1,), (0, 0), (2**32,)])
def test_a_box_that_begins_nowhere_is_refused(session: ic.Session, offset: tuple[int, ...]) -> None:
    with pytest.raises(ic.InvalidInputError):
        session.store.set_virtual_refs_arr(
            "a", (1,), [f"{FAR}x"], numbers(0), numbers(1), arr_offset=offset
        )


@pytest.mark.parametrize("alike", [1, 500])
def test_long_columns_are_spelled_and_looked_up_row_by_row(session: ic.Session, alike: int) -> None:
    """With and without repeats: these take different ways."""
    count = 20_000
    store = session.store
    store.set_sync("long/zarr.json", PROTOTYPE.buffer.from_bytes(array([count])))
    locations = [f"{FAR}file{at // alike:06d}" for at in range(count)]
    locations[70] = "S3://bucket/folder/odd name//.."
    locations[700] = "s3://other/x"
    locations[7000] = "vcc://named/x"
    locations[17000] = ""
    columns = np.arange(count, dtype="u8"), np.full(count, 9, "u8")

    assert store.set_virtual_refs_arr("long", (count,), locations, *columns) == [(700,)]
    session.commit("long")
    expected = [([at], place, at, 9) for at, place in enumerate(locations)]
    expected[70] = ([70], "s3://bucket/folder/odd name//..", 70, 9)
    expected[7000] = ([7000], "s3://bucket/named/x", 7000, 9)
    assert refs(store, "long") == [expected[at] for at in range(count) if at not in (700, 17000)]


def test_asynchronous_twins_do_the_same(session: ic.Session) -> None:
    store = session.store
    spec = ic.VirtualChunkSpec([1], f"{FAR}1", 0, 1)

    async def write() -> list[Any]:
        await store.set_virtual_ref_async("a/c/0", f"{FAR}0", offset=0, length=1)
        return [
            await store.set_virtual_refs_async("a", [spec]),
            await store.set_virtual_refs_arr_async(
                "a", (1,), ["s3://other/x"], numbers(0), numbers(1), arr_offset=(2,)
            ),
        ]

    assert asyncio.run(write()) == [None, [(2,)]]
    assert [index for index, *_ in refs(store, "a")] == [[0], [1]]


def test_a_spec_is_a_value() -> None:
    time = datetime(2020, 1, 1, tzinfo=UTC)
    spec = ic.VirtualChunkSpec([1, 2], f"{FAR}x", 3, 4, last_updated_at_checksum=time)

    assert spec == pickle.loads(pickle.dumps(spec))
    assert (spec.index, spec.location, spec.offset, spec.length) == ([1, 2], f"{FAR}x", 3, 4)
    assert (spec.etag_checksum, spec.last_updated_at_checksum) == (None, time)
    for index, offset in [([-1], 0), ([2**32], 0), ([0], -1)]:
        with pytest.raises(ic.InvalidInputError):
            ic.VirtualChunkSpec(index, f"{FAR}x", offset, 1)
