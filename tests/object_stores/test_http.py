"""Reading a repository from a server of which nothing but HTTP is known."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import icechunk_stream
from icechunk_stream.errors import ErrorKind, ObjectNotFoundError, ReadOnlyError, StorageError
from icechunk_stream.storage import (
    Fetched,
    From,
    Last,
    LocalStorage,
    Missing,
    NotModified,
    ReadRequest,
    Span,
    Version,
)
from icechunk_stream.storage.http import http_storage
from icechunk_stream.storage.object_store import ObjectStoreStorage
from icechunk_stream.testing.http_faults import AlterAnswer, CutBody, Fault, Reply
from icechunk_stream.testing.http_messages import Answer, without
from icechunk_stream.testing.http_proxy import HttpProxy
from tests.object_stores.buckets import s3_client
from tests.object_stores.servers import S3Server

TEN = b"0123456789"
KEY = "refs/tag.é ü/ref.json"


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[HttpProxy]:
    """Before a server that lets everybody read what is public."""
    with HttpProxy(moto.endpoint) as proxy:
        yield proxy


@pytest.fixture
def folder(moto: S3Server, moto_bucket: str) -> str:
    """The address of a folder below the server's, with two objects in it."""
    client = s3_client(moto)
    for name in ("chunks/A", "refs/tag.%C3%A9 %C3%BC/ref.json"):
        client.put_object(Bucket=moto_bucket, Key=f"a b/{name}", Body=TEN, ACL="public-read")
    client.close()
    return f"{moto_bucket}/a%20b"


@pytest.fixture
def storage(proxy: HttpProxy, folder: str) -> ObjectStoreStorage:
    return http_storage(f"{proxy.endpoint}/{folder}", headers={"x-asked-for": "1"})


def test_objects_and_ranges_are_read(storage: ObjectStoreStorage, proxy: HttpProxy) -> None:
    assert storage.get(KEY) == TEN
    assert storage.get("chunks/A", Span(2, 4)) == b"23"
    assert storage.get("chunks/A", From(7)) == b"789"
    assert storage.get("chunks/A", Last(3)) == b"789"
    assert storage.get_many([ReadRequest("chunks/A", Last(1))] * 3) == [b"9"] * 3
    assert {seen.headers["x-asked-for"] for seen in proxy.requests} == {"1"}
    assert proxy.round_trips == 7


def test_absent_objects_and_bytes_are_told_apart(storage: ObjectStoreStorage) -> None:
    assert storage.read("absent") == Missing()
    assert storage.stat("absent") is None
    with pytest.raises(ObjectNotFoundError):
        storage.get("absent")
    with pytest.raises(StorageError, match="past the end") as caught:
        storage.get("chunks/A", Span(10, 12))
    assert caught.value.kind == ErrorKind.INVALID_BYTE_RANGE
    info = storage.stat("chunks/A")
    assert info is not None
    assert info.size == 10


def test_a_known_version_is_not_sent_again(storage: ObjectStoreStorage, proxy: HttpProxy) -> None:
    found = storage.read(KEY)
    assert isinstance(found, Fetched)
    assert storage.read(KEY, found.version) == NotModified()
    assert proxy.requests[-1].status == 304


def test_a_server_without_etags_tells_versions_by_time(
    storage: ObjectStoreStorage, proxy: HttpProxy
) -> None:
    def without_etag(answer: Answer) -> Answer:
        return Answer(answer.status, without(answer.headers, "etag"), answer.body)

    proxy.disturb(AlterAnswer(without_etag), times=9)
    found = storage.read(KEY)
    assert isinstance(found, Fetched)
    assert storage.read(KEY, found.version) == NotModified()


def test_nothing_is_written_deleted_or_listed(storage: ObjectStoreStorage) -> None:
    version = Version('"1"')
    for act in (
        lambda: storage.put("chunks/B", b""),
        lambda: storage.put_if("repo", b"", None),
        lambda: storage.copy_if("chunks/A", "chunks/B", version),
        lambda: storage.delete_many(["chunks/A"]),
        lambda: list(storage.list()),
    ):
        with pytest.raises(ReadOnlyError) as caught:
            act()
        assert caught.value.kind == ErrorKind.READ_ONLY_STORAGE


@pytest.mark.parametrize("fault", [Reply(503), Reply(429), CutBody(5), CutBody(0)], ids=str)
def test_a_read_is_tried_again(storage: ObjectStoreStorage, proxy: HttpProxy, fault: Fault) -> None:
    proxy.disturb(fault)
    assert storage.get("chunks/A") == TEN


def test_a_server_without_ranges_is_refused(storage: ObjectStoreStorage, proxy: HttpProxy) -> None:
    proxy.disturb(Reply(200, TEN, (("Last-Modified", "Wed, 18 Nov 2026 15:37:18 GMT"),)))
    with pytest.raises(StorageError, match="could not read 'chunks/A'"):
        storage.get("chunks/A", Span(2, 4))


def test_a_fixture_reads_as_from_disk(
    fixtures_folder: Path, moto: S3Server, moto_bucket: str
) -> None:
    client = s3_client(moto)
    local = LocalStorage(fixtures_folder / "test-repo-v1")
    for info in local.list():
        data = local.get(info.key)
        client.put_object(Bucket=moto_bucket, Key=f"r/{info.key}", Body=data, ACL="public-read")
    client.close()
    remote = http_storage(f"{moto.endpoint}/{moto_bucket}/r")
    assert refs_of(remote) == refs_of(local)


def refs_of(storage: Any) -> list[str]:
    repository = icechunk_stream.Repository.open(storage)
    return [snapshot.id for snapshot in repository.ancestry(branch="main")]


def test_a_storage_is_pickled(storage: ObjectStoreStorage) -> None:
    copy = pickle.loads(pickle.dumps(storage))
    assert copy == storage
    assert copy.get("chunks/A") == TEN
