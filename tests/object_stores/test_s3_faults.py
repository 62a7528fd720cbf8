"""Faults that pass, at the first, a middle and the last byte; and faults that do not pass."""

import random

import pytest

from icechunk_stream.errors import ErrorKind, StorageError
from icechunk_stream.storage import Last, ReadRequest, S3Storage, Span
from icechunk_stream.testing.http_faults import (
    AlterAnswer,
    CutBody,
    DropAnswer,
    DropRequest,
    Fault,
    Reply,
    StallBody,
    TruncateBody,
)
from icechunk_stream.testing.http_messages import Answer
from icechunk_stream.testing.http_proxy import HttpProxy
from icechunk_stream.testing.storage_steps import keys
from tests.object_stores.s3_storages import BULKS, Hourglass, storage_on
from tests.object_stores.servers import S3Server

DATA = random.Random(0).randbytes(200_000)
PLACES = (0, 100_000, -1)
STATUSES = (408, 429, 499, 500, 502, 503, 504)
ERROR_IN_A_SUCCESS = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b"<Error><Code>InternalError</Code><Message>We had a problem.</Message></Error>"
)
ALWAYS = 10_000


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("at", PLACES)
def test_a_body_that_breaks_off_is_fetched_again(
    storage: S3Storage, proxy: HttpProxy, at: int, reset: bool
) -> None:
    storage.put("chunks/A", DATA)
    proxy.disturb(CutBody(at, reset), method="GET", times=3)
    assert storage.get("chunks/A") == DATA
    proxy.calm()
    proxy.disturb(CutBody(at, reset), method="GET", times=3)
    assert storage.get("chunks/A", Span(10, 150_000)) == DATA[10:150_000]
    assert len(proxy.requests_of("GET")) == 8


@pytest.mark.parametrize("at", PLACES)
def test_a_body_that_stalls_is_cut_and_fetched_again(
    storage: S3Storage, proxy: HttpProxy, at: int
) -> None:
    storage.put("chunks/A", DATA)
    proxy.disturb(StallBody(at), method="GET")
    assert storage.get("chunks/A") == DATA
    assert len(proxy.requests_of("GET")) == 2


@pytest.mark.parametrize("at", PLACES)
def test_a_range_that_is_too_short_is_fetched_again(
    storage: S3Storage, proxy: HttpProxy, at: int
) -> None:
    storage.put("chunks/A", DATA)
    proxy.disturb(TruncateBody(at), method="GET", times=3)
    assert storage.get("chunks/A", Span(10, 150_000)) == DATA[10:150_000]


def test_other_bytes_than_asked_for_are_never_taken(storage: S3Storage, proxy: HttpProxy) -> None:
    def shifted(answer: Answer) -> Answer:
        return Answer(206, (("Content-Range", "bytes 0-4/200000"), ("ETag", '"0"')), DATA[:5])

    storage.put("chunks/A", DATA)
    proxy.disturb(AlterAnswer(shifted), method="GET", times=ALWAYS)
    with pytest.raises(StorageError, match=r"could not read 'chunks/A'"):
        storage.get("chunks/A", Span(10, 15))
    with pytest.raises(StorageError, match=r"could not read 'chunks/A'"):
        storage.get("chunks/A", Last(5))


@pytest.mark.parametrize(
    "fault", [DropRequest(), DropRequest(reset=True), DropAnswer(), DropAnswer(reset=True)]
)
def test_requests_that_get_no_answer_are_sent_again(
    storage: S3Storage, proxy: HttpProxy, fault: Fault
) -> None:
    proxy.disturb(fault, method="PUT", times=2)
    proxy.disturb(fault, method="GET", times=2)
    proxy.disturb(fault, method="HEAD", times=2)
    proxy.disturb(fault, method="POST", times=2)
    storage.put("chunks/A", DATA)
    assert storage.get("chunks/A") == DATA
    assert storage.stat("chunks/A") is not None
    proxy.disturb(fault, query="list-type", times=2)
    assert keys(storage) == ["chunks/A"]
    assert storage.delete_many(["chunks/A", "chunks/B"]) == []
    assert keys(storage) == []


@pytest.mark.parametrize("at", [0, 100_000, 199_999])
def test_a_write_that_breaks_off_is_sent_again(
    storage: S3Storage, proxy: HttpProxy, at: int
) -> None:
    proxy.disturb(DropRequest(at), method="PUT", times=3)
    storage.put("chunks/A", DATA)
    assert storage.get("chunks/A") == DATA


@pytest.mark.parametrize("status", STATUSES)
def test_transient_answers_are_overcome(
    storage: S3Storage, proxy: HttpProxy, hourglass: Hourglass, status: int
) -> None:
    proxy.disturb(Reply(status, b"<html>not XML"), nth=1, times=4)
    storage.put("chunks/A", DATA)
    proxy.disturb(Reply(status, b"<html>not XML"), method="GET", times=4)
    assert storage.get_many([ReadRequest("chunks/A", Span(0, 9))]) == [DATA[:9]]
    assert hourglass.pauses == 2 * [0.1, 0.2, 0.4, 0.8]


def test_a_success_that_carries_an_error_is_none(storage: S3Storage, proxy: HttpProxy) -> None:
    fault = Reply(200, ERROR_IN_A_SUCCESS)
    storage.put("chunks/A", b"")
    proxy.disturb(fault, query="list-type", times=2)
    assert keys(storage) == ["chunks/A"]
    proxy.disturb(fault, method="POST", times=2)
    assert storage.delete_many(["chunks/A", "chunks/B"]) == []
    assert keys(storage) == []


@pytest.mark.parametrize("at", [0, 60, -1])
def test_a_listing_that_is_cut_short_is_asked_for_again(
    storage: S3Storage, proxy: HttpProxy, at: int
) -> None:
    storage.put_many([(f"chunks/{number}", b"") for number in range(10)])
    proxy.disturb(TruncateBody(at), query="list-type", times=2)
    proxy.disturb(CutBody(at), query="list-type", nth=3)
    assert keys(storage) == [f"chunks/{number}" for number in range(10)]


@pytest.mark.parametrize("status", [400, 403, 405, 501])
def test_refusals_are_errors_at_once(
    storage: S3Storage, proxy: HttpProxy, hourglass: Hourglass, status: int
) -> None:
    proxy.disturb(Reply(status), times=ALWAYS)
    with pytest.raises(StorageError, match=f"{status}") as caught:
        storage.get("chunks/A")
    assert (caught.value.key, caught.value.kind) == ("chunks/A", ErrorKind.OBJECT_STORE)
    with pytest.raises(StorageError, match=f"{status}"):
        storage.put("chunks/A", b"")
    assert hourglass.pauses == []


def test_tries_end(storage: S3Storage, proxy: HttpProxy, hourglass: Hourglass) -> None:
    proxy.disturb(Reply(503), times=ALWAYS)
    with pytest.raises(StorageError, match="try again"):
        storage.get("chunks/A")
    assert (len(proxy.requests), hourglass.pauses) == (5, [0.1, 0.2, 0.4, 0.8])


def test_a_server_that_is_not_there_is_an_error(versitygw: S3Server, hourglass: Hourglass) -> None:
    for bulk in BULKS:
        storage = storage_on(
            versitygw, "bucket", "http://127.0.0.1:1", bulk=bulk, waiting=hourglass.waiting()
        )
        with pytest.raises(StorageError, match="check endpoint_url and the network"):
            storage.read("repo")
        with pytest.raises(StorageError, match="could not write 'repo'"):
            storage.put_if("repo", b"", None)
        with pytest.raises(StorageError):
            storage.get("chunks/A")


@pytest.mark.parametrize("at", [0, 60, -1])
def test_an_answer_to_deletes_that_is_cut_short_is_asked_for_again(
    storage: S3Storage, proxy: HttpProxy, at: int
) -> None:
    storage.put_many([(f"chunks/{number}", b"") for number in range(10)])
    proxy.disturb(TruncateBody(at), method="POST", times=2)
    assert storage.delete_many([f"chunks/{number}" for number in range(10)]) == []
    assert len(proxy.requests_of("POST")) == 3
