"""Conditional writes whose answer is lost, late or doubtful."""

import pytest

from icechunk_stream.config import StorageSettings
from icechunk_stream.errors import CommitStateUnknownError, StorageError
from icechunk_stream.storage import LostRace, S3Storage, Version, Written
from icechunk_stream.testing.http_faults import DropAnswer, DropRequest, Gate, LandLate, Reply
from icechunk_stream.testing.http_proxy import HttpProxy
from icechunk_stream.testing.storage_steps import create, fetch, keys, update
from tests.object_stores.s3_storages import Hourglass, storage_on
from tests.object_stores.servers import S3Server

KEY = "refs/branch.main/ref.json"
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


@pytest.fixture
def rival(versitygw: S3Server, storage: S3Storage) -> S3Storage:
    """Another writer of the same objects, who has the server for himself."""
    return storage_on(versitygw, storage.bucket)


def writes(proxy: HttpProxy) -> int:
    return len(proxy.requests_of("PUT"))


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_create_whose_answer_is_lost_took_place_once(
    storage: S3Storage, proxy: HttpProxy, nth: int, reset: bool
) -> None:
    proxy.disturb(DropAnswer(reset), method="PUT", nth=nth)
    versions = [create(storage, f"refs/{number}", b"mine") for number in range(3)]
    assert [fetch(storage, f"refs/{number}").version for number in range(3)] == versions
    assert (writes(proxy), len(proxy.requests_of("HEAD"))) == (3, 1)


@pytest.mark.parametrize("reset", [False, True])
def test_an_update_whose_answer_is_lost_took_place_once(
    storage: S3Storage, proxy: HttpProxy, reset: bool
) -> None:
    version = create(storage, KEY, b"0")
    proxy.disturb(DropAnswer(reset), method="PUT", nth=2)
    for number in range(1, 4):
        version = update(storage, KEY, b"%d" % number, version)
    assert (fetch(storage, KEY).data, writes(proxy)) == (b"3", 4)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 499])
def test_an_error_that_hides_a_success_is_seen_through(
    storage: S3Storage, proxy: HttpProxy, status: int
) -> None:
    version = create(storage, KEY, b"0")
    proxy.disturb(Reply(status, forward=True), method="PUT")
    outcome = storage.put_if(KEY, b"1", version)
    assert outcome == Written(fetch(storage, KEY).version)
    assert (storage.get(KEY), writes(proxy)) == (b"1", 2)


def test_a_conflict_that_hides_a_success_is_seen_through(
    storage: S3Storage, proxy: HttpProxy
) -> None:
    """As when something between client and server sends the request again."""
    proxy.disturb(Reply(412, forward=True), method="PUT")
    assert storage.put_if(KEY, b"mine", None) == Written(fetch(storage, KEY).version)


def test_an_answer_without_an_etag_is_read_back(storage: S3Storage, proxy: HttpProxy) -> None:
    proxy.disturb(Reply(200, forward=True), method="PUT")
    assert storage.put_if(KEY, b"mine", None) == Written(fetch(storage, KEY).version)


@pytest.mark.parametrize("expected_exists", [False, True])
def test_a_lost_request_leaves_the_outcome_unknown(
    storage: S3Storage, proxy: HttpProxy, expected_exists: bool
) -> None:
    expected = create(storage, KEY, b"old") if expected_exists else None
    proxy.disturb(DropRequest(), method="PUT")
    proxy.forget()
    with pytest.raises(CommitStateUnknownError, match="may do so yet") as caught:
        storage.put_if(KEY, b"new", expected)
    assert caught.value.key == KEY
    assert (writes(proxy), proxy.requests_of("DELETE")) == (1, [])
    assert keys(storage) == ([KEY] if expected_exists else [])


def test_a_late_body_loses_against_a_competitor(
    storage: S3Storage, rival: S3Storage, proxy: HttpProxy
) -> None:
    version = create(storage, KEY, b"base")
    gate = Gate()
    proxy.disturb(LandLate(gate), method="PUT")
    with pytest.raises(CommitStateUnknownError, match="may do so yet"):
        storage.put_if(KEY, b"mine", version)
    theirs = update(rival, KEY, b"theirs", version)
    assert gate.open() == 412
    assert (fetch(storage, KEY).version, storage.get(KEY)) == (theirs, b"theirs")
    assert storage.put_if(KEY, b"mine again", version) == LostRace()


def test_a_competitor_in_the_meantime_leaves_the_outcome_unknown(
    storage: S3Storage, rival: S3Storage, proxy: HttpProxy, hourglass: Hourglass
) -> None:
    """The answer is lost, and what is there now may have been built upon ours, or against it."""
    version = create(storage, KEY, b"base")
    gate = Gate()
    proxy.disturb(LandLate(gate, hang_up=False), method="PUT")
    # The competitor comes while reading back waits for its second try.
    proxy.disturb(Reply(503), method="HEAD")
    hourglass.meanwhile.append(lambda: update(rival, KEY, b"theirs", version))
    with pytest.raises(CommitStateUnknownError, match="moved on to a version of others"):
        storage.put_if(KEY, b"mine", version)
    assert gate.open() == 412
    assert storage.get(KEY) == b"theirs"


def test_a_late_body_that_lands_is_found_by_the_next_write(
    storage: S3Storage, proxy: HttpProxy
) -> None:
    version = create(storage, KEY, b"base")
    gate = Gate()
    proxy.disturb(LandLate(gate), method="PUT")
    with pytest.raises(CommitStateUnknownError):
        storage.put_if(KEY, b"mine", version)
    assert gate.open() == 200
    assert storage.put_if(KEY, b"mine, sent again", version) == LostRace()
    assert storage.get(KEY) == b"mine"


def test_the_outcome_is_unknown_where_reading_back_fails_too(
    storage: S3Storage, proxy: HttpProxy, hourglass: Hourglass
) -> None:
    version = create(storage, KEY, b"old")
    proxy.forget()
    proxy.disturb(DropAnswer(), method="PUT")
    proxy.disturb(Reply(503), method="HEAD", times=100)
    with pytest.raises(CommitStateUnknownError, match="reading it back failed too"):
        storage.put_if(KEY, b"new", version)
    assert (writes(proxy), len(proxy.requests_of("HEAD"))) == (1, 5)
    assert proxy.requests_of("DELETE") == []
    assert hourglass.pauses == [0.1, 0.2, 0.4, 0.8]
    assert storage.get(KEY) == b"new"


def test_a_denied_write_is_an_error_and_no_lost_race(storage: S3Storage, proxy: HttpProxy) -> None:
    proxy.disturb(Reply(403), method="PUT")
    with pytest.raises(StorageError, match="check the permissions") as caught:
        storage.put_if(KEY, b"new", None)
    assert type(caught.value) is StorageError
    assert (writes(proxy), proxy.requests_of("HEAD")) == (1, [])


@pytest.mark.parametrize(
    "reply", [Reply(503, SLOW_DOWN), Reply(429), Reply(408)], ids=["SlowDown", "429", "408"]
)
def test_a_write_that_was_turned_away_is_sent_again(
    storage: S3Storage, proxy: HttpProxy, hourglass: Hourglass, reply: Reply
) -> None:
    proxy.disturb(reply, method="PUT", times=3)
    version = create(storage, KEY, b"mine")
    assert fetch(storage, KEY).version == version
    assert (writes(proxy), hourglass.pauses) == (4, [0.1, 0.2, 0.4])


def test_a_write_that_is_turned_away_for_ever_is_known_not_to_be_there(
    storage: S3Storage, proxy: HttpProxy
) -> None:
    proxy.disturb(Reply(503, SLOW_DOWN), method="PUT", times=100)
    with pytest.raises(StorageError, match="SlowDown") as caught:
        storage.put_if(KEY, b"new", None)
    assert type(caught.value) is StorageError
    assert writes(proxy) == 5
    assert keys(storage) == []


def test_a_write_that_is_turned_away_loses_to_a_competitor(
    storage: S3Storage, rival: S3Storage, proxy: HttpProxy
) -> None:
    version = create(rival, KEY, b"base")
    update(rival, KEY, b"theirs", version)
    proxy.disturb(Reply(503, SLOW_DOWN), method="PUT", times=100)
    assert storage.put_if(KEY, b"mine", version) == LostRace()
    assert writes(proxy) == 1


def test_a_server_that_keeps_no_metadata_leaves_lost_answers_unknown(
    versitygw: S3Server, versitygw_bucket: str, proxy: HttpProxy
) -> None:

    settings = StorageSettings(unsafe_use_metadata=False)
    storage = storage_on(versitygw, versitygw_bucket, proxy.endpoint, settings=settings)
    version = create(storage, KEY, b"old")
    assert storage.put_if(KEY, b"new", Version('"0"')) == LostRace()
    proxy.disturb(DropAnswer(), method="PUT")
    with pytest.raises(CommitStateUnknownError):
        storage.put_if(KEY, b"new", version)
