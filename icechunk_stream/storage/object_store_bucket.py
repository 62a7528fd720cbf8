"""Reads and writes of one container or bucket, tried again while that may help."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from icechunk_stream.effects import random_uuid
from icechunk_stream.errors import ErrorKind, ObjectNotFoundError, StorageError
from icechunk_stream.storage.conditional import Seen, SingleWrite, write_once
from icechunk_stream.storage.failures import Failure, Trouble
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

    from icechunk_stream.storage.obstore_requests import ObstoreRequests
    from icechunk_stream.storage.obstore_stores import Dialect
    from icechunk_stream.storage.retry import Retry
    from icechunk_stream.storage.s3_settings import Usage
    from icechunk_stream.storage.s3_values import Entry, Head, Place
    from icechunk_stream.storage.values import ByteRange, BytesLike

_ADVICE = {
    Trouble.UNSENT: "check the address, the network and the credentials, then try again",
    Trouble.BUSY: "try again later, or with fewer requests at once",
    Trouble.LOST: "try again; if this goes on, check the network and the time-outs",
    Trouble.MISSING: "check the names of bucket or container, and the prefix",
    Trouble.CONFLICT: "another request has the object, or a name below it, in use",
    Trouble.NOT_MODIFIED: "the server answered a plain request with 304: check for a proxy",
    Trouble.OUT_OF_RANGE: "check that the object is complete",
    Trouble.NO_CREDENTIALS: "give other credentials, or correct what gives them",
    Trouble.REFUSED: "check the names of bucket or container, and the options of the storage",
}


@dataclass(frozen=True, slots=True)
class ObjectStoreBucket:
    """``pieces`` fetches parts of large objects; ``where`` describes the storage in errors."""

    requests: ObstoreRequests
    dialect: Dialect
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
        got = self.retry.call(lambda _: self.requests.get(place.name, unless=unless))
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
        head = self._head(place.name)
        if isinstance(head, Failure):
            raise self._error(head, "look up", place.key)
        return None if isinstance(head, Missing) else head

    def put(self, place: Place, data: BytesLike) -> None:
        traits, body = traits_of(place.key, data), _flat(data)
        done = self.retry.call(lambda _: self.requests.put(place.name, body, traits))
        if isinstance(done, Failure):
            raise self._error(done, "write", place.key)

    def put_if(self, place: Place, data: BytesLike, expected: Version | None) -> Written | LostRace:
        body, write_id = bytes(data), random_uuid()
        traits = traits_of(place.key, body)
        send = partial(self.requests.put_if, place.name, body, traits, expected, write_id)
        look = partial(self._look, place.name)
        outcome = write_once(SingleWrite(place.key, expected, write_id, send, look), self.retry)
        if isinstance(outcome, Failure):
            raise self._error(outcome, "write", place.key)
        return outcome

    def copy_if(self, source: Place, target: Place, expected: Version) -> Written | LostRace:
        """Copy through this process: stores tell no version of what they copy themselves."""
        got = self.retry.call(lambda _: self.requests.get(source.name, expected=expected))
        if isinstance(got, Failure):
            if got.trouble in {Trouble.MISSING, Trouble.CONFLICT}:
                return LostRace()
            raise self._error(got, "copy", source.key)
        if got.version != expected:
            return LostRace()
        traits = traits_of(source.key, got.data)
        done = self.retry.call(lambda _: self.requests.put(target.name, got.data, traits))
        if isinstance(done, Failure):
            raise self._error(done, f"copy {source.key!r} to", target.key)
        return Written(done)

    def list(self, folder: str) -> Iterator[Entry]:
        """Entries in the order of the store."""
        for entry in self.requests.list(folder):
            if isinstance(entry, Failure):
                raise self._error(entry, "list", "")
            yield entry

    def delete(self, names: Sequence[str]) -> dict[str, Failure]:
        """Delete objects; those that could not be, each with its failure.

        A store that fails does not say at which object: halves are tried until it is clear.
        """
        failure = self.retry.call(lambda _: self.requests.delete(names))
        if failure is None:
            return {}
        if len(names) == 1:
            return {} if failure.trouble is Trouble.MISSING else {names[0]: failure}
        if failure.transient or failure.trouble in {Trouble.DENIED, Trouble.NO_CREDENTIALS}:
            return dict.fromkeys(names, failure)
        half = len(names) // 2
        return self.delete(names[:half]) | self.delete(names[half:])

    def _get(self, place: Place, byte_range: ByteRange | None) -> Got:
        got = self.retry.call(lambda _: self.requests.get(place.name, byte_range))
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

    def _look(self, name: str) -> Seen | Missing | Failure:
        head = self._head(name)
        if isinstance(head, Missing | Failure):
            return head
        return Seen(head.version, head.write_id)

    def _head(self, name: str) -> Head | Missing | Failure:
        head = self.retry.call(lambda _: self.requests.head(name))
        missing = isinstance(head, Failure) and head.trouble is Trouble.MISSING
        return Missing() if missing else head

    def _error(self, failure: Failure, verb: str, key: str) -> StorageError:
        """The error of a request that failed for good."""
        named = f"{key!r} in {self.where}" if key else self.where
        advice = _ADVICE.get(failure.trouble, f"check the permissions ({self.dialect.permissions})")
        if failure.trouble is Trouble.MISSING and verb == "read":
            return ObjectNotFoundError(f"there is no object {named}: {advice}", key=key)
        kind = ErrorKind.OBJECT_STORE
        if failure.trouble is Trouble.NO_CREDENTIALS:
            kind = ErrorKind.INVALID_CREDENTIALS
        return StorageError(f"could not {verb} {named}: {failure}: {advice}", kind, key=key)


def _flat(data: BytesLike) -> BytesLike:
    """Bytes whose length is the length of the object."""
    if isinstance(data, memoryview):
        return data.cast("B") if data.c_contiguous else data.tobytes()
    return data
