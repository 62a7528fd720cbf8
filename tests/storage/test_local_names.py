"""Names on disk are those of the reference library, and neither side sees the other's staging."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk
import pytest

from icechunk_stream.storage import LocalStorage
from icechunk_stream.storage.local_names import disk_path, key_segment, temporary_name
from icechunk_stream.testing.storage_steps import keys

pytestmark = pytest.mark.compat

TAGS = [
    *(f"x{chr(code)}y" for code in range(1, 128) if chr(code) != "/"),
    *("", ".", "..", "...", " ", "a ", "a.", "-", "%", "%41", "a%2Fb", "#1", "a#1", "CON"),
    *("é", "e\u0301", "\x80", "\u200b", "\ufeff", "\ud7ff", "\uffff", "\U0001f600", "日本語"),
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEVER = datetime(2001, 1, 1, tzinfo=UTC)


@pytest.fixture
def repository(tmp_path: Path) -> icechunk.Repository:
    """A repository of the first format, whose refs are objects of their own."""
    options: dict[str, Any] = {} if icechunk.__version__ < "2" else {"spec_version": 1}
    storage = icechunk.local_filesystem_storage(str(tmp_path / "repository"))
    return icechunk.Repository.create(storage, **options)


def test_names_are_spelled_as_the_reference_library_spells_them(
    repository: icechunk.Repository, tmp_path: Path
) -> None:
    snapshot = repository.lookup_branch("main")
    for tag in TAGS:
        repository.create_tag(tag, snapshot)
    names = {f"tag.{tag}": disk_path(f"tag.{tag}") for tag in TAGS} | {"branch.main": "branch.main"}
    assert sorted(os.listdir(tmp_path / "repository/refs")) == sorted(names.values())
    assert [key_segment(name) for name in names.values()] == list(names)


def test_what_the_reference_library_wrote_is_listed_and_read(
    repository: icechunk.Repository, tmp_path: Path
) -> None:
    snapshot = repository.lookup_branch("main")
    for tag in TAGS:
        repository.create_tag(tag, snapshot)
    storage = LocalStorage(tmp_path / "repository")
    listed = keys(storage, "refs/tag.")
    assert listed == sorted((f"refs/tag.{tag}/ref.json" for tag in TAGS), key=str.encode)
    assert [json.loads(storage.get(key))["snapshot"] for key in listed] == [snapshot] * len(TAGS)


def test_what_we_wrote_is_read_by_the_reference_library(
    repository: icechunk.Repository, tmp_path: Path
) -> None:
    snapshot = repository.lookup_branch("main")
    storage = LocalStorage(tmp_path / "repository")
    ref = json.dumps({"snapshot": snapshot}).encode()
    for tag in TAGS:
        storage.put_if(f"refs/tag.{tag}/ref.json", ref, None)
    assert [repository.lookup_tag(tag) for tag in TAGS] == [snapshot] * len(TAGS)


def test_staged_files_trouble_nobody(repository: icechunk.Repository, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    repository.create_tag("one", repository.lookup_branch("main"))
    before = keys(LocalStorage(root))
    staged = [
        root / directory / temporary_name()
        for directory in ("", "refs", "refs/branch.main", "refs/tag.one", "snapshots")
    ]
    for path in staged:
        path.write_bytes(b"half an object")
    assert keys(LocalStorage(root)) == before
    again = icechunk.Repository.open(icechunk.local_filesystem_storage(str(root)))
    assert again.list_branches() == {"main"}
    assert again.list_tags() == {"one"}
    assert len(list(again.ancestry(tag="one"))) == 1
    again.garbage_collect(datetime.now(UTC))
    again.expire_snapshots(NEVER)
    assert all(path.exists() for path in staged)
    assert keys(LocalStorage(root)) == before


def test_a_staged_file_does_not_make_a_place_unclean(tmp_path: Path) -> None:
    (tmp_path / temporary_name()).write_bytes(b"half an object")
    storage = icechunk.local_filesystem_storage(str(tmp_path))
    repository = icechunk.Repository.create(storage)
    assert repository.list_branches() == {"main"}


def test_staged_names_do_not_repeat_and_are_long() -> None:
    names = {temporary_name() for _ in range(1000)}
    assert len(names) == 1000
    assert {len(name) for name in names} == {len("tmp#") + 39}
    assert {key_segment(name) for name in names} == {None}
    prefixes = {name[:14] for name in names}
    assert len(prefixes) > 990


# Before version 2 the reference library had no call that lists.
if hasattr(icechunk.Storage, "list_objects_metadata"):

    def test_a_listing_is_that_of_the_reference_library(
        repository: icechunk.Repository, tmp_path: Path
    ) -> None:
        for tag in TAGS:
            repository.create_tag(tag, repository.lookup_branch("main"))
        root = tmp_path / "repository"
        (root / "chunks").mkdir()
        (root / "chunks" / temporary_name()).write_bytes(b"half an object")
        found = LocalStorage(root).list()
        ours = [(disk_path(info.key), info.size, info.modified_at) for info in found]
        assert sorted(ours) == sorted(listed_by_the_reference(root))


def listed_by_the_reference(root: Path) -> list[tuple[str, int, int]]:
    storage: Any = icechunk.local_filesystem_storage(str(root))
    return [
        (info.key, info.size_bytes, (info.created_at - EPOCH) // timedelta(microseconds=1))
        for info in storage.list_objects_metadata()
    ]
