"""Objects that are sound by themselves, and do not belong together; asked for through the API."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

import icechunk_stream as icechunk
from icechunk_stream.errors import (
    ErrorKind,
    FormatError,
    IcechunkError,
    NotFoundError,
    StorageError,
)
from tests.hostile import documents as doc
from tests.hostile.mutate import mutant
from tests.hostile.raw import u64
from tests.hostile.reading import LOG, MANIFEST, SNAPSHOT, opened, seal
from tests.hostile.refusals import refuses_object
from tests.hostile.repositories import (
    CHUNK,
    CHUNK_KEY,
    LOG_KEY,
    MANIFEST_KEY,
    SNAPSHOT_KEY,
    SOUND,
    Objects,
    get,
    id_of,
    in_memory,
    manifest,
    sealed,
    session_of,
    snapshot,
    sound_v1,
    sound_v2,
    walk,
)

MUTANTS = 300

each_version = pytest.mark.parametrize("version", SOUND)


@each_version
def test_a_sound_repository_is_read(version: str) -> None:
    objects = SOUND[version]()
    assert get(objects, "a/c/0/0") == CHUNK
    assert get(objects, "a/c/0/1") == b"inline"
    assert get(objects, "a/c/1/1") is None
    # The virtual chunk is not authorised, and spec v1 has no operations log.
    kinds = {error.kind for error in walk(in_memory(objects))}
    assert kinds <= {ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK, ErrorKind.UNSUPPORTED_SPEC_VERSION}


# -- what does not belong together -----------------------------------------------------------------


def test_a_manifest_that_the_snapshot_does_not_list_is_refused() -> None:
    objects = sound_v2() | {SNAPSHOT_KEY: snapshot(doc.array("/a"), files=(2, 3))}
    error = refuses_object(lambda: get(objects, "a/c/0/0"), SNAPSHOT_KEY)
    assert error.kind == ErrorKind.MANIFEST_INFO_NOT_FOUND
    assert get(objects, "a/zarr.json") == doc.DOCUMENT


def test_a_manifest_that_is_missing_is_named() -> None:
    objects = sound_v2()
    del objects[MANIFEST_KEY]
    with pytest.raises(StorageError, match=MANIFEST_KEY):
        get(objects, "a/c/0/0")


def test_a_manifest_of_another_array_is_refused() -> None:
    objects = sound_v2() | {MANIFEST_KEY: manifest(doc.native([0, 0]), node=7)}
    refuses_object(lambda: get(objects, "a/c/0/0"), MANIFEST_KEY)


@pytest.mark.parametrize(
    "index", [[0, 3], [2, 0], [2**32 - 1, 0], [2**32 - 1, 2**32 - 1], [0], [0, 0, 0], []]
)
def test_indices_beyond_the_extents_or_of_another_rank_are_refused(index: list[int]) -> None:
    objects = sound_v2() | {MANIFEST_KEY: manifest(doc.native(index))}
    refuses_object(lambda: get(objects, "a/c/0/0"), MANIFEST_KEY)


def test_indices_beyond_the_grid_are_refused() -> None:
    node = doc.array("/a", boxes=[((0, 9), (0, 9))])
    objects = sound_v2() | {
        SNAPSHOT_KEY: snapshot(node),
        MANIFEST_KEY: manifest(doc.native([0, 0]), doc.native([2, 0])),
    }
    refuses_object(lambda: get(objects, "a/c/0/0"), MANIFEST_KEY)


@pytest.mark.parametrize("key", [SNAPSHOT_KEY, MANIFEST_KEY, LOG_KEY])
def test_an_object_under_the_name_of_another_is_refused(key: str) -> None:
    objects = sound_v2()
    folder = key.partition("/")[0]
    document = {
        "snapshots": (SNAPSHOT, doc.snapshot()),
        "manifests": (MANIFEST, doc.manifest()),
        "transactions": (LOG, doc.log()),
    }[folder]
    document[1].fields[0] = doc.id12(2)
    objects[key] = sealed(document[0].file_type, document[1])
    repository = icechunk.Repository.open(in_memory(objects))
    inspect = {
        "snapshots": repository.inspect_snapshot,
        "manifests": repository.inspect_manifest,
        "transactions": repository.inspect_transaction_log,
    }[folder]
    assert id_of(2) in refuses_object(lambda: inspect(id_of(1)), key).message


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 9), (1, 8), (8, 1), (0, 2**40), (2**40, 8), (2**63 - 4, 4), (2**63, 8), (2**64 - 9, 8)],
)
def test_chunks_that_are_not_there_in_full_are_refused(
    offset: int, length: int, tmp_path: object
) -> None:
    objects = sound_v2() | {MANIFEST_KEY: manifest(doc.native([0, 0], offset, length))}
    with pytest.raises((FormatError, StorageError), match=CHUNK_KEY):
        get(objects, "a/c/0/0")


def test_a_chunk_that_is_missing_is_no_fill_value() -> None:
    objects = sound_v2()
    del objects[CHUNK_KEY]
    with pytest.raises(StorageError, match=CHUNK_KEY):
        get(objects, "a/c/0/0")


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "file://host/etc/passwd",
        "file:///etc/../etc/passwd",
        "file:///%65tc/passwd",
        "file://[",
        "file://[::1]/etc/passwd",
        "FILE:///etc/passwd",
        "/etc/passwd",
        "etc/passwd",
        "",
        "://",
        "vcc://none/x",
        "vcc://",
        "http://169.254.169.254/latest/meta-data",
        "s3://user:password@bucket/key",
        "file:///etc/passwd\0",
        "file:///etc/pass\nwd",
        "\U0001f9ca",
        "file:///" + "a/" * 2000,
    ],
)
def test_virtual_chunks_outside_of_authorised_containers_are_never_read(location: str) -> None:
    objects = sound_v2() | {MANIFEST_KEY: manifest(doc.virtual([0, 0], location))}
    with pytest.raises(IcechunkError):
        get(objects, "a/c/0/0")
    walk(in_memory(objects))


# -- history ---------------------------------------------------------------------------------------


def _with_parent(number: int, parent: int) -> bytes:
    document = doc.snapshot_v1(doc.group("/"), parent=parent)
    document.fields[0] = doc.id12(number)
    return sealed(SNAPSHOT.file_type, document, 1)


def test_a_snapshot_that_is_its_own_parent_is_refused_in_spec_v1() -> None:
    objects = sound_v1() | {SNAPSHOT_KEY: _with_parent(1, 1)}
    repository = icechunk.Repository.open(in_memory(objects))
    refuses_object(lambda: list(repository.ancestry(branch="main")), SNAPSHOT_KEY)


@pytest.mark.parametrize("length", [2, 3, 20])
def test_an_ancestry_that_is_a_loop_is_refused_in_spec_v1(length: int) -> None:
    objects = sound_v1()
    for number in range(1, length + 1):
        parent = number % length + 1
        objects[f"snapshots/{id_of(number)}"] = _with_parent(number, parent)
    repository = icechunk.Repository.open(in_memory(objects))
    seen: list[icechunk.SnapshotInfo] = []
    with pytest.raises(FormatError, match="loop") as caught:
        seen.extend(repository.ancestry(branch="main"))
    assert len(seen) == length
    assert caught.value.key == SNAPSHOT_KEY


# -- everything at once ----------------------------------------------------------------------------


@each_version
@pytest.mark.parametrize("start", range(0, 5 * MUTANTS, MUTANTS))
def test_damaged_repositories_are_read_or_refused(version: str, start: int) -> None:
    for seed in range(start, start + MUTANTS):
        try:
            walk(in_memory(damaged(SOUND[version](), seed)))
        except Exception as error:
            raise AssertionError(f"mutant {seed} of the repository of spec {version}") from error


def damaged(objects: Objects, seed: int) -> Objects:
    key = sorted(set(objects) - {CHUNK_KEY})[seed % (len(objects) - 1)]
    data = objects[key]
    if data.startswith(b"ICE"):
        payload = mutant(opened(data), seed)
        return objects | {key: seal(payload, data[37], data[36])}
    return objects | {key: bytes(mutant(data, seed))}


def test_a_repository_without_its_snapshot_is_refused() -> None:
    objects = sound_v2()
    del objects[SNAPSHOT_KEY]
    with pytest.raises((StorageError, NotFoundError), match=id_of(1)):
        get(objects, "a/zarr.json")


def test_lengths_that_add_up_to_more_than_64_bits_are_summed() -> None:
    refs = [doc.native([0, 0], 0, 2**63), doc.native([0, 1], 0, 2**63), doc.native([1, 0], 0, 5)]
    store = session_of(sound_v2() | {MANIFEST_KEY: manifest(*refs)}).store
    assert asyncio.run(store.getsize_prefix("a")) == 2**64 + 5 + len(doc.DOCUMENT)


def test_a_chunk_of_1_tb_costs_nothing_to_list() -> None:
    refs = [doc.native([0, 0], 0, 2**40), doc.virtual([0, 1])]
    refs[1].fields[3] = u64(2**40)
    objects = sound_v2() | {MANIFEST_KEY: manifest(*refs)}
    session = session_of(objects)
    assert session.all_virtual_chunk_locations() == ["s3://bucket/key"]
    assert session.chunk_type("/a", [0, 0]) == icechunk.ChunkType.native
    columns = cast("list[int]", [2**40, 2**40])
    assert [int(size) for size in _lengths(session)] == columns


def _lengths(session: icechunk.Session) -> list[int]:
    node = session.reader.array("/a")
    return [int(length) for each in session.reader.all_columns(node) for length in each.lengths]
