"""Single requests through obstore, each sent once; what fails is a value without secrets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from icechunk_stream.storage.failures import Failure, Trouble
from icechunk_stream.storage.obstore_failures import failure_of
from icechunk_stream.storage.obstore_library import keep
from icechunk_stream.storage.s3_values import Entry, Got, Head
from icechunk_stream.storage.traits import WRITE_ID, metadata_name
from icechunk_stream.storage.values import From, Last, Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from icechunk_stream.storage.obstore_stores import Dialect, Opened
    from icechunk_stream.storage.s3_settings import Usage
    from icechunk_stream.storage.traits import Traits
    from icechunk_stream.storage.values import ByteRange, BytesLike, Version

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PAGE = 1000
_COPIED = 64 * 1024
_UNCLEAR = "the answer is no answer of such a store"


class ObstoreRequests:
    """Requests to one store."""

    def __init__(self, opened: Opened, dialect: Dialect, usage: Usage) -> None:
        self._opened = opened
        self._library = opened.library
        self._dialect = dialect
        self._usage = usage
        self._errors = (opened.library.exceptions.BaseError, OSError, ValueError)
        for store in (opened.reader, opened.writer, opened.lister):
            keep(self, store)

    def get(
        self,
        name: str,
        byte_range: ByteRange | None = None,
        unless: Version | None = None,
        expected: Version | None = None,
    ) -> Got | Failure:
        """Bytes of an object that is not in the version ``unless``, and is in ``expected``."""
        if isinstance(byte_range, Last) and not self._dialect.reads_suffixes:
            return self._get_last(name, byte_range)
        options = _range_options(byte_range)
        if unless is not None and self._dialect.has_etag(unless):
            options["if_none_match"] = unless.token
        if expected is not None and self._dialect.has_etag(expected):
            options["if_match"] = expected.token
        try:
            result = self._library.get(self._opened.reader, name, options=options)
            data = _held(result.bytes())
            start, end = result.range
            meta = result.meta
        except self._errors as error:
            return self._failure(error)
        if len(data) != end - start:
            return Failure(Trouble.LOST, detail="the answer was cut short")
        return Got(data, self._dialect.version(meta), meta["size"])

    async def get_async(self, name: str, span: Span) -> BytesLike | Failure | None:
        """Bytes of an object; None where fewer came than it may have: ``get`` tells why."""
        asked = {"start": span.start, "end": span.end}
        try:
            body = await self._library.get_range_async(self._opened.reader, name, **asked)
        except self._errors as error:
            return self._failure(error)
        return _held(body) if len(body) == span.end - span.start else None

    def head(self, name: str) -> Head | Failure:
        try:
            result = self._library.get(self._opened.reader, name, options={"head": True})
            meta, attributes = result.meta, result.attributes
        except self._errors as error:
            return self._failure(error)
        return Head(
            size=meta["size"],
            modified_at=_micros(meta["last_modified"]),
            version=self._dialect.version(meta),
            write_id=attributes.get(metadata_name(WRITE_ID)),
        )

    def put(self, name: str, data: BytesLike, traits: Traits) -> Version | Failure:
        options = {
            "use_multipart": len(data) >= self._usage.multipart_from,
            "chunk_size": self._usage.part_size(len(data)),
            "max_concurrency": self._usage.parallel_pieces,
        }
        return self._put(name, data, self._attributes(traits, None), options)

    def put_if(
        self, name: str, data: bytes, traits: Traits, expected: Version | None, write_id: str
    ) -> Version | Failure:
        """One request, whose outcome is open wherever the server did not tell it."""
        options = {"use_multipart": False, "mode": self._dialect.mode(expected)}
        version = self._put(name, data, self._attributes(traits, write_id), options)
        if isinstance(version, Failure):
            unclear = version.trouble is Trouble.REFUSED and version.status is None
            return Failure(Trouble.LOST, detail=_UNCLEAR) if unclear else version
        return version if version.token else Failure(Trouble.LOST, detail=_UNCLEAR)

    def list(self, folder: str) -> Iterator[Entry | Failure]:
        """Entries below a folder in the order of the store; a failure, if there is one, is last."""
        try:
            pages = self._library.list(self._opened.lister, folder or None, chunk_size=_PAGE)
            for page in pages:
                for meta in page:
                    yield Entry(meta["path"], meta["size"], _micros(meta["last_modified"]))
        except self._errors as error:
            yield self._failure(error)

    def delete(self, names: Sequence[str]) -> Failure | None:
        """Delete objects; at a failure, also at that of an absent one, others may be left."""
        try:
            self._library.delete(self._opened.writer, list(names))
        except self._errors as error:
            return self._failure(error)
        return None

    def _get_last(self, name: str, last: Last) -> Got | Failure:
        head = self.head(name)
        if isinstance(head, Failure):
            return head
        if head.size == 0:
            return Got(b"", head.version, 0)
        return self.get(name, Span(max(0, head.size - last.count), head.size))

    def _put(
        self, name: str, data: BytesLike, attributes: dict[str, str], options: dict[str, Any]
    ) -> Version | Failure:
        try:
            result = self._library.put(
                self._opened.writer, name, data, attributes=attributes, **options
            )
        except self._errors as error:
            return self._failure(error)
        return self._dialect.version(result)

    def _attributes(self, traits: Traits, write_id: str | None) -> dict[str, str]:
        attributes = {}
        if self._usage.use_metadata:
            metadata = dict(traits.metadata) | ({WRITE_ID: write_id} if write_id else {})
            attributes = {metadata_name(key): text for key, text in metadata.items()}
        if traits.content_type is not None:
            attributes["Content-Type"] = traits.content_type
        storage_class = self._usage.classes.of_role(traits.role)
        if storage_class is not None:
            attributes["Storage-Class"] = storage_class
        return attributes

    def _failure(self, error: Exception) -> Failure:
        provider = self._opened.provider
        return (provider and provider.failure) or failure_of(error)


def _held(body: Any) -> BytesLike:  # noqa: ANN401 - obstore's types are stubs only
    """A view spares copying much; a copy of little keeps no larger buffer of obstore's alive."""
    return bytes(body) if len(body) <= _COPIED else memoryview(body)


def _range_options(byte_range: ByteRange | None) -> dict[str, Any]:
    match byte_range:
        case None:
            return {}
        case Span(start, end):
            return {"range": (start, end)}
        case From(start):
            return {"range": {"offset": start}}
        case Last(count):
            return {"range": {"suffix": count}}


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND
