"""The wrapper forwards everything, and its faults are what their names say."""

from __future__ import annotations

from threading import Thread

import pytest

from icechunk_stream.errors import CommitStateUnknownError, StorageError
from icechunk_stream.storage import MemoryStorage, Missing, ReadRequest, Storage, Version, Written
from icechunk_stream.testing.storage_calls import Call, Fail, LandLate, LoseAnswer, failure
from icechunk_stream.testing.storage_contract import StorageContract
from icechunk_stream.testing.storage_steps import keys
from icechunk_stream.testing.wrapped_storage import WrappedStorage


class TestWrappedMemory(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return WrappedStorage(MemoryStorage())


@pytest.fixture
def storage() -> WrappedStorage:
    return WrappedStorage(MemoryStorage())


def test_calls_are_recorded_one_for_each_object(storage: WrappedStorage) -> None:
    storage.put_many([("a/1", b"1"), ("a/2", b"2")])
    storage.get_many([ReadRequest("a/1"), ReadRequest("a/2")])
    version = storage.put_if("repo", b"", None)
    assert isinstance(version, Written)
    storage.copy_if("repo", "copy", version.version)
    assert [info.key for info in storage.list("a/")] == ["a/1", "a/2"]
    storage.delete_many(["a/1", "a/2"])
    found = [(call.method, call.keys) for call in storage.script.calls]
    assert sorted(found[:2]) == [("put", ("a/1",)), ("put", ("a/2",))]
    assert sorted(found[2:4]) == [("get", ("a/1",)), ("get", ("a/2",))]
    assert found[4:] == [
        ("put_if", ("repo",)),
        ("copy_if", ("copy", "repo")),
        ("list", ("a/",)),
        ("delete", ("a/1", "a/2")),
    ]
    assert [call.number for call in storage.script.calls] == list(range(1, 9))


def test_the_nth_call_that_matches_fails_and_does_nothing(storage: WrappedStorage) -> None:
    storage.script.disturb(Fail(), method="put", key="a/*", nth=2)
    storage.put("b/1", b"")
    storage.put("a/1", b"")
    with pytest.raises(StorageError, match="a/2"):
        storage.put("a/2", b"")
    storage.put("a/2", b"again")
    assert storage.inner.get("a/2") == b"again"


def test_an_answer_is_lost_once_the_call_is_done(storage: WrappedStorage) -> None:
    storage.script.disturb(LoseAnswer())
    with pytest.raises(CommitStateUnknownError):
        storage.put_if("repo", b"1", None)
    assert storage.get("repo") == b"1"


def test_a_late_call_lands_before_the_call_that_it_waits_for(storage: WrappedStorage) -> None:
    storage.script.disturb(LandLate(lambda call: call.method == "stat", failure), method="put")
    with pytest.raises(StorageError):
        storage.put("a", b"late")
    assert storage.read("a") == Missing()
    assert storage.stat("a") is not None


def test_a_late_call_lands_in_the_end(storage: WrappedStorage) -> None:
    first = storage.put_if("repo", b"1", None)
    assert isinstance(first, Written)
    storage.script.disturb(LandLate(lambda _: False), method="put_if", times=2)
    for version in (first.version, Version("of another time")):
        with pytest.raises(CommitStateUnknownError):
            storage.put_if("repo", b"late", version)
    assert storage.get("repo") == b"1"
    storage.script.land()
    assert storage.get("repo") == b"late"
    assert len(storage.script.calls_of("put_if")) == 3


def test_waves_are_calls_that_overlap(storage: WrappedStorage) -> None:
    storage.script.hold_waves(3, 1)
    storage.put_many([("a", b""), ("b", b""), ("c", b"")])
    storage.put("d", b"")
    storage.put("e", b"")
    assert [sorted(call.key for call in wave) for wave in storage.script.waves] == [
        ["a", "b", "c"],
        ["d"],
        ["e"],
    ]


def test_in_order_every_call_of_a_batch_is_made() -> None:
    storage = WrappedStorage(MemoryStorage(), in_order=True)
    storage.script.disturb(Fail(), nth=2)
    with pytest.raises(StorageError, match="'b'"):
        storage.put_many([("a", b""), ("b", b""), ("c", b"")])
    assert keys(storage.inner) == ["a", "c"]
    assert [call.key for call in storage.script.calls] == ["a", "b", "c"]


def test_calm_ends_faults_and_forgetting_the_record(storage: WrappedStorage) -> None:
    storage.script.disturb(Fail())
    storage.script.calm()
    storage.put("a", b"")
    storage.script.forget()
    storage.put("b", b"")
    assert [(call.number, call.key) for call in storage.script.calls] == [(2, "b")]


def test_others_act_while_a_call_is_held(storage: WrappedStorage) -> None:
    def others(call: Call) -> None:
        thread = Thread(target=storage.inner.put, args=(call.key, b"theirs"))
        thread.start()
        thread.join()

    storage.script.before = others
    storage.put("a", b"ours")
    assert storage.inner.get("a") == b"ours"
    assert storage.get("a") == b"theirs"
