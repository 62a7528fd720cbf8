"""Ref files, names, ids and configurations that are made to mislead."""

from __future__ import annotations

import pytest

import icechunk_stream as icechunk
from icechunk_stream.errors import (
    FormatError,
    InvalidInputError,
    RefNotFoundError,
)
from tests.hostile import documents as doc
from tests.hostile import raw
from tests.hostile.raw import Offsets, Table
from tests.hostile.reading import REPO
from tests.hostile.refusals import reads_or_refuses, refuses_object
from tests.hostile.repositories import (
    CHUNK,
    REF_KEY,
    SOUND,
    get,
    id_of,
    in_memory,
    ref_file,
    sealed,
    sound_v1,
    sound_v2,
    walk,
)

each_version = pytest.mark.parametrize("version", SOUND)


REF_FILES = {
    "empty": b"",
    "no JSON": b"snapshot",
    "cut": b'{"snapshot":"',
    "a list": b"[]",
    "null": b"null",
    "a number": b'{"snapshot":5}',
    "an object": b'{"snapshot":{}}',
    "another name": b'{"snapshots":"%s"}' % id_of(1).encode(),
    "an empty id": b'{"snapshot":""}',
    "a path": b'{"snapshot":"../../../../etc/passwd"}',
    "a path of an id's length": b'{"snapshot":"../../../etc/passwd."}',
    "a letter that is none": b'{"snapshot":"UUUUUUUUUUUUUUUUUUUU"}',
    "other digits": '{"snapshot":"%s"}'.replace("%s", "\u0660" * 20).encode(),
    "a byte order mark": b"\xef\xbb\xbf" + ref_file(1),
    "UTF-16": ref_file(1).decode().encode("utf-16"),
    "not UTF-8": b'{"snapshot":"\xff"}',
    "10 MB": ref_file(1) + b" " * 10_000_000,
    "10 MB of an id": b'{"snapshot":"' + b"0" * 10_000_000 + b'"}',
    "depth 4000": b'{"snapshot":' + b"[" * 4000,
    "two documents": ref_file(1) * 2,
}


@pytest.mark.parametrize("name", REF_FILES)
def test_damaged_ref_files_are_refused(name: str) -> None:
    objects = sound_v1() | {REF_KEY: REF_FILES[name]}
    storage = in_memory(objects)
    refuses_object(lambda: icechunk.Repository.open(storage).lookup_branch("main"), REF_KEY)
    walk(storage)


def test_a_ref_file_with_more_in_it_is_read() -> None:
    later = b'{"later":{"a":[1,{}]},' + ref_file(1)[1:]
    repository = icechunk.Repository.open(in_memory(sound_v1() | {REF_KEY: later}))
    assert repository.lookup_branch("main") == id_of(1)


def test_a_ref_file_with_something_deep_in_it_is_read_or_refused() -> None:
    """Python 3.11 has less stack to skip it than later versions."""
    deep = b'{"later":' + b"[" * 2000 + b"]" * 2000 + b"," + ref_file(1)[1:]
    repository = icechunk.Repository.open(in_memory(sound_v1() | {REF_KEY: deep}))
    reads_or_refuses(lambda: repository.lookup_branch("main"), REF_KEY)


@pytest.mark.parametrize("key", ["refs/stray", "refs/other.x/ref.json", "refs/branch/ref.json"])
def test_files_that_are_no_refs_are_named(key: str) -> None:
    repository = icechunk.Repository.open(in_memory(sound_v1() | {key: ref_file(1)}))
    refuses_object(repository.list_branches, key)


NAMES = ["..", ".", "", "a/b", "../main", "/main", "main/", "\0", "main\0", "\n", "\udc80"]
LONG_NAMES = ["x" * 300, "x" * 5000, "é" * 200]


@each_version
@pytest.mark.parametrize("name", NAMES + LONG_NAMES)
def test_ref_names_that_are_none_of_the_refs_find_nothing(version: str, name: str) -> None:
    repository = icechunk.Repository.open(in_memory(SOUND[version]()))
    for look_up in (repository.lookup_branch, repository.lookup_tag, repository.readonly_session):
        with pytest.raises((RefNotFoundError, InvalidInputError)):
            look_up(name)


@pytest.mark.parametrize("name", [name for name in NAMES + LONG_NAMES if name != "\udc80"])
def test_ref_names_of_a_hostile_repo_object_are_only_names(name: str) -> None:
    branches = Offsets(sorted_refs(name, "main"))
    repo = doc.repo(doc.info(1, -1), slot_1=doc.refs(), slot_2=branches)
    storage = in_memory(sound_v2() | {"repo": sealed(REPO.file_type, repo)})
    repository = icechunk.Repository.open(storage)
    assert repository.list_branches() == {name, "main"}
    assert repository.lookup_branch(name) == id_of(1)
    walk(storage)


def sorted_refs(*names: str) -> list[Table]:
    return [
        Table("Ref", {0: raw.text(name), 1: raw.u32(0)})
        for name in sorted(set(names), key=str.encode)
    ]


@pytest.mark.parametrize("id", ["", "..", "../../etc/passwd", "0" * 19, "0" * 21, "U" * 20, "\0"])
@each_version
def test_ids_that_are_none_are_refused_before_they_become_keys(version: str, id: str) -> None:
    repository = icechunk.Repository.open(in_memory(SOUND[version]()))
    for look_up in (
        repository.lookup_snapshot,
        repository.list_manifest_files,
        repository.inspect_snapshot,
        repository.inspect_manifest,
        repository.inspect_transaction_log,
    ):
        with pytest.raises(InvalidInputError):
            look_up(id)


# -- configuration ---------------------------------------------------------------------------------

CONFIGS = {
    "a Python object": b"!!python/object/apply:os.system ['true']",
    "a Python name": b"caching: !!python/name:os.system",
    "a billion laughs": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(
        b"%c: &%c [%s]\n" % (letter, letter, b",".join([b"*%c" % (letter - 1)] * 9))
        for letter in b"bcdefghij"
    ),
    "depth 10000": b"[" * 10_000,
    "no YAML": b"{",
    "not UTF-8": b"\xff\xfe\xfd",
    "a list": b"[]",
    "a number too large": b"inline_chunk_threshold_bytes: 70000",
    "a key twice": b"caching: {}\ncaching: {}\n",
    "NUL": b"\0",
    "20 MB": b"a: " + b"x" * 20_000_000,
}


@pytest.mark.parametrize("name", CONFIGS)
def test_hostile_configurations_are_refused(name: str) -> None:
    storage = in_memory(sound_v1() | {"config.yaml": CONFIGS[name]})
    with pytest.raises(FormatError, match=r"config\.yaml"):
        icechunk.Repository.open(storage)
    with pytest.raises(FormatError, match=r"config\.yaml"):
        icechunk.Repository.fetch_config(storage)


@pytest.mark.parametrize(
    "config", [b"", b"\0", b"\xff\xff\xff", b"\x01\x68\x01", b"\x00\x28\x01", b"\x00\x24\x03"]
)
def test_damaged_configurations_in_the_repo_object_are_refused(config: bytes) -> None:
    repo = doc.repo(doc.info(1, -1), slot_1=doc.refs(), slot_9=raw.Octets(config))
    storage = in_memory(sound_v2() | {"repo": sealed(REPO.file_type, repo)})
    refuses_object(lambda: icechunk.Repository.open(storage), "repo")


@pytest.mark.parametrize(
    "key",
    [
        "a/c/" + "9" * 5000 + "/0",
        "a/c/0/4294967296",
        "a/c/0/99999999999",
        "a/c/0/-1",
        "a/c/0/\udc80",
        "a/c/0/\u0660",
        "a/c/0/0x0",
        "a/c/0/1_0",
        "a/c/0/ 0",
        "a/../zarr.json",
    ],
)
def test_keys_that_mean_nothing_are_refused(key: str) -> None:
    with pytest.raises(InvalidInputError):
        get(sound_v2(), key)


@pytest.mark.parametrize("key", ["a/c/0000000000000/0", "a/c/+0/0", "a/c/" + "0" * 5000 + "/0"])
def test_indices_may_have_zeros_before_them(key: str) -> None:
    assert get(sound_v2(), key) == CHUNK


@pytest.mark.parametrize("key", ["\udc80/zarr.json", "\udc80/c/0", "a\0/zarr.json", "a\udc80/c"])
def test_paths_that_no_node_has_find_nothing(key: str) -> None:
    assert get(sound_v2(), key) is None
