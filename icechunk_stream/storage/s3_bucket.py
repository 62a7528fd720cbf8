"""A bucket of S3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.storage.bucket import Bucket
from icechunk_stream.storage.failures import Failure
from icechunk_stream.storage.s3_delete import Deletion
from icechunk_stream.storage.s3_explain import explain
from icechunk_stream.storage.s3_multipart import MultipartUpload
from icechunk_stream.storage.s3_swap import S3Swaps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from icechunk_stream.errors import StorageError
    from icechunk_stream.storage.s3_clients import S3Clients
    from icechunk_stream.storage.s3_values import Entry, Got, Head, Page, Place
    from icechunk_stream.storage.traits import Traits
    from icechunk_stream.storage.values import (
        ByteRange,
        BytesLike,
        LostRace,
        Span,
        Version,
        Written,
    )


@dataclass(frozen=True, slots=True)
class S3Bucket(Bucket):
    """Reached through botocore, and through obstore where that is faster."""

    clients: S3Clients

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

    @property
    def begins(self) -> bool:
        return self.clients.begins

    async def _begin(self, name: str, span: Span) -> BytesLike | Failure | None:
        return await self.clients.begin(name, span)

    def _try_get(self, name: str, byte_range: ByteRange | None, tries: int) -> Got | Failure:
        return self.clients.get(name, byte_range, tries)

    def _try_read(self, name: str, unless: Version | None) -> Got | Failure:
        return self.clients.requests.get(name, None, unless)

    def _try_head(self, name: str) -> Head | Failure:
        return self.clients.requests.head(name)

    def _try_put(self, name: str, data: BytesLike, traits: Traits, tries: int) -> Version | Failure:
        if len(data) < self.usage.multipart_from:
            return self.clients.put(name, data, traits, tries)
        part_size = self.usage.part_size(len(data))
        upload = MultipartUpload(self.clients.requests, self.retry, self.pieces, part_size)
        return upload.put(name, memoryview(data), traits)

    def _put_if(
        self, place: Place, data: BytesLike, expected: Version | None
    ) -> Written | LostRace | Failure:
        return S3Swaps(self.clients, self.retry).put_if(place, data, expected)

    def _copy_if(
        self, source: Place, target: Place, expected: Version
    ) -> Written | LostRace | Failure:
        return S3Swaps(self.clients, self.retry).copy_if(source, target, expected)

    def _page(self, prefix: str, token: str | None) -> Page:
        page = self.retry.call(lambda _: self.clients.requests.page(prefix, token))
        if isinstance(page, Failure):
            raise self._error(page, "list", "")
        return page

    def _error(self, failure: Failure, verb: str, key: str) -> StorageError:
        return explain(failure, verb, key, self.where)
