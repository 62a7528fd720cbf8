"""Reads and writes of one bucket or container, tried again while that may help."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.storage.failures import Failure, Trouble
from icechunk_stream.storage.s3_values import Got, Head
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
    from icechunk_stream.storage.s3_settings import Usage
    from icechunk_stream.storage.s3_values import Entry, Place
    from icechunk_stream.storage.traits import Traits
    from icechunk_stream.storage.values import ByteRange, BytesLike


@dataclass(frozen=True, slots=True)
class Begun:
    """A read that goes on in a thread: how its first try ended, if it was made, after how long."""

    first: Failure | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Bucket(ABC):
    """``pieces`` fetches parts of large objects; ``where`` describes the storage in errors.

    Backends implement the methods that begin with ``_``: those of them that take ``tries`` send
    one request, and say how often it was sent before.
    """

    usage: Usage
    retry: Retry
    pieces: ThreadPoolExecutor
    where: str

    @abstractmethod
    def list(self, prefix: str) -> Iterator[Entry]:
        """Entries in the order of the store."""

    @abstractmethod
    def delete(self, names: Sequence[str]) -> dict[str, Failure]:
        """Delete objects; those that could not be, each with its failure."""

    @property
    @abstractmethod
    def begins(self) -> bool:
        """Whether reads can be begun in an event loop."""

    @abstractmethod
    async def _begin(self, name: str, span: Span) -> BytesLike | Failure | None:
        """The first try of a read in an event loop; None where a thread must make it."""

    @abstractmethod
    def _try_get(self, name: str, byte_range: ByteRange | None, tries: int) -> Got | Failure: ...

    @abstractmethod
    def _try_read(self, name: str, unless: Version | None) -> Got | Failure: ...

    @abstractmethod
    def _try_head(self, name: str) -> Head | Failure: ...

    @abstractmethod
    def _try_put(
        self, name: str, data: BytesLike, traits: Traits, tries: int
    ) -> Version | Failure: ...

    @abstractmethod
    def _put_if(
        self, place: Place, data: BytesLike, expected: Version | None
    ) -> Written | LostRace | Failure: ...

    @abstractmethod
    def _copy_if(
        self, source: Place, target: Place, expected: Version
    ) -> Written | LostRace | Failure: ...

    @abstractmethod
    def _error(self, failure: Failure, verb: str, key: str) -> StorageError:
        """The error of a request that failed for good."""

    def get(
        self, place: Place, byte_range: ByteRange | None, begun: Begun | None = None
    ) -> BytesLike:
        if isinstance(byte_range, Span) and self._is_large(byte_range):
            return self._get_in_pieces(place, byte_range)
        return self._get(place, byte_range, begun).data

    async def begin(self, place: Place, byte_range: ByteRange | None) -> BytesLike | Begun:
        """Try once in an event loop; ``get`` goes on where that is not enough."""
        if not isinstance(byte_range, Span) or self._is_large(byte_range):
            return Begun()
        clock = self.retry.waiting.monotonic
        since = clock()
        first = await self._begin(place.name, byte_range)
        if first is None or isinstance(first, Failure):
            return Begun(first, clock() - since)
        return first

    def read(self, place: Place, unless: Version | None) -> Fetched | NotModified | Missing:
        got = self.retry.call(lambda _: self._try_read(place.name, unless))
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
        head = self._look_up(place.name)
        if isinstance(head, Failure):
            raise self._error(head, "look up", place.key)
        return head

    def put(self, place: Place, data: BytesLike) -> None:
        traits, body = traits_of(place.key, data), _flat(data)
        done = self.retry.call(lambda tries: self._try_put(place.name, body, traits, tries))
        if isinstance(done, Failure):
            raise self._error(done, "write", place.key)

    def put_if(self, place: Place, data: BytesLike, expected: Version | None) -> Written | LostRace:
        outcome = self._put_if(place, data, expected)
        if isinstance(outcome, Failure):
            raise self._error(outcome, "write", place.key)
        return outcome

    def copy_if(self, source: Place, target: Place, expected: Version) -> Written | LostRace:
        outcome = self._copy_if(source, target, expected)
        if isinstance(outcome, Failure):
            raise self._error(outcome, f"copy {source.key!r} to", target.key)
        return outcome

    def _look_up(self, name: str) -> Head | Failure | None:
        """An object's head; None is that of none."""
        head = self.retry.call(lambda _: self._try_head(name))
        missing = isinstance(head, Failure) and head.trouble is Trouble.MISSING
        return None if missing else head

    def _is_large(self, span: Span) -> bool:
        return span.end - span.start > self.usage.piece_size

    def _get(self, place: Place, byte_range: ByteRange | None, begun: Begun | None = None) -> Got:
        begun = begun or Begun()

        def attempt(tries: int) -> Got | Failure:
            known = begun.first if tries == 0 else None
            return known or self._try_get(place.name, byte_range, tries)

        got = self.retry.call(attempt, begun.seconds)
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


def _flat(data: BytesLike) -> BytesLike:
    """Bytes whose length is the length of the object."""
    if isinstance(data, memoryview):
        return data.cast("B") if data.c_contiguous else data.tobytes()
    return data
