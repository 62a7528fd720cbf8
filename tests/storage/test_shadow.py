"""Writes that are seen by who made them, over a storage that is only read."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from icechunk_stream.errors import ObjectNotFoundError
from icechunk_stream.storage import (
    Fetched,
    LostRace,
    Missing,
    NotModified,
    Span,
    Storage,
    Written,
    in_memory_storage,
    local_filesystem_storage,
)
from icechunk_stream.storage.shadow import ShadowStorage
from icechunk_stream.testing.storage_contract import StorageContract

if TYPE_CHECKING:
    from pathlib import Path


class TestShadowStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return ShadowStorage(in_memory_storage(), longest_kept=2**30)


@pytest.fixture
def inner(tmp_path: Path) -> Storage:
    storage = local_filesystem_storage(tmp_path / "below", durability="os")
    storage.put("a/1", b"one")
    storage.put("a/3", b"three")
    return storage


def test_what_is_below_is_read_and_stays_as_it_is(inner: Storage) -> None:
    shadow = ShadowStorage(inner)
    found = shadow.read("a/1")
    assert isinstance(found, Fetched)
    assert isinstance(shadow.put_if("a/1", b"x", None), LostRace)
    written = shadow.put_if("a/1", b"new", found.version)
    assert isinstance(written, Written)
    assert isinstance(shadow.read("a/1", unless=written.version), NotModified)
    assert isinstance(shadow.put_if("a/1", b"x", found.version), LostRace)
    assert isinstance(shadow.copy_if("a/1", "a/2", written.version), Written)
    shadow.delete_many(["a/3"])
    assert isinstance(shadow.read("a/3"), Missing)
    assert isinstance(shadow.put_if("a/3", b"again", None), Written)
    shadow.delete_many(["a/3"])
    assert [info.key for info in shadow.list("a/")] == ["a/1", "a/2"]
    assert (shadow.get("a/1"), shadow.get("a/2", Span(1, 2))) == (b"new", b"e")
    assert [(info.key, inner.get(info.key)) for info in inner.list("")] == [
        ("a/1", b"one"),
        ("a/3", b"three"),
    ]
    assert shadow.writes == (("a/1", 3), ("a/2", 3), ("a/3", 5))


def test_pickles_have_what_was_written_so_far(inner: Storage) -> None:
    shadow = ShadowStorage(inner)
    shadow.put("b", b"mine")
    shadow.delete_many(["a/1"])
    other = pickle.loads(pickle.dumps(shadow))
    shadow.put("c", b"later")
    assert [info.key for info in other.list("")] == ["a/3", "b"]
    assert (other.get("b"), other.get("a/3")) == (b"mine", b"three")


def test_of_long_chunks_only_the_length_is_kept(inner: Storage) -> None:
    shadow = ShadowStorage(inner)
    shadow.put("chunks/long", bytes(2**20 + 1))
    info = shadow.stat("chunks/long")
    assert info is not None
    assert info.size == 2**20 + 1
    with pytest.raises(ObjectNotFoundError, match="measured"):
        shadow.get("chunks/long")
