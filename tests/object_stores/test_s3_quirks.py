"""Servers that speak S3 in their own way, played by a proxy before a good one."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from icechunk_stream.errors import ErrorKind, ObjectNotFoundError, StorageError
from icechunk_stream.storage import (
    Fetched,
    Last,
    LostRace,
    NotModified,
    S3Storage,
    Span,
    Version,
    Written,
    probe_conditional_writes,
)
from icechunk_stream.testing.http_faults import AlterAnswer, AlterRequest, Fault, Reply
from icechunk_stream.testing.http_messages import Answer, Request, without
from icechunk_stream.testing.http_proxy import HttpProxy
from icechunk_stream.testing.storage_steps import create, fetch, keys, update
from tests.object_stores.buckets import s3_client
from tests.object_stores.s3_storages import BULKS, Bulk, storage_on
from tests.object_stores.servers import S3Server

KEY = "refs/branch.main/ref.json"
ALWAYS = 10_000


def ignoring(name: str) -> Fault:
    """The server does not see a header."""
    return AlterRequest(lambda request: replace(request, headers=without(request.headers, name)))


@pytest.fixture
def storage(versitygw: S3Server, versitygw_bucket: str, proxy: HttpProxy) -> S3Storage:
    return storage_on(versitygw, versitygw_bucket, proxy.endpoint)


@pytest.fixture
def lenient(moto: S3Server) -> Iterator[HttpProxy]:
    """Before a server that does not check signatures, so that requests may be altered."""
    with HttpProxy(moto.endpoint) as proxy:
        yield proxy


@pytest.fixture
def altered(moto: S3Server, moto_bucket: str, lenient: HttpProxy) -> S3Storage:
    """A storage whose requests may be altered."""
    return storage_on(moto, moto_bucket, lenient.endpoint)


def listing(items: str) -> Reply:
    complete = "<IsTruncated>false</IsTruncated>"
    return Reply(200, f"<ListBucketResult>{complete}{items}</ListBucketResult>".encode())


def error(status: int, code: str) -> Reply:
    return Reply(status, f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode())


def with_etag(rewrite: Callable[[str], str]) -> Fault:
    def change(answer: Answer) -> Answer:
        headers = tuple(
            (name, rewrite(value) if name.lower() == "etag" else value)
            for name, value in answer.headers
        )
        return replace(answer, headers=headers)

    return AlterAnswer(change)


def unquoted(etag: str) -> str:
    return etag.strip('"')


@pytest.mark.parametrize(
    "reply",
    [
        Reply(409),
        Reply(412),
        error(409, "ConditionalRequestConflict"),
        error(409, "ConcurrentModification"),
        error(409, "OperationAborted"),
        error(400, "PreconditionFailed"),
        error(503, "ConcurrentModification"),
        error(412, "SomethingElse"),
    ],
    ids=lambda reply: f"{reply.status}-{reply.body[13:30].decode()}",
)
def test_every_way_to_say_conflict_is_a_lost_race(
    storage: S3Storage, proxy: HttpProxy, reply: Reply
) -> None:
    first = create(storage, KEY, b"base")
    second = update(storage, KEY, b"theirs", first)
    proxy.disturb(reply, method="PUT", times=ALWAYS)
    assert storage.put_if(KEY, b"mine", first) == LostRace()
    assert storage.put_if(KEY, b"mine", None) == LostRace()
    assert fetch(storage, KEY) == Fetched(b"theirs", second)


@pytest.mark.parametrize("reply", [Reply(404), error(404, "NoSuchKey")])
def test_not_found_for_an_update_is_a_lost_race(
    storage: S3Storage, proxy: HttpProxy, reply: Reply
) -> None:
    proxy.disturb(reply, method="PUT")
    assert storage.put_if(KEY, b"mine", Version('"0"')) == LostRace()


def test_not_modified_for_a_create_is_a_lost_race(storage: S3Storage, proxy: HttpProxy) -> None:
    create(storage, KEY, b"theirs")
    proxy.disturb(Reply(304), method="PUT")
    assert storage.put_if(KEY, b"mine", None) == LostRace()


def test_etags_without_quotes_go_back_without_quotes(storage: S3Storage, proxy: HttpProxy) -> None:
    sent: list[str] = []

    def server_without_quotes(request: Request) -> Request:
        sent.extend(value for name, value in request.headers if name.lower() == "if-match")
        return request

    proxy.disturb(AlterRequest(server_without_quotes), method="PUT", nth=2)
    proxy.disturb(with_etag(unquoted), method="PUT")
    version = create(storage, KEY, b"base")
    assert isinstance(storage.put_if(KEY, b"next", version), Written)
    assert sent == [version.token]
    assert '"' not in version.token


@pytest.mark.parametrize("quoted", [False, True])
def test_a_server_that_refuses_the_etag_it_gave_gets_it_in_the_other_spelling(
    storage: S3Storage, proxy: HttpProxy, quoted: bool
) -> None:
    """Ceph refused quoted ETags, and gave no others."""
    version = create(storage, KEY, b"0")
    version = version if quoted else Version(unquoted(version.token))
    proxy.forget()
    rule = proxy.disturb(Reply(412), method="PUT")
    second = update(storage, KEY, b"1", version)
    assert (rule.disturbed, len(proxy.requests_of("PUT"))) == (1, 2)
    # From then on the spelling that works comes first.
    update(storage, KEY, b"2", second)
    assert len(proxy.requests_of("PUT")) == 3


def test_a_server_that_refuses_every_etag_ends_in_a_lost_race(
    storage: S3Storage, proxy: HttpProxy
) -> None:
    version = create(storage, KEY, b"0")
    proxy.forget()
    proxy.disturb(Reply(412), method="PUT", times=ALWAYS)
    assert storage.put_if(KEY, b"1", version) == LostRace()
    assert len(proxy.requests_of("PUT")) == 2


@pytest.mark.parametrize("checksum", [(), (("x-amz-checksum-crc32", "AAAAAA=="),)])
def test_not_modified_is_understood(
    storage: S3Storage, proxy: HttpProxy, checksum: tuple[tuple[str, str], ...]
) -> None:
    version = create(storage, KEY, b"0")
    assert storage.read(KEY, version) == NotModified()
    proxy.disturb(Reply(304, headers=checksum), method="GET")
    assert storage.read(KEY, version) == NotModified()


def test_a_server_that_sends_what_is_known_anyway_is_understood(
    altered: S3Storage, lenient: HttpProxy
) -> None:
    version = create(altered, KEY, b"0")
    lenient.disturb(ignoring("if-none-match"), method="GET")
    assert altered.read(KEY, version) == NotModified()


@pytest.mark.parametrize("bulk", BULKS)
def test_a_server_that_ignores_ranges_is_understood(
    moto: S3Server, moto_bucket: str, lenient: HttpProxy, bulk: Bulk
) -> None:
    storage = storage_on(moto, moto_bucket, lenient.endpoint, bulk=bulk)
    storage.put("chunks/A", b"0123456789")
    lenient.disturb(ignoring("range"), method="GET", times=ALWAYS)
    assert storage.get("chunks/A", Span(2, 5)) == b"234"
    assert storage.get("chunks/A", Last(2)) == b"89"
    with pytest.raises(StorageError, match="past the end"):
        storage.get("chunks/A", Span(10, 11))


def test_a_copy_that_ignored_its_condition_is_taken_back(moto: S3Server, moto_bucket: str) -> None:
    storage = storage_on(moto, moto_bucket)
    first = create(storage, "repo", b"first")
    update(storage, "repo", b"second", first)
    assert storage.copy_if("repo", "overwritten/repo.1", first) == LostRace()
    assert keys(storage) == ["repo"]


@pytest.mark.parametrize("reply", [Reply(501), error(501, "NotImplemented")])
def test_a_store_that_cannot_copy_is_copied_through(
    storage: S3Storage, proxy: HttpProxy, reply: Reply
) -> None:
    first = create(storage, "repo", b"first")
    proxy.disturb(reply, method="PUT", path="*overwritten*")
    copied = storage.copy_if("repo", "overwritten/repo.1", first)
    assert copied == Written(fetch(storage, "overwritten/repo.1").version)
    assert storage.get("overwritten/repo.1") == b"first"


@pytest.mark.parametrize("bulk", BULKS)
def test_the_probe_accepts_a_store_that_honours_conditions_and_leaves_nothing(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk
) -> None:
    storage = storage_on(versitygw, versitygw_bucket, bulk=bulk)
    probe_conditional_writes(storage)
    assert keys(storage) == []


@pytest.mark.parametrize(
    ("header", "why"),
    [("if-none-match", "created twice"), ("if-match", "replaced from a version long gone")],
)
def test_the_probe_refuses_a_store_that_ignores_conditions_and_leaves_nothing(
    moto: S3Server, altered: S3Storage, lenient: HttpProxy, header: str, why: str
) -> None:
    lenient.disturb(ignoring(header), method="PUT", times=ALWAYS)
    with pytest.raises(StorageError, match=why) as caught:
        probe_conditional_writes(altered)
    assert caught.value.kind == ErrorKind.STORAGE_CONFIG
    assert s3_client(moto).list_objects_v2(Bucket=altered.bucket)["KeyCount"] == 0


def test_the_probe_refuses_a_store_that_takes_no_update(
    storage: S3Storage, proxy: HttpProxy
) -> None:
    proxy.disturb(Reply(412), method="PUT", nth=3, times=ALWAYS)
    with pytest.raises(StorageError, match="no conditional write of the present version"):
        probe_conditional_writes(storage)
    assert keys(storage) == []


def test_the_probe_tells_what_it_left_where_it_may_not_delete(
    storage: S3Storage, proxy: HttpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.disturb(error(403, "AccessDenied"), method="DELETE", times=ALWAYS)
    proxy.disturb(error(403, "AccessDenied"), method="POST", times=ALWAYS)
    probe_conditional_writes(storage)
    [left] = keys(storage)
    assert f"the probe {left} could not be deleted" in caplog.text


def test_a_missing_bucket_is_named_as_such(versitygw: S3Server) -> None:
    storage = storage_on(versitygw, "no-such-bucket")
    for act in (
        lambda: storage.read("repo"),
        lambda: storage.get("chunks/A"),
        lambda: list(storage.list()),
        lambda: storage.put("chunks/A", b""),
        lambda: storage.put_if("repo", b"", None),
    ):
        with pytest.raises(StorageError, match="the bucket does not exist") as caught:
            act()
        assert type(caught.value) is StorageError


def test_denied_reads_are_errors_and_not_absent_objects(
    storage: S3Storage, proxy: HttpProxy
) -> None:
    proxy.disturb(error(403, "AccessDenied"), times=ALWAYS)
    for act in (
        lambda: storage.read("repo"),
        lambda: storage.get("chunks/A"),
        lambda: storage.stat("chunks/A"),
        lambda: list(storage.list()),
    ):
        with pytest.raises(StorageError, match="check the permissions") as caught:
            act()
        assert not isinstance(caught.value, ObjectNotFoundError)


def test_deletes_that_failed_are_reported(storage: S3Storage, proxy: HttpProxy) -> None:
    storage.put_many([(f"chunks/{number}", b"") for number in range(3)])
    answer = (
        b"<DeleteResult><Deleted><Key>p/chunks/0</Key></Deleted><Error><Key>p/chunks/1</Key><Code>AccessDenied</Code></Error>"
        b"<Error><Key>p/chunks/2</Key><Code>NoSuchKey</Code></Error></DeleteResult>"
    )
    proxy.disturb(Reply(200, answer), method="POST")
    [failure] = storage.delete_many([f"chunks/{number}" for number in range(3)])
    assert (failure.key, failure.reason) == (
        "chunks/1",
        "the credentials do not allow it (AccessDenied)",
    )


def test_deletes_that_may_succeed_later_are_sent_again(
    storage: S3Storage, proxy: HttpProxy
) -> None:
    storage.put_many([(f"chunks/{number}", b"") for number in range(3)])
    answer = (
        b"<DeleteResult><Deleted><Key>p/chunks/0</Key></Deleted><Error><Key>p/chunks/1</Key><Code>SlowDown</Code></Error>"
        b"<Error><Key>p/chunks/2</Key><Code>InternalError</Code></Error></DeleteResult>"
    )
    proxy.disturb(Reply(200, answer, forward=True), method="POST")
    assert storage.delete_many([f"chunks/{number}" for number in range(3)]) == []
    assert len(proxy.requests_of("POST")) == 2


def test_a_failed_batch_of_deletes_is_reported_key_by_key(
    storage: S3Storage, proxy: HttpProxy
) -> None:
    proxy.disturb(error(403, "AccessDenied"), method="POST")
    failures = storage.delete_many(["chunks/1", "chunks/2"])
    assert [failure.key for failure in failures] == ["chunks/1", "chunks/2"]


def test_a_listing_out_of_order_is_refused(storage: S3Storage, proxy: HttpProxy) -> None:
    item = "<Contents><Key>p/{}</Key><Size>1</Size><LastModified>{}</LastModified></Contents>"
    items = "".join(item.format(key, "2026-11-18T15:31:11.000Z") for key in ("b", "a"))
    proxy.disturb(
        Reply(
            200,
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode(),
        )
    )
    with pytest.raises(StorageError, match="in another order"):
        list(storage.list())


def test_names_that_no_key_has_are_left_out_of_listings(
    storage: S3Storage, proxy: HttpProxy
) -> None:
    item = "<Contents><Key>{}</Key><Size>1</Size><LastModified>{}</LastModified></Contents>"
    names = ("p/", "p/a", "p/a/", "p/a//b", "p/c")
    items = "".join(item.format(name, "2026-11-18T15:31:11.000Z") for name in names)
    proxy.disturb(
        Reply(
            200,
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode(),
        )
    )
    assert keys(storage) == ["a", "c"]
