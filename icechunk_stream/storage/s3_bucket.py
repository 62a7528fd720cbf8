"""Reads and plain writes of one bucket, tried again while that may help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.storage.failures import Failure, Trouble
from icechunk_stream.storage.s3_delete import Deletion
from icechunk_stream.storage.s3_explain import explain
from icechunk_stream.storage.s3_multipart import MultipartUpload
from icechunk_stream.storage.s3_swap import S3Swaps
from icechunk_stream.storage.s3_values import Got
from icechunk_stream.storage.traits import traits_of
from icechunk_stream.storage.values import (
    Fetched,
    Last,
    LostRace,
    Missing,
    NotModified,
    Span,
    Version,
    Written,
    beyond_the_end,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from icechunk_stream.errors import StorageError
    from icechunk_stream.storage.retry import Retry
    from icechunk_stream.storage.s3_clients import S3Clients
    from icechunk_stream.storage.s3_settings import Usage
    from icechunk_stream.storage.s3_values import Entry, Head, Page, Place
    from icechunk_stream.storage.values import ByteRange, BytesLike


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """``pieces`` fetches and sends parts of large objects; ``where`` describes the storage."""

    clients: S3Clients
    usage: Usage
    retry: Retry
    pieces: ThreadPoolExecutor
    where: str

    def get(self, place: Place, byte_range: ByteRange | None) -> BytesLike:
        match byte_range:
            case Span(start, end) if end - start > self.usage.piece_size:
                return self._get_in_pieces(place, byte_range)
            case _:
                return self._get(place, byte_range).data

    def read(self, place: Place, unless: Version | None) -> Fetched | NotModified | Missing:
        requests = self.clients.requests
        got = self.retry.call(lambda _: requests.get(place.name, None, unless))
        match got:
            case Failure(Trouble.MISSING):
                return Missing()
            case Failure(Trouble.NOT_MODIFIED) if unless is not None:
                return NotModified()
            case Failure():
                raise self._error(got, "read", place.key)
            case Got(data, version):
                return NotModified() if version == unless else Fetched(bytes(data), version)

    def stat(self, place: Place) -> Head | None:
        head = self.retry.call(lambda _: self.clients.requests.head(place.name))
        if not isinstance(head, Failure):
            return head
        if head.trouble is Trouble.MISSING:
            return None
        raise self._error(head, "look up", place.key)

    def put(self, place: Place, data: BytesLike) -> None:
        traits, body = traits_of(place.key, data), _flat(data)

        def attempt(tries: int) -> Version | Failure:
            if len(body) < self.usage.multipart_from:
                return self.clients.put(place.name, body, traits, tries)
            part_size = self.usage.part_size(len(body))
            upload = MultipartUpload(self.clients.requests, self.retry, self.pieces, part_size)
            return upload.put(place.name, memoryview(body), traits)

        done = self.retry.call(attempt)
        if isinstance(done, Failure):
            raise self._error(done, "write", place.key)

    def put_if(self, place: Place, data: BytesLike, expected: Version | None) -> Written | LostRace:
        outcome = S3Swaps(self.clients, self.retry).put_if(place, data, expected)
        if isinstance(outcome, Failure):
            raise self._error(outcome, "write", place.key)
        return outcome

    def copy_if(self, source: Place, target: Place, expected: Version) -> Written | LostRace:
        outcome = S3Swaps(self.clients, self.retry).copy_if(source, target, expected)
        if isinstance(outcome, Failure):
            raise self._error(outcome, f"copy {source.key!r} to", target.key)
        return outcome

    def list(self, prefix: str) -> Iterator[Entry]:
        """Entries in the order in which the store lists them, page by page."""
        token = None
        while True:
            page = self._page(prefix, token)
            yield from page.entries
            token = page.next_token
            if token is None:
                return

    def delete(self, names: Sequence[str]) -> dict[str, Failure]:
        return Deletion(self.clients.requests, names).run(self.retry)

    def _page(self, prefix: str, token: str | None) -> Page:
        page = self.retry.call(lambda _: self.clients.requests.page(prefix, token))
        if isinstance(page, Failure):
            raise self._error(page, "list", "")
        return page

    def _get(self, place: Place, byte_range: ByteRange | None) -> Got:
        got = self.retry.call(lambda tries: self.clients.get(place.name, byte_range, tries))
        if not isinstance(got, Failure):
            return got
        if got.trouble is Trouble.OUT_OF_RANGE and byte_range is not None:
            return self._past_the_end(place, byte_range)
        raise self._error(got, "read", place.key)

    def _past_the_end(self, place: Place, byte_range: ByteRange) -> Got:
        head = self.stat(place)
        if head is None:
            raise self._error(Failure(Trouble.MISSING), "read", place.key)
        if isinstance(byte_range, Last) and head.size == 0:
            return Got(b"", head.version, 0)
        raise beyond_the_end(byte_range, head.size, place.key)

    def _get_in_pieces(self, place: Place, span: Span) -> bytes:
        """The first piece tells how long the object is; the others follow in parallel."""
        size = self.usage.piece_size
        first = self._get(place, Span(span.start, span.start + size))
        start, end = span.start + len(first.data), min(span.end, first.size)
        step = max(size, -(-(end - start) // self.usage.parallel_pieces))
        spans = [Span(at, min(at + step, end)) for at in range(start, end, step)]
        rest = self.pieces.map(lambda piece: self._get(place, piece).data, spans)
        return b"".join([first.data, *rest])

    def _error(self, failure: Failure, verb: str, key: str) -> StorageError:
        return explain(failure, verb, key, self.where)


def _flat(data: BytesLike) -> BytesLike:
    """Bytes whose length is the length of the object."""
    if isinstance(data, memoryview):
        return data.cast("B") if data.c_contiguous else data.tobytes()
    return data
