"""What requests look like on the wire: one round trip, and every option in its place."""

from collections.abc import Iterator
from inspect import signature
from typing import Any

import icechunk
import pytest

import icechunk_stream.storage
from icechunk_stream.config import (
    ChecksumAlgorithm,
    StorageConcurrencySettings,
    StorageSettings,
)
from icechunk_stream.credentials import S3Anonymous
from icechunk_stream.errors import InvalidInputError, ReadOnlyError, StorageError
from icechunk_stream.storage import (
    S3Access,
    S3Storage,
    Span,
    r2_storage,
    tigris_storage,
)
from icechunk_stream.storage.base import Storage
from icechunk_stream.storage.s3_session import S3Session
from icechunk_stream.storage.s3_settings import Timeouts
from icechunk_stream.testing.http_faults import DropAnswer, Reply
from icechunk_stream.testing.http_messages import Seen
from icechunk_stream.testing.http_proxy import HttpProxy
from icechunk_stream.testing.storage_steps import create, keys, update
from tests.object_stores.buckets import s3_client
from tests.object_stores.s3_storages import BULKS, Bulk, storage_on
from tests.object_stores.servers import S3Server

HEAD = b"ICE\xf0\x9f\xa7\x8aCHUNK" + b"ics-0.1.0".ljust(24)
SNAPSHOT = HEAD + b"\x02\x01\x01" + b"zstd"
REPO = HEAD + b"\x02\x06\x01" + b"zstd"
TRAITS = {"icclient": "ics-0.1.0", "icspecver": "2", "iccompalg": "zstd"}

both_clients = pytest.mark.parametrize("bulk", BULKS)


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[HttpProxy]:
    with HttpProxy(moto.endpoint) as proxy:
        yield proxy


def write_everything(storage: Storage) -> None:
    storage.put("chunks/A", b"0")
    storage.put("snapshots/A", SNAPSHOT)
    storage.put("transactions/A", b"")
    storage.put("manifests/A", b"")
    storage.put("refs/tag.a/ref.json.deleted", b"")
    version = create(storage, "repo", REPO)
    update(storage, "repo", REPO + b"1", version)
    create(storage, "refs/branch.main/ref.json", b"{}")
    create(storage, "config.yaml", b"{}")


def read_everything(storage: Storage) -> None:
    storage.get("chunks/A", Span(0, 1))
    storage.get("snapshots/A")
    storage.read("repo")
    storage.stat("repo")
    keys(storage)


def metadata(seen: Seen) -> dict[str, str]:
    start = "x-amz-meta-"
    return {k.removeprefix(start): v for k, v in seen.headers.items() if k.startswith(start)}


@both_clients
def test_a_small_write_is_one_round_trip(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk
) -> None:
    with HttpProxy(versitygw.endpoint) as proxy:
        storage = storage_on(versitygw, versitygw_bucket, proxy.endpoint, bulk=bulk)
        storage.put_many([(f"chunks/{size}", bytes(size)) for size in (0, 1, 64_000)])
        storage.put("chunks/A", bytearray(64_000))
        version = create(storage, "repo", bytes(64_000))
        update(storage, "repo", b"0", version)
        assert [seen.round_trips for seen in proxy.requests] == [1] * 6
        assert not any(seen.expects_continue for seen in proxy.requests)


def test_a_listing_is_one_request_a_thousand_keys(
    versitygw: S3Server, versitygw_bucket: str
) -> None:
    with HttpProxy(versitygw.endpoint) as proxy:
        storage = storage_on(versitygw, versitygw_bucket, proxy.endpoint)
        storage.put_many([(f"chunks/{number}", b"") for number in range(1001)])
        proxy.forget()
        assert len(keys(storage)) == 1001
        assert storage.delete_many([f"chunks/{number}" for number in range(1001)]) == []
        assert [seen.method for seen in proxy.requests].count("GET") == 2
        assert len(proxy.requests_of("POST")) == 1
        assert len(proxy.requests_of("DELETE")) == 1


@both_clients
def test_a_conditional_write_is_sent_once(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk
) -> None:
    with HttpProxy(versitygw.endpoint) as proxy:
        storage = storage_on(versitygw, versitygw_bucket, proxy.endpoint, bulk=bulk)
        proxy.disturb(DropAnswer(), method="PUT")
        create(storage, "repo", b"0")
        assert [seen.method for seen in proxy.requests] == ["PUT", "HEAD"]


@both_clients
def test_metadata_files_are_described(
    moto: S3Server, moto_bucket: str, proxy: HttpProxy, bulk: Bulk
) -> None:
    write_everything(storage_on(moto, moto_bucket, proxy.endpoint, bulk=bulk))
    [snapshot] = proxy.requests_of("PUT", "*/snapshots/*")
    assert metadata(snapshot) == TRAITS | {"icfiletype": "snapshot"}
    created, updated = proxy.requests_of("PUT", "*/p/repo")
    described = TRAITS | {"icfiletype": "repo-info"}
    assert metadata(created) == described | {
        "icechunkwriteid": metadata(created)["icechunkwriteid"]
    }
    assert metadata(created)["icechunkwriteid"] != metadata(updated)["icechunkwriteid"]
    for path in ("*/chunks/*", "*.deleted"):
        [seen] = proxy.requests_of("PUT", path)
        assert metadata(seen) == {}
    types = {
        path: proxy.requests_of("PUT", path)[0].headers.get("content-type")
        for path in ("*/ref.json", "*/config.yaml")
    }
    assert types == {"*/ref.json": "application/json", "*/config.yaml": "application/yaml"}


@both_clients
def test_metadata_can_be_left_out(
    moto: S3Server, moto_bucket: str, proxy: HttpProxy, bulk: Bulk
) -> None:
    settings = StorageSettings(unsafe_use_metadata=False)
    write_everything(storage_on(moto, moto_bucket, proxy.endpoint, bulk=bulk, settings=settings))
    assert [metadata(seen) for seen in proxy.requests_of("PUT")] == [{}] * 9


@both_clients
def test_storage_classes_follow_the_kind_of_object(
    moto: S3Server, moto_bucket: str, proxy: HttpProxy, bulk: Bulk
) -> None:
    settings = StorageSettings(
        storage_class="STANDARD_IA",
        metadata_storage_class="INTELLIGENT_TIERING",
        chunks_storage_class="GLACIER_IR",
    )
    write_everything(storage_on(moto, moto_bucket, proxy.endpoint, bulk=bulk, settings=settings))
    classes = {
        seen.path.removeprefix(f"/{moto_bucket}/p/"): seen.headers.get("x-amz-storage-class")
        for seen in proxy.requests_of("PUT")
    }
    metadata_files = ("snapshots/A", "transactions/A", "manifests/A")
    other = ("repo", "config.yaml", "refs/branch.main/ref.json", "refs/tag.a/ref.json.deleted")
    assert classes == (
        {"chunks/A": "GLACIER_IR"}
        | dict.fromkeys(metadata_files, "INTELLIGENT_TIERING")
        | dict.fromkeys(other, "STANDARD_IA")
    )


@both_clients
def test_the_requester_pays_for_everything(
    moto: S3Server, moto_bucket: str, proxy: HttpProxy, bulk: Bulk
) -> None:
    storage = storage_on(moto, moto_bucket, proxy.endpoint, bulk=bulk, requester_pays=True)
    write_everything(storage)
    read_everything(storage)
    storage.delete_many(["chunks/A", "snapshots/A"])
    payers = {seen.headers.get("x-amz-request-payer") for seen in proxy.requests}
    assert payers == {"requester"}


@both_clients
@pytest.mark.parametrize("algorithm", ChecksumAlgorithm)
def test_writes_carry_the_checksum_asked_for(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk, algorithm: ChecksumAlgorithm
) -> None:
    with HttpProxy(versitygw.endpoint) as proxy:
        storage = storage_on(
            versitygw, versitygw_bucket, proxy.endpoint, bulk=bulk, checksum_algorithm=algorithm
        )
        write_everything(storage)
        read_everything(storage)
        header = f"x-amz-checksum-{algorithm.name.lower()}"
        assert [header in seen.headers for seen in proxy.requests_of("PUT")] == [True] * 9


@both_clients
def test_by_default_writes_carry_no_checksum(
    moto: S3Server, moto_bucket: str, proxy: HttpProxy, bulk: Bulk
) -> None:
    """Some providers reject them; a signed request holds a digest of its body anyway."""
    write_everything(storage_on(moto, moto_bucket, proxy.endpoint, bulk=bulk))
    headers = {name for seen in proxy.requests_of("PUT") for name in seen.headers}
    assert not {name for name in headers if name.startswith("x-amz-checksum")}
    assert "x-amz-content-sha256" in headers


@both_clients
def test_headers_go_with_reads_and_with_writes(
    moto: S3Server, moto_bucket: str, proxy: HttpProxy, bulk: Bulk
) -> None:
    storage = storage_on(
        moto,
        moto_bucket,
        proxy.endpoint,
        bulk=bulk,
        read_headers=(("x-read", "r"),),
        write_headers=(("x-amz-acl", "bucket-owner-full-control"),),
    )
    write_everything(storage)
    reads_after = len(proxy.requests)
    read_everything(storage)
    writes, reads = proxy.requests[:reads_after], proxy.requests[reads_after:]
    assert {seen.headers.get("x-amz-acl") for seen in writes} == {"bucket-owner-full-control"}
    assert {seen.headers.get("x-read") for seen in writes} == {None}
    assert {seen.headers.get("x-read") for seen in reads} == {"r"}
    assert {seen.headers.get("x-amz-acl") for seen in reads} == {None}


@both_clients
def test_large_spans_are_fetched_in_pieces(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk
) -> None:
    settings = StorageSettings(concurrency=StorageConcurrencySettings(4, 1000))
    data = bytes(range(250)) * 100
    with HttpProxy(versitygw.endpoint) as proxy:
        storage = storage_on(
            versitygw, versitygw_bucket, proxy.endpoint, bulk=bulk, settings=settings
        )
        storage.put("chunks/A", data)
        assert storage.get("chunks/A", Span(5, 1005)) == data[5:1005]
        assert len(proxy.requests_of("GET")) == 1
        assert storage.get("chunks/A", Span(5, 2**40)) == data[5:]
        assert len(proxy.requests_of("GET")) == 1 + 1 + 4
        assert storage.get("chunks/A", Span(24_999, 2**40)) == data[24_999:]
        with pytest.raises(StorageError, match="past the end"):
            storage.get("chunks/A", Span(25_000, 2**40))
        tasks = [storage.submit("chunks/A", Span(number, 25_000)) for number in range(100)]
        assert [task.result(60) for task in tasks] == [data[number:] for number in range(100)]


@both_clients
@pytest.mark.parametrize("checksum", [None, ChecksumAlgorithm.Crc32, ChecksumAlgorithm.Sha256])
def test_large_objects_are_written_in_parts(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk, checksum: ChecksumAlgorithm | None
) -> None:
    settings = StorageSettings(
        concurrency=StorageConcurrencySettings(3, 2**20),
        minimum_size_for_multipart_upload=6 * 2**20,
        chunks_storage_class="STANDARD",
    )
    data = bytes(range(256)) * 2**16
    with HttpProxy(versitygw.endpoint) as proxy:
        storage = storage_on(
            versitygw,
            versitygw_bucket,
            proxy.endpoint,
            bulk=bulk,
            settings=settings,
            checksum_algorithm=checksum,
        )
        storage.put("chunks/small", data[: 6 * 2**20 - 1])
        assert len(proxy.requests) == 1
        proxy.disturb(Reply(503), query="partNumber=2")
        storage.put("chunks/large", memoryview(data))
        assert storage.get("chunks/large") == data
        uploads = s3_client(versitygw).list_multipart_uploads(Bucket=versitygw_bucket)
        assert uploads.get("Uploads", []) == []


def test_an_upload_whose_last_answer_is_lost_is_found(
    versitygw: S3Server, versitygw_bucket: str
) -> None:
    settings = StorageSettings(minimum_size_for_multipart_upload=2**20)
    with HttpProxy(versitygw.endpoint) as proxy:
        storage = storage_on(
            versitygw, versitygw_bucket, proxy.endpoint, bulk="boto3", settings=settings
        )
        proxy.disturb(DropAnswer(), method="POST", query="uploadId")
        storage.put("chunks/A", bytes(2**20))
        assert storage.get("chunks/A") == bytes(2**20)


def test_an_upload_that_fails_leaves_no_parts(versitygw: S3Server, versitygw_bucket: str) -> None:
    settings = StorageSettings(minimum_size_for_multipart_upload=2**20)
    with HttpProxy(versitygw.endpoint) as proxy:
        storage = storage_on(
            versitygw, versitygw_bucket, proxy.endpoint, bulk="boto3", settings=settings
        )
        proxy.disturb(Reply(403), query="partNumber=2", times=100)
        with pytest.raises(StorageError, match="check the permissions"):
            storage.put("chunks/A", bytes(30 * 2**20))
        uploads = s3_client(versitygw).list_multipart_uploads(Bucket=versitygw_bucket)
        assert uploads.get("Uploads", []) == []
        assert keys(storage) == []


def test_an_endpoint_without_encryption_has_to_be_allowed() -> None:
    with pytest.raises(InvalidInputError, match="pass allow_http=True"):
        S3Access(endpoint_url="http://localhost:9000")
    assert S3Access(endpoint_url="https://localhost:9000").allow_http is False


@pytest.mark.parametrize("url", ["localhost:9000", "ftp://localhost", "https://", "//host"])
def test_what_is_no_endpoint_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="must be a URL"):
        S3Access(endpoint_url=url)


@pytest.mark.compat
@pytest.mark.parametrize("name", ["s3_storage", "tigris_storage", "r2_storage"])
def test_signatures_are_those_of_the_reference_library(name: str) -> None:
    def parameters(library: Any) -> dict[str, Any]:
        found = signature(getattr(library, name)).parameters.values()
        return {parameter.name: parameter.default for parameter in found}

    assert parameters(icechunk_stream.storage) == parameters(icechunk)


def test_tigris_is_pinned_to_its_region(moto: S3Server, moto_bucket: str, proxy: HttpProxy) -> None:
    arguments: dict[str, Any] = {
        "bucket": moto_bucket,
        "prefix": "p",
        "endpoint_url": proxy.endpoint,
        "allow_http": True,
        "access_key_id": moto.access_key_id,
        "secret_access_key": moto.secret_access_key,
    }
    storage = tigris_storage(**arguments, region="iad", write_headers={"x-mine": "1"})
    storage.put("chunks/A", b"0")
    storage.get("chunks/A")
    put, get = proxy.requests
    pinned = {"x-tigris-regions": "iad", "x-tigris-consistent": "true"}
    assert pinned.items() <= put.headers.items()
    assert (pinned | {"cache-control": "no-cache"}).items() <= get.headers.items()
    assert (put.headers["x-mine"], "cache-control" in put.headers) == ("1", False)

    weak = tigris_storage(**arguments, use_weak_consistency=True)
    assert weak.get("chunks/A") == b"0"
    assert "x-tigris-regions" not in proxy.requests[-1].headers
    for write in (
        lambda: weak.put("chunks/B", b""),
        lambda: weak.put_if("repo", b"", None),
        lambda: weak.delete_many(["chunks/A"]),
    ):
        with pytest.raises(ReadOnlyError, match="read-only"):
            write()
    with pytest.raises(InvalidInputError, match="give the bucket's region"):
        tigris_storage(**arguments)
    there = tigris_storage(bucket="b", prefix="p", region="iad")
    assert there.access.endpoint_url == "https://t3.storage.dev"


def test_r2_is_found_by_its_account() -> None:
    storage = r2_storage(bucket="b", prefix="p/", account_id="acc")
    assert storage.access.endpoint_url == "https://acc.r2.cloudflarestorage.com"
    assert (storage.access.region, storage.access.force_path_style) == ("auto", True)
    assert (storage.bucket, storage.prefix) == ("b", "p")


@pytest.mark.parametrize(
    ("prefix", "bucket", "rest"),
    [("b", "b", ""), ("b/", "b", ""), ("b/x", "b", "x"), ("b//x/", "b", "/x")],
)
def test_without_a_bucket_r2_takes_it_from_the_prefix(prefix: str, bucket: str, rest: str) -> None:
    storage = r2_storage(prefix=prefix, account_id="acc")
    assert (storage.bucket, storage.prefix) == (bucket, rest)


def test_r2_needs_a_server_and_a_bucket() -> None:
    with pytest.raises(InvalidInputError, match="account_id or endpoint_url"):
        r2_storage(bucket="b", prefix="p")
    for prefix in (None, "", "/b/x"):
        with pytest.raises(InvalidInputError, match="needs a bucket"):
            r2_storage(prefix=prefix, account_id="acc")


def test_the_bucket_stands_in_the_host_unless_told_otherwise() -> None:
    def base(**more: Any) -> str:
        session = S3Session(S3Access(**more), S3Anonymous(), Timeouts(1, 1, 1), 1)
        return session.object_base("bucket")

    assert base(region="eu-west-1") == "https://bucket.s3.eu-west-1.amazonaws.com"
    assert base(region="us-east-1") == "https://bucket.s3.amazonaws.com"
    assert base(region="eu-west-1", force_path_style=True) == (
        "https://s3.eu-west-1.amazonaws.com/bucket"
    )
    assert base(endpoint_url="https://t3.storage.dev", region="iad") == (
        "https://bucket.t3.storage.dev"
    )
    for host in ("h.org:9000", "localhost:9000", "127.0.0.1", "[::1]:1"):
        forced = base(endpoint_url=f"https://{host}", region="x", force_path_style=True)
        assert forced == f"https://{host}/bucket"
    for host in ("localhost:9000", "127.0.0.1", "[::1]:1"):
        assert base(endpoint_url=f"https://{host}", region="x") == f"https://{host}/bucket"
    assert base(endpoint_url="https://h.org:9000/s3", region="x") == "https://bucket.h.org:9000/s3"


def test_settings_of_a_repository_fill_gaps() -> None:
    own = StorageSettings(storage_class="STANDARD_IA")
    storage = S3Storage("bucket", "p", settings=own)
    filled = storage.with_settings(
        StorageSettings(storage_class="GLACIER", chunks_storage_class="GLACIER_IR")
    )
    assert (filled.settings.storage_class, filled.settings.chunks_storage_class) == (
        "STANDARD_IA",
        "GLACIER_IR",
    )
    assert storage.settings.chunks_storage_class is None
