"""Reads that an event loop waits for, and batches that begin in one, over disturbed connections."""

import asyncio
import random

import pytest

import icechunk_stream as ic
from icechunk_stream.errors import FormatError, StorageError
from icechunk_stream.storage import ReadRequest, S3Storage, Span
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
from tests.object_stores.s3_storages import SETTINGS, Hourglass, storage_on
from tests.object_stores.servers import S3Server

DATA = random.Random(0).randbytes(200_000)
SPAN = Span(10, 150_000)
PLACES = (0, 100_000, -1)
CHUNKS = "*/chunks/*"
PASSING: tuple[Fault, ...] = (CutBody(9), Reply(503), TruncateBody(9), DropRequest())
ALWAYS = 10_000


def disturb_every_other(proxy: HttpProxy) -> None:
    """Let reads of chunks meet a fault each, until all of them came."""
    for number, fault in enumerate(PASSING, 1):
        proxy.disturb(fault, method="GET", path=CHUNKS, nth=2 * number)


def awaited(storage: S3Storage, span: Span = SPAN) -> bytes:
    return bytes(asyncio.run(storage.get_async("chunks/A", span)))


@pytest.fixture
def opened(storage: S3Storage, proxy: HttpProxy) -> S3Storage:
    """A storage that has sent requests before."""
    storage.put("chunks/A", DATA)
    proxy.forget()
    return storage


@pytest.mark.parametrize(
    "fault",
    [
        *(CutBody(at, reset) for at in PLACES for reset in (False, True)),
        *(TruncateBody(at) for at in PLACES),
        *(Reply(status) for status in (408, 429, 500, 503)),
        DropRequest(),
        DropAnswer(reset=True),
    ],
    ids=str,
)
def test_what_passes_is_overcome(
    opened: S3Storage, proxy: HttpProxy, hourglass: Hourglass, fault: Fault
) -> None:
    proxy.disturb(fault, method="GET", times=3)
    assert awaited(opened) == DATA[10:150_000]
    # A range that came too short is asked for anew before anybody waits.
    pauses = hourglass.pauses
    assert pauses in ([0.1, 0.2, 0.4], [0.1, 0.2])
    assert len(proxy.requests_of("GET")) == 4


@pytest.mark.parametrize("at", PLACES)
def test_a_body_that_stalls_is_cut_and_fetched_again(
    opened: S3Storage, proxy: HttpProxy, at: int
) -> None:
    proxy.disturb(StallBody(at), method="GET")
    assert awaited(opened) == DATA[10:150_000]
    assert len(proxy.requests_of("GET")) == 2


def test_tries_end(opened: S3Storage, proxy: HttpProxy, hourglass: Hourglass) -> None:
    proxy.disturb(Reply(503), times=ALWAYS)
    with pytest.raises(StorageError, match="try again") as caught:
        awaited(opened)
    assert caught.value.key == "chunks/A"
    assert (len(proxy.requests), hourglass.pauses) == (5, [0.1, 0.2, 0.4, 0.8])


def test_refusals_are_errors_at_once(
    opened: S3Storage, proxy: HttpProxy, hourglass: Hourglass
) -> None:
    proxy.disturb(Reply(403), times=ALWAYS)
    with pytest.raises(StorageError, match="403"):
        awaited(opened)
    assert hourglass.pauses == []


def test_other_bytes_than_asked_for_are_never_taken(opened: S3Storage, proxy: HttpProxy) -> None:
    def shifted(answer: Answer) -> Answer:
        return Answer(206, (("Content-Range", "bytes 0-4/200000"), ("ETag", '"0"')), DATA[:5])

    proxy.disturb(AlterAnswer(shifted), method="GET", times=ALWAYS)
    with pytest.raises(StorageError, match="could not read 'chunks/A'"):
        awaited(opened, Span(10, 15))


def test_the_faults_of_a_batch_pass_one_by_one(opened: S3Storage, proxy: HttpProxy) -> None:
    spans = [Span(start, start + 20_000) for start in range(0, 180_000, 20_000)]
    disturb_every_other(proxy)
    found = opened.get_many([ReadRequest("chunks/A", span) for span in spans])
    assert found == [DATA[span.start : span.end] for span in spans]
    assert len(proxy.requests_of("GET", CHUNKS)) == len(spans) + len(PASSING)


def test_a_read_that_nobody_awaits_any_more_gives_its_turn_back(
    versitygw: S3Server, versitygw_bucket: str, proxy: HttpProxy
) -> None:
    storage = storage_on(versitygw, versitygw_bucket, proxy.endpoint, concurrency=1)
    storage.put("chunks/A", DATA)
    proxy.disturb(StallBody(9), method="GET")

    async def read() -> bytes:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(storage.get_async("chunks/A", SPAN), 0.1)
        return bytes(await storage.get_async("chunks/A", SPAN))

    assert asyncio.run(read()) == DATA[10:150_000]


def test_an_array_is_read_over_disturbed_connections(
    versitygw: S3Server, versitygw_bucket: str, proxy: HttpProxy
) -> None:
    zarr = pytest.importorskip("zarr")
    storage = storage_on(versitygw, versitygw_bucket, proxy.endpoint, settings=SETTINGS)
    session = ic.Repository.create(storage).writable_session("main")
    values = random.Random(1).randbytes(100_000)
    array = zarr.create_array(session.store, shape=100_000, chunks=10_000, dtype="u1")
    array[:] = list(values)
    session.commit("values")
    reader = ic.Repository.open(storage).readonly_session("main").store
    disturb_every_other(proxy)
    proxy.forget()
    assert bytes(zarr.open_array(reader, mode="r")[:]) == values
    assert len(proxy.requests_of("GET", CHUNKS)) == 10 + len(PASSING)


def test_a_cut_chunk_is_an_error_and_never_short_data(storage: S3Storage) -> None:
    session = ic.Repository.create(storage).writable_session("main")
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(session.store, shape=5000, chunks=5000, dtype="u1", compressors=None)
    array[:] = 7
    session.commit("values")
    (chunk,) = (info.key for info in storage.list("chunks/") if info.size == 5000)
    storage.put(chunk, bytes(4999))
    reader = ic.Repository.open(storage).readonly_session("main").store
    with pytest.raises(FormatError, match="4999 of the 5000 bytes") as caught:
        zarr.open_array(reader, mode="r")[:]
    assert caught.value.key == chunk
