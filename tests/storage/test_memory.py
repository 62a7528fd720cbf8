import copy
import pickle

import pytest

from icechunk_stream.errors import StorageError
from icechunk_stream.storage import MemoryStorage, Storage, in_memory_storage
from icechunk_stream.testing.storage_contract import StorageContract


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return in_memory_storage()


def test_pickling_says_what_to_use_instead() -> None:
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(StorageError, match="cannot be pickled: use a local file system"):
            duplicate(MemoryStorage())


def test_storages_share_nothing() -> None:
    one, other = MemoryStorage(), MemoryStorage()
    one.put("a", b"")
    assert repr(one) == "MemoryStorage(objects=1)"
    assert list(other.list()) == []


def test_the_storage_keeps_its_own_bytes() -> None:
    storage, data = MemoryStorage(), bytearray(b"old")
    storage.put("a", data)
    data[:] = b"new"
    assert storage.get("a") == b"old"
