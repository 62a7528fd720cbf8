"""Large bodies: written with a checksum where the server knows any, read in one request."""

import logging
import random

import pytest

from icechunk_stream.config import ChecksumAlgorithm
from icechunk_stream.errors import StorageError
from icechunk_stream.storage import S3Storage, Span
from icechunk_stream.storage.s3_checksums import checksum_field
from icechunk_stream.testing.http_faults import CutBody, DropAnswer, DropRequest, Fault, Reply
from icechunk_stream.testing.http_messages import Seen
from icechunk_stream.testing.http_proxy import HttpProxy
from icechunk_stream.testing.storage_steps import create
from tests.object_stores.s3_storages import BULKS, Bulk, storage_on
from tests.object_stores.servers import S3Server

LARGE = random.Random(0).randbytes(4 * 2**20 + 1)
CRC32C = "x-amz-checksum-crc32c"

both_clients = pytest.mark.parametrize("bulk", BULKS)


def checksums(proxy: HttpProxy) -> list[set[str]]:
    return [_checksums_of(seen) for seen in proxy.requests_of("PUT")]


def _checksums_of(seen: Seen) -> set[str]:
    return {name for name in seen.headers if name.startswith("x-amz-checksum-")}


def test_a_large_write_carries_a_checksum(storage: S3Storage, proxy: HttpProxy) -> None:
    storage.put("chunks/A", memoryview(LARGE))
    storage.put("chunks/B", LARGE[: 4 * 2**20 - 1])
    first, second = proxy.requests
    _, expected = checksum_field(ChecksumAlgorithm.Crc32c, LARGE)
    assert (first.headers[CRC32C], _checksums_of(second)) == (expected, set())
    assert storage.get("chunks/A") == LARGE


@both_clients
def test_the_checksum_that_was_asked_for_is_the_only_one(
    versitygw: S3Server, versitygw_bucket: str, proxy: HttpProxy, bulk: Bulk
) -> None:
    algorithms = (ChecksumAlgorithm.Sha256, ChecksumAlgorithm.Crc64Nvme)
    for algorithm in algorithms if bulk == "obstore" else algorithms[:1]:
        storage = storage_on(
            versitygw, versitygw_bucket, proxy.endpoint, bulk=bulk, checksum_algorithm=algorithm
        )
        storage.put("chunks/A", LARGE)
        assert checksums(proxy)[-1] == {f"x-amz-checksum-{algorithm.name.lower()}"}


@pytest.mark.parametrize("status", [400, 501])
def test_a_server_that_refuses_checksums_is_sent_none_again(
    storage: S3Storage, proxy: HttpProxy, status: int
) -> None:
    proxy.disturb(Reply(status), method="PUT")
    for number in range(2):
        storage.put(f"chunks/{number}", LARGE)
        assert storage.get(f"chunks/{number}") == LARGE
    assert checksums(proxy) == [{CRC32C}, set(), set()]


def test_a_refusal_for_another_reason_is_an_error(storage: S3Storage, proxy: HttpProxy) -> None:
    proxy.disturb(Reply(400), method="PUT", times=3)
    with pytest.raises(StorageError, match="could not write 'chunks/A'"):
        storage.put("chunks/A", LARGE)
    proxy.calm()
    proxy.forget()
    storage.put("chunks/A", LARGE)
    assert checksums(proxy) == [{CRC32C}]


def test_a_body_that_changed_on_its_way_is_sent_again(storage: S3Storage, proxy: HttpProxy) -> None:
    answer = b"<Error><Code>BadDigest</Code><Message>no match</Message></Error>"
    proxy.disturb(Reply(400, answer), method="PUT")
    storage.put("chunks/A", LARGE)
    assert checksums(proxy) == [{CRC32C}, {CRC32C}]
    assert storage.get("chunks/A") == LARGE


@pytest.mark.parametrize("fault", [DropAnswer(), DropRequest(2**19), Reply(503)], ids=str)
def test_a_large_write_is_tried_again(storage: S3Storage, proxy: HttpProxy, fault: Fault) -> None:
    proxy.disturb(fault, method="PUT", times=3)
    storage.put("chunks/A", LARGE)
    assert checksums(proxy) == [{CRC32C}] * 4
    assert storage.get("chunks/A") == LARGE


@pytest.mark.parametrize("at", [0, 2**19, -1])
def test_a_large_read_is_tried_again(storage: S3Storage, proxy: HttpProxy, at: int) -> None:
    storage.put("chunks/A", LARGE)
    proxy.disturb(CutBody(at), method="GET", times=2)
    assert storage.get_buffer("chunks/A", Span(1, 4 * 2**20 + 1)) == LARGE[1:]
    assert len(proxy.requests_of("GET")) == 3


@pytest.mark.parametrize("size", [3, len(LARGE)])
def test_logs_hold_no_bodies(
    storage: S3Storage, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    caplog.set_level(logging.DEBUG)
    create(storage, "repo", LARGE[:size])
    assert f"'body': '<{size} bytes>'" in caplog.text
    assert repr(LARGE[:size]) not in caplog.text
    assert len(caplog.text) < 100_000
