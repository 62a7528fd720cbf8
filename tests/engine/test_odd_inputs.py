"""Input and stored bytes that are not what anybody writes: refused by name, at the call."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream as ic
from icechunk_stream.assets import backup_key
from icechunk_stream.config.redact import redact_location
from icechunk_stream.errors import ErrorKind
from icechunk_stream.format.keys import KeySpace
from icechunk_stream.format.manifest_encode import encode_manifest
from icechunk_stream.format.ref_rows import table_of
from icechunk_stream.format.repo_info_encode import RepoState, encode_repo_info
from icechunk_stream.repo_updates import backup_name
from icechunk_stream.testing.storage_calls import Fail, doubt
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.secret_marker import MARKER

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.storage import Storage
    from icechunk_stream.testing.storage_calls import Call

GROUP = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode()
LONE = "\ud800"


def array(shape: list[int], chunks: list[int]) -> bytes:
    grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
    keys = {"name": "default", "configuration": {"separator": "/"}}
    document = {"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8"}
    document |= {"chunk_grid": grid, "chunk_key_encoding": keys, "fill_value": 0}
    return json.dumps(document | {"codecs": [{"name": "bytes"}], "attributes": {}}).encode()


def put(session: ic.Session, key: str, data: bytes) -> None:
    session.store.set_sync(key, default_buffer_prototype().buffer.from_bytes(data))


def get(session: ic.Session, key: str) -> bytes | None:
    found = session.store.get_sync(key)
    return None if found is None else found.to_bytes()


def begun(spec_version: int = 2, storage: Storage | None = None, **config: Any) -> ic.Session:
    """A session with a group, and an array of 4 by 4 chunks of which one is there."""
    settings = ic.RepositoryConfig(**config)
    storage = ic.in_memory_storage() if storage is None else storage
    repository = ic.Repository.create(storage, config=settings, spec_version=spec_version)
    session = repository.writable_session("main")
    put(session, "zarr.json", GROUP)
    put(session, "a/zarr.json", array([4, 4], [1, 1]))
    put(session, "a/c/0/3", b"x")
    return session


def committed(storage: Storage) -> ic.Session:
    begun(storage=storage).commit("begin")
    return ic.Repository.open(storage).writable_session("main")


@pytest.fixture
def emptied() -> ic.Session:
    """The array's manifest lists it without any reference."""
    storage = ic.in_memory_storage()
    node = committed(storage).reader.array("/a")
    id = node.manifests.id(0)
    storage.put(f"manifests/{id}", encode_manifest(id, {node.id: table_of(2, [])}, 2))
    session = ic.Repository.open(storage).writable_session("main")
    put(session, "a/c/1/1", b"new")
    return session


def test_a_manifest_without_references_is_read_and_replaced(emptied: ic.Session) -> None:
    assert get(emptied, "a/c/0/3") is None
    found = [
        view.indices().tolist() for view in emptied.reader.all_columns(emptied.reader.array("/a"))
    ]
    assert found == [[], [[1, 1]]]
    emptied.commit("over it")
    assert get(emptied, "a/c/1/1") == b"new"


def test_chunks_beside_a_manifest_without_references_are_deleted(emptied: ic.Session) -> None:
    asyncio.run(emptied.store.delete_dir("a/c"))

    assert get(emptied, "a/c/1/1") is None


def test_a_log_that_leads_back_to_itself_is_searched_once() -> None:
    storage = WrappedStorage(ic.in_memory_storage())
    session = committed(storage)
    put(session, "b/zarr.json", array([1], [1]))
    held = ic.Repository.open(storage)._assets.repo()
    state, name = RepoState.of(held.info), backup_name()
    far = replace(held.info.updates()[0], updated_at=4 * 10**15)
    led_back = replace(state, updates=(far,), older=None, repo_before_updates=name)
    damaged = encode_repo_info(led_back)
    storage.inner.put(backup_key(name), damaged)

    def before(call: Call) -> None:
        if call.method == "put_if":
            storage.inner.put_if("repo", damaged, held.version)

    storage.script.before = before
    storage.script.disturb(Fail(doubt), method="put_if", key="repo")
    session.commit("x")

    assert ic.Repository.open(storage).lookup_branch("main") == session.snapshot_id
    assert len(storage.script.calls_of("read", backup_key(name))) <= 1


def test_an_axis_without_length_beside_huge_ones_has_keys() -> None:
    space = KeySpace.within([0, 2**22, 2**22, 2**22])

    assert len(space.unpack(space.pack(np.zeros((0, 4), np.uint32)))) == 0
    assert KeySpace.within([0, 5, 7]).strides == (35, 7, 1)


def test_an_array_without_chunks_along_one_of_huge_axes_is_committed_in_pieces() -> None:
    sizes: Any = {
        ic.ManifestSplitCondition.AnyArray(): {ic.ManifestSplitDimCondition.Any(): 1},
    }
    splitting = ic.ManifestSplittingConfig.from_dict(sizes)
    session = begun(manifest=ic.ManifestConfig(splitting=splitting))
    put(session, "b/zarr.json", array([0, 2**22, 2**22, 2**22], [1, 1, 1, 1]))

    session.commit("x")

    assert session.reader.array("/b").grid == (0, 2**22, 2**22, 2**22)


def one(session: ic.Session, **changed: Any) -> None:
    given: dict[str, Any] = {"location": "s3://b/k", "offset": 0, "length": 1} | changed
    session.store.set_virtual_ref("a/c/0/0", **given, validate_container=False)


def many(session: ic.Session, **changed: Any) -> None:
    given: dict[str, Any] = {"location": "s3://b/k", "offset": 0, "length": 1} | changed
    if "checksum" in given:
        given["etag_checksum"] = given.pop("checksum")
    spec = ic.VirtualChunkSpec([0, 0], **given)
    session.store.set_virtual_refs("a", [spec], validate_containers=False)


def a_box(session: ic.Session, **changed: Any) -> None:
    session.store.set_virtual_refs_arr(
        "a",
        (1, 1),
        [changed.get("location", "s3://b/k")],
        np.zeros(1, np.uint64),
        np.ones(1, np.uint64),
        validate_containers=False,
        checksum=changed.get("checksum"),
    )


@pytest.mark.parametrize("refer", [one, many, a_box])
@pytest.mark.parametrize("changed", [{"checksum": LONE}, {"location": f"s3://b/{LONE}"}], ids=str)
def test_a_reference_that_has_no_utf8_is_refused_at_the_call(
    refer: Callable[..., None], changed: dict[str, str]
) -> None:
    session = begun()
    with pytest.raises(ic.InvalidInputError) as refused:
        refer(session, **changed)

    assert refused.value.kind == ErrorKind.INVALID_VIRTUAL_REF
    session.commit("without it")


@pytest.mark.parametrize("refer", [one, many])
@pytest.mark.parametrize("changed", [{"offset": 1.7}, {"length": 4.9}, {"offset": "1"}], ids=str)
def test_a_range_is_made_of_integers(refer: Callable[..., None], changed: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        refer(begun(), **changed)


def test_integers_of_numpy_are_integers() -> None:
    session = begun()
    one(session, offset=np.uint64(7), length=np.int32(2))
    payload: Any = session.reader.payload(session.reader.array("/a"), (0, 0))

    assert (type(payload.offset), payload.offset, payload.length) == (int, 7, 2)


def test_an_index_is_made_of_integers() -> None:
    with pytest.raises(TypeError):
        ic.VirtualChunkSpec([0.9], "s3://b/k", 0, 1)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        begun().store.set_virtual_refs_arr(
            "a",
            (1, 1),
            ["s3://b/k"],
            np.zeros(1, np.uint64),
            np.ones(1, np.uint64),
            arr_offset=(0.5, 0),  # type: ignore[arg-type]
        )


def test_a_path_that_has_no_utf8_is_refused_at_the_call_and_found_nowhere() -> None:
    for session in (begun(), committed(ic.in_memory_storage())):
        with pytest.raises(ic.InvalidInputError) as written:
            put(session, f"x{LONE}/zarr.json", GROUP)
        assert written.value.kind == ErrorKind.INVALID_PATH
        assert get(session, f"x{LONE}/zarr.json") is None


@pytest.mark.parametrize("part", ["1" * 5000, "\u0663"])
def test_folders_of_chunks_are_named_by_ascii_digits(part: str) -> None:
    session = begun()
    asyncio.run(session.store.delete_dir(f"a/c/0/{part}"))

    assert get(session, "a/c/0/3") == b"x"


@pytest.mark.parametrize("spec_version", [1, 2])
@pytest.mark.parametrize("given", [{"message": 5}, {"message": "x", "metadata": {1: 2}}], ids=str)
def test_messages_and_names_of_metadata_are_strings(
    spec_version: int, given: dict[str, Any]
) -> None:
    session = begun(spec_version)
    with pytest.raises(TypeError, match="strings"):
        session.commit(**given)

    session.commit("x", metadata={"1": 2})


def test_spec_v1_refuses_chunks_of_length_0_where_the_document_is_written() -> None:
    document = array([4], [0])
    with pytest.raises(ic.InvalidInputError, match="spec v2") as refused:
        put(begun(1), "z/zarr.json", document)

    assert refused.value.kind == ErrorKind.BAD_METADATA
    put(begun(1), "z/zarr.json", array([0], [0]))
    put(begun(2), "z/zarr.json", document)


@pytest.mark.parametrize(
    "spelling",
    [
        "vcc://user:{}@n/k",
        "//user:{}@host/k",
        "s3:user:{}@host",
        "//user:{} {}@host/k?sig={} {}",
        "s3://bucket/key?a {}",
    ],
)
def test_no_spelling_of_a_location_gives_a_secret_away(spelling: str) -> None:
    location = spelling.replace("{}", MARKER)
    with pytest.raises(ic.IcechunkError) as refused:
        begun().store.set_virtual_ref("a/c/0/0", location, offset=0, length=1)

    assert MARKER not in f"{refused.value}{refused.value!r}{redact_location(location)}"


def test_a_location_without_secrets_is_shown_as_it_is() -> None:
    assert redact_location("s3://bucket/a/key.nc") == "s3://bucket/a/key.nc"


def test_a_rebase_of_spec_v1_says_that_the_branch_was_reset() -> None:
    storage = ic.in_memory_storage()
    begun(1, storage).commit("A")
    repository = ic.Repository.open(storage)
    base = repository.lookup_branch("main")
    session = repository.writable_session("main")
    put(session, "a/c/1/1", b"B")
    session.commit("B")
    session = repository.writable_session("main")
    put(session, "a/c/2/2", b"C")
    repository.reset_branch("main", base)

    with pytest.raises(ic.IcechunkError, match="the branch was reset"):
        session.commit("C", rebase_with=ic.ConflictDetector())


def test_a_second_creator_of_spec_v2_does_not_write_the_first_log_again() -> None:
    first = WrappedStorage(ic.in_memory_storage())

    def before(call: Call) -> None:
        if call.method == "put_if" and call.key.startswith("transactions/"):
            first.script.before = None
            ic.Repository.create(first.inner, spec_version=2, check_clean_root=False)

    first.script.before = before
    with pytest.raises(ic.ConflictError):
        ic.Repository.create(first, spec_version=2)

    assert not first.script.calls_of("put", "transactions/*")
    assert ic.Repository.open(first).list_branches() == {"main"}
