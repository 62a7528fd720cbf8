"""What is asked of Google Cloud Storage, and what its answers are taken for.

There is no server here that speaks its protocol: the answers are written down, and that the real
service gives such answers is not tested.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from icechunk_stream.cloud_credentials import GcsBearerCredential
from icechunk_stream.errors import CommitStateUnknownError, ObjectNotFoundError, StorageError
from icechunk_stream.storage import (
    Fetched,
    Last,
    LostRace,
    Missing,
    NotModified,
    ObjectInfo,
    Span,
    Version,
    Written,
)
from icechunk_stream.storage.gcs import gcs_storage
from icechunk_stream.storage.object_store import ObjectStoreStorage
from icechunk_stream.testing.http_faults import DropRequest, Reply
from icechunk_stream.testing.http_messages import Seen
from icechunk_stream.testing.http_proxy import HttpProxy
from tests.object_stores.azure import IMPATIENT
from tests.object_stores.s3_storages import Hourglass
from tests.secret_marker import MARKER

STORED = (
    ("ETag", '"e781568"'),
    ("x-goog-generation", "1700000000000017"),
    ("Last-Modified", "Wed, 18 Nov 2026 15:37:18 GMT"),
)
GENERATION = Version("1700000000000017")
AT = 1_795_016_238_000_000
ALWAYS = 10_000
LISTING = b"""<?xml version='1.0' encoding='UTF-8'?>
<ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>
<Name>bucket</Name><Prefix>p/refs/</Prefix><IsTruncated>false</IsTruncated>
<Contents><Key>p/refs/tag.%C3%A9/ref.json</Key><Generation>1</Generation><Size>34</Size>
<LastModified>2026-11-18T15:37:18.000Z</LastModified><ETag>"1"</ETag></Contents>
<Contents><Key>p/refs/tag.a/ref.json</Key><Generation>2</Generation><Size>35</Size>
<LastModified>2026-11-18T15:37:18.000Z</LastModified><ETag>"2"</ETag></Contents>
</ListBucketResult>"""


@pytest.fixture
def proxy() -> Iterator[HttpProxy]:
    with HttpProxy("http://127.0.0.1:1") as proxy:
        yield proxy


def storage_of(proxy: HttpProxy, **more: Any) -> ObjectStoreStorage:
    if "get_credentials" not in more:
        more["bearer_token"] = MARKER
    config = {"base_url": proxy.endpoint, "allow_http": "true"}
    storage = gcs_storage(bucket="bucket", prefix="p", config=config, **more)
    return ObjectStoreStorage(storage.spec, "p", IMPATIENT, Hourglass().waiting())


@pytest.fixture
def storage(proxy: HttpProxy) -> ObjectStoreStorage:
    return storage_of(proxy)


def only(proxy: HttpProxy) -> Seen:
    [seen] = proxy.requests
    return seen


def test_a_create_asks_for_generation_zero(storage: ObjectStoreStorage, proxy: HttpProxy) -> None:
    proxy.disturb(Reply(200, headers=STORED))
    assert storage.put_if("refs/tag.é/ref.json", b"{}", None) == Written(GENERATION)
    sent = only(proxy)
    assert (sent.method, sent.path) == ("PUT", "/bucket/p/refs/tag.%C3%A9/ref.json")
    assert sent.headers["x-goog-if-generation-match"] == "0"
    assert len(sent.headers["x-goog-meta-icechunkwriteid"]) == 36
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["authorization"] == "***"


def test_an_update_asks_for_the_generation_it_builds_upon(
    storage: ObjectStoreStorage, proxy: HttpProxy
) -> None:
    proxy.disturb(Reply(200, headers=STORED))
    assert storage.put_if("repo", b"2", Version("42")) == Written(GENERATION)
    assert only(proxy).headers["x-goog-if-generation-match"] == "42"


@pytest.mark.parametrize("expected", [None, Version("42")])
def test_a_failed_precondition_is_a_lost_race(
    storage: ObjectStoreStorage, proxy: HttpProxy, expected: Version | None
) -> None:
    proxy.disturb(Reply(412), method="PUT")
    proxy.disturb(Reply(200, headers=STORED), method="HEAD")
    assert storage.put_if("repo", b"2", expected) == LostRace()
    assert [seen.method for seen in proxy.requests] == ["PUT", "HEAD"]


def test_a_lost_answer_without_a_trace_is_unknown(
    storage: ObjectStoreStorage, proxy: HttpProxy
) -> None:
    proxy.disturb(DropRequest(), method="PUT")
    proxy.disturb(Reply(404), method="HEAD")
    with pytest.raises(CommitStateUnknownError, match="may do so yet"):
        storage.put_if("repo", b"1", None)
    assert len(proxy.requests_of("PUT")) == 1


def test_a_read_gives_the_generation_as_version(
    storage: ObjectStoreStorage, proxy: HttpProxy
) -> None:
    proxy.disturb(Reply(200, b"data", STORED), times=3)
    assert storage.read("repo") == Fetched(b"data", GENERATION)
    # Equal bytes have equal ETags there, so that a read is never conditional on one.
    assert storage.read("repo", GENERATION) == NotModified()
    assert storage.read("repo", Version("42")) == Fetched(b"data", GENERATION)
    assert not any("if-none-match" in seen.headers for seen in proxy.requests)


def test_an_absent_object_is_missing(storage: ObjectStoreStorage, proxy: HttpProxy) -> None:
    absent = Reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
    proxy.disturb(absent, times=3)
    assert storage.read("repo") == Missing()
    assert storage.stat("repo") is None
    with pytest.raises(ObjectNotFoundError):
        storage.get("repo")


def test_an_absent_bucket_is_an_error(storage: ObjectStoreStorage, proxy: HttpProxy) -> None:
    proxy.disturb(Reply(404, b"<Error><Code>NoSuchBucket</Code></Error>"), times=ALWAYS)
    with pytest.raises(StorageError, match="NoSuchBucket"):
        storage.read("repo")


def test_ranges_are_asked_for_in_one_request(storage: ObjectStoreStorage, proxy: HttpProxy) -> None:
    ranged = (*STORED, ("Content-Range", "bytes 6-9/10"))
    proxy.disturb(Reply(206, b"6789", ranged), times=2)
    assert storage.get("chunks/A", Last(4)) == b"6789"
    assert storage.get("chunks/A", Span(6, 12)) == b"6789"
    assert [seen.headers["range"] for seen in proxy.requests] == ["bytes=-4", "bytes=6-11"]


def test_a_listing_gives_keys_in_byte_order(storage: ObjectStoreStorage, proxy: HttpProxy) -> None:
    proxy.disturb(Reply(200, LISTING))
    assert list(storage.list("refs/tag.")) == [
        ObjectInfo("refs/tag.a/ref.json", 35, AT),
        ObjectInfo("refs/tag.é/ref.json", 34, AT),
    ]
    sent = only(proxy)
    assert (sent.path, sent.query) == ("/bucket", "list-type=2&prefix=p%2Frefs%2F")


def test_absent_objects_are_deleted_objects(storage: ObjectStoreStorage, proxy: HttpProxy) -> None:
    proxy.disturb(Reply(404), method="DELETE", path="*/absent", times=ALWAYS)
    proxy.disturb(Reply(403), method="DELETE", path="*/held", times=ALWAYS)
    proxy.disturb(Reply(204), method="DELETE", times=ALWAYS)
    assert storage.delete_many(["a", "absent", "b"]) == []
    [failure] = storage.delete_many(["held"])
    assert (failure.key, "credentials do not allow it (403)" in failure.reason) == ("held", True)


def test_headers_of_reads_and_of_writes_go_apart(proxy: HttpProxy) -> None:
    storage = storage_of(
        proxy,
        headers={"x-both": "1", "x-mine": "both"},
        read_headers={"x-read": "1"},
        write_headers={"x-write": "1", "x-mine": "write"},
    )
    proxy.disturb(Reply(200, b"", STORED), times=ALWAYS)
    storage.put("chunks/A", b"")
    storage.get("chunks/A")
    write, read = proxy.requests
    names = ("x-both", "x-mine", "x-read", "x-write")
    assert [write.headers.get(name) for name in names] == ["1", "write", None, "1"]
    assert [read.headers.get(name) for name in names] == ["1", "both", "1", None]


def fetch_token() -> GcsBearerCredential:
    return GcsBearerCredential(MARKER)


def test_a_token_comes_from_a_function(proxy: HttpProxy) -> None:
    storage = storage_of(proxy, get_credentials=fetch_token)
    proxy.disturb(Reply(200, b"1", STORED))
    assert storage.get("chunks/A") == b"1"
    assert only(proxy).headers["authorization"] == "***"


def test_a_storage_class_and_a_small_write_in_one_request(proxy: HttpProxy) -> None:
    storage = storage_of(proxy)
    settings = storage.settings
    settings.chunks_storage_class = "NEARLINE"
    proxy.disturb(Reply(200, headers=STORED), times=2)
    storage.with_settings(settings).put("chunks/A", bytes(64_000))
    assert only(proxy).headers["x-goog-storage-class"] == "NEARLINE"
