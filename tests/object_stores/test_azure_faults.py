"""Azure behind a proxy that loses, delays, cuts and alters what passes."""

from collections.abc import Iterator

import pytest

from icechunk_stream.config import (
    StorageConcurrencySettings,
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
)
from icechunk_stream.errors import (
    CommitStateUnknownError,
    ErrorKind,
    ObjectNotFoundError,
    StorageError,
)
from icechunk_stream.storage import (
    LostRace,
    NotModified,
    Span,
    Written,
    probe_conditional_writes,
)
from icechunk_stream.storage.object_store import ObjectStoreStorage
from icechunk_stream.testing.http_faults import (
    AlterAnswer,
    CutBody,
    DropAnswer,
    DropRequest,
    Fault,
    Gate,
    LandLate,
    Reply,
    StallBody,
    TruncateBody,
)
from icechunk_stream.testing.http_messages import Answer
from icechunk_stream.testing.http_proxy import HttpProxy
from icechunk_stream.testing.storage_steps import create, fetch, keys, update
from tests.object_stores.azure import IMPATIENT, storage_of
from tests.object_stores.s3_storages import Hourglass
from tests.object_stores.servers import AzureServer

KEY = "refs/branch.main/ref.json"
TEN = b"0123456789"
SERVER_BUSY = b"<Error><Code>ServerBusy</Code><Message>wait</Message></Error>"
ALWAYS = 10_000


@pytest.fixture
def proxy(azurite: AzureServer) -> Iterator[HttpProxy]:
    with HttpProxy(azurite.endpoint) as proxy:
        yield proxy


@pytest.fixture
def storage(
    azurite: AzureServer, azure_container: str, proxy: HttpProxy, hourglass: Hourglass
) -> ObjectStoreStorage:
    return storage_of(
        azurite,
        azure_container,
        endpoint=proxy.endpoint,
        settings=IMPATIENT,
        waiting=hourglass.waiting(),
    )


@pytest.fixture
def rival(azurite: AzureServer, azure_container: str) -> ObjectStoreStorage:
    """Another writer of the same objects, who has the server for himself."""
    return storage_of(azurite, azure_container)


def writes(proxy: HttpProxy) -> int:
    return len(proxy.requests_of("PUT"))


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_create_whose_answer_is_lost_took_place_once(
    storage: ObjectStoreStorage, proxy: HttpProxy, nth: int, reset: bool
) -> None:
    proxy.disturb(DropAnswer(reset), method="PUT", nth=nth)
    versions = [create(storage, f"refs/{number}", b"mine") for number in range(3)]
    assert [fetch(storage, f"refs/{number}").version for number in range(3)] == versions
    assert (writes(proxy), len(proxy.requests_of("HEAD"))) == (3, 1)


@pytest.mark.parametrize("fault", [DropAnswer(), DropAnswer(reset=True), Reply(500, forward=True)])
def test_an_update_whose_answer_is_lost_took_place_once(
    storage: ObjectStoreStorage, proxy: HttpProxy, fault: Fault
) -> None:
    version = create(storage, KEY, b"0")
    proxy.disturb(fault, method="PUT", nth=2)
    for number in range(1, 4):
        version = update(storage, KEY, b"%d" % number, version)
    assert (fetch(storage, KEY).data, writes(proxy)) == (b"3", 4)


@pytest.mark.parametrize("status", [409, 412])
def test_a_conflict_that_hides_a_success_is_seen_through(
    storage: ObjectStoreStorage, proxy: HttpProxy, status: int
) -> None:
    proxy.disturb(Reply(status, forward=True), method="PUT")
    assert storage.put_if(KEY, b"mine", None) == Written(fetch(storage, KEY).version)


def test_an_answer_without_a_version_is_read_back(
    storage: ObjectStoreStorage, proxy: HttpProxy
) -> None:
    proxy.disturb(Reply(201, forward=True), method="PUT")
    assert storage.put_if(KEY, b"mine", None) == Written(fetch(storage, KEY).version)
    assert writes(proxy) == 1


def test_a_lost_request_leaves_the_outcome_unknown(
    storage: ObjectStoreStorage, proxy: HttpProxy
) -> None:
    version = create(storage, KEY, b"old")
    proxy.disturb(DropRequest(), method="PUT")
    proxy.forget()
    with pytest.raises(CommitStateUnknownError, match="may do so yet") as caught:
        storage.put_if(KEY, b"new", version)
    assert caught.value.key == KEY
    assert (writes(proxy), proxy.requests_of("POST")) == (1, [])
    assert storage.get(KEY) == b"old"


def test_a_late_body_loses_against_a_competitor(
    storage: ObjectStoreStorage, rival: ObjectStoreStorage, proxy: HttpProxy
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


def test_a_read_back_that_fails_leaves_the_outcome_unknown(
    storage: ObjectStoreStorage, proxy: HttpProxy
) -> None:
    proxy.disturb(DropAnswer(), method="PUT")
    proxy.disturb(Reply(503), method="HEAD", times=ALWAYS)
    with pytest.raises(CommitStateUnknownError, match="reading it back failed too"):
        storage.put_if(KEY, b"mine", None)
    assert (writes(proxy), proxy.requests_of("POST")) == (1, [])
    assert storage.get(KEY) == b"mine"


def test_a_write_that_was_turned_away_is_sent_again(
    storage: ObjectStoreStorage, proxy: HttpProxy, hourglass: Hourglass
) -> None:
    proxy.disturb(Reply(503, SERVER_BUSY), method="PUT", times=2)
    version = create(storage, KEY, b"mine")
    assert fetch(storage, KEY).version == version
    assert (writes(proxy), len(hourglass.pauses)) == (3, 2)


def test_a_server_that_cannot_be_reached_was_sent_nothing(
    azurite: AzureServer, azure_container: str, hourglass: Hourglass
) -> None:
    waiting = hourglass.waiting()
    endpoint = "http://127.0.0.1:1/account"
    storage = storage_of(azurite, azure_container, endpoint=endpoint, waiting=waiting)
    with pytest.raises(StorageError, match="no connection was made"):
        storage.put_if(KEY, b"mine", None)


TRANSIENT = [
    DropRequest(),
    DropRequest(reset=True),
    DropAnswer(),
    CutBody(0),
    CutBody(5),
    CutBody(-1),
    CutBody(5, reset=True),
    StallBody(0),
    StallBody(5),
    StallBody(-1),
    Reply(500),
    Reply(503, SERVER_BUSY),
    Reply(429),
    Reply(408),
]


@pytest.mark.parametrize("fault", TRANSIENT, ids=str)
def test_a_read_is_tried_again(
    storage: ObjectStoreStorage, proxy: HttpProxy, hourglass: Hourglass, fault: Fault
) -> None:
    storage.put("chunks/A", TEN)
    proxy.disturb(fault, method="GET", nth=1, times=2)
    assert storage.get("chunks/A") == TEN
    assert storage.get("chunks/A", Span(2, 9)) == b"2345678"
    assert len(hourglass.pauses) == 2


@pytest.mark.parametrize("at", [0, 3, -1])
def test_a_range_that_is_too_short_is_fetched_again(
    storage: ObjectStoreStorage, proxy: HttpProxy, at: int
) -> None:
    storage.put("chunks/A", TEN)
    proxy.disturb(TruncateBody(at), method="GET", times=2)
    assert storage.get("chunks/A", Span(2, 9)) == b"2345678"
    assert len(proxy.requests_of("GET")) == 3


@pytest.mark.parametrize("fault", [CutBody(-1), Reply(503, SERVER_BUSY), DropAnswer()], ids=str)
def test_a_read_that_goes_on_failing_ends_with_the_tries(
    storage: ObjectStoreStorage, proxy: HttpProxy, fault: Fault
) -> None:
    storage.put("chunks/A", TEN)
    proxy.disturb(fault, method="GET", times=ALWAYS)
    with pytest.raises(StorageError, match="could not read 'chunks/A' in AzureStorage") as caught:
        storage.get("chunks/A")
    assert caught.value.key == "chunks/A"
    assert len(proxy.requests_of("GET")) == 5


@pytest.mark.parametrize("status", [400, 401, 403, 404, 501])
def test_what_will_not_pass_is_not_tried_again(
    storage: ObjectStoreStorage, proxy: HttpProxy, status: int
) -> None:
    storage.put("chunks/A", TEN)
    proxy.disturb(Reply(status), method="GET")
    with pytest.raises(StorageError):
        storage.get("chunks/A")
    assert len(proxy.requests_of("GET")) == 1


def test_a_plain_write_is_tried_again(storage: ObjectStoreStorage, proxy: HttpProxy) -> None:
    proxy.disturb(DropAnswer(), method="PUT")
    storage.put("chunks/A", TEN)
    assert (storage.get("chunks/A"), writes(proxy)) == (TEN, 2)


def test_a_page_of_a_listing_is_asked_for_again(
    storage: ObjectStoreStorage, proxy: HttpProxy
) -> None:
    names = [f"chunks/{number}" for number in range(5)]
    storage.put_many([(name, b"") for name in names])
    for fault in (Reply(503, SERVER_BUSY), DropAnswer(), Reply(429)):
        proxy.disturb(fault, query="comp=list", times=2)
        assert keys(storage) == names
        proxy.calm()
    proxy.disturb(Reply(403), query="comp=list")
    with pytest.raises(StorageError, match="Storage Blob Data Contributor"):
        keys(storage)


def test_what_cannot_be_deleted_is_told_with_the_reason(
    storage: ObjectStoreStorage, proxy: HttpProxy
) -> None:
    names = [f"chunks/{number}" for number in range(5)]
    storage.put_many([(name, b"") for name in names])
    proxy.disturb(Reply(403), method="POST")
    failures = storage.delete_many(names)
    assert [failure.key for failure in failures] == names
    assert "credentials do not allow" in failures[0].reason
    proxy.disturb(Reply(503, SERVER_BUSY), method="POST")
    assert storage.delete_many([*names, "chunks/absent"]) == []
    assert keys(storage) == []


def test_a_304_to_a_plain_read_is_an_error(storage: ObjectStoreStorage, proxy: HttpProxy) -> None:
    version = create(storage, KEY, TEN)
    assert storage.read(KEY, version) == NotModified()
    proxy.disturb(Reply(304), method="GET")
    with pytest.raises(StorageError, match="answered a plain request with 304"):
        storage.read(KEY)


def test_an_absent_container_is_not_taken_for_an_absent_object(
    azurite: AzureServer,
) -> None:
    storage = storage_of(azurite, "no-such-container")
    with pytest.raises(StorageError, match="ContainerNotFound") as caught:
        storage.get("chunks/A")
    assert not isinstance(caught.value, ObjectNotFoundError)
    with pytest.raises(StorageError, match="ContainerNotFound"):
        storage.put_if(KEY, b"", None)


def test_a_small_write_and_a_read_are_one_round_trip_each(
    storage: ObjectStoreStorage, proxy: HttpProxy
) -> None:
    storage.put("chunks/A", bytes(64_000))
    version = create(storage, KEY, TEN)
    update(storage, KEY, TEN, version)
    storage.get("chunks/A", Span(10, 20))
    storage.read(KEY)
    assert proxy.round_trips == 5


def test_large_objects_go_in_blocks_and_come_in_pieces(
    azurite: AzureServer, azure_container: str, proxy: HttpProxy
) -> None:
    settings = StorageSettings(
        concurrency=StorageConcurrencySettings(4, 1_000_000),
        retries=StorageRetriesSettings(3, 1, 10),
        timeouts=StorageTimeoutSettings(read_timeout_ms=5000),
        minimum_size_for_multipart_upload=6_000_000,
    )
    storage = storage_of(azurite, azure_container, endpoint=proxy.endpoint, settings=settings)
    data = bytes(range(256)) * 50_000
    storage.put("chunks/A", data)
    assert len(proxy.requests_of("PUT", query="comp=block&")) == 3
    assert storage.get("chunks/A", Span(0, len(data) + 5)) == data
    assert storage.get("chunks/A", Span(500_000, 3_700_000)) == data[500_000:3_700_000]
    assert len(proxy.requests_of("GET")) == 5 + 4


def granted(answer: Answer) -> Answer:
    """What a store says that looks at no condition: requests are signed with theirs."""
    if answer.status not in {409, 412}:
        return answer
    return Answer(201, (*answer.headers, ("etag", '"0x8D"')))


@pytest.mark.parametrize(
    ("nth", "why"), [(2, "created twice"), (4, "replaced from a version long gone")]
)
def test_the_probe_refuses_a_store_that_grants_every_write_and_leaves_nothing(
    storage: ObjectStoreStorage, rival: ObjectStoreStorage, proxy: HttpProxy, nth: int, why: str
) -> None:
    proxy.disturb(AlterAnswer(granted), method="PUT", nth=nth)
    with pytest.raises(StorageError, match=why) as caught:
        probe_conditional_writes(storage)
    assert caught.value.kind == ErrorKind.STORAGE_CONFIG
    assert keys(rival) == []
