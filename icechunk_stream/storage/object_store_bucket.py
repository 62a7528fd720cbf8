"""A container or bucket that is reached through obstore."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from icechunk_stream.effects import random_uuid
from icechunk_stream.errors import ErrorKind, ObjectNotFoundError, StorageError
from icechunk_stream.storage.bucket import Bucket
from icechunk_stream.storage.conditional import Seen, SingleWrite, write_once
from icechunk_stream.storage.failures import Failure, Trouble
from icechunk_stream.storage.traits import traits_of
from icechunk_stream.storage.values import LostRace, Missing, Version, Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from icechunk_stream.storage.obstore_requests import ObstoreRequests
    from icechunk_stream.storage.obstore_stores import Dialect
    from icechunk_stream.storage.s3_values import Entry, Got, Head, Place
    from icechunk_stream.storage.traits import Traits
    from icechunk_stream.storage.values import ByteRange, BytesLike, Span

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
class ObjectStoreBucket(Bucket):
    """All requests are obstore's."""

    requests: ObstoreRequests
    dialect: Dialect

    def list(self, prefix: str) -> Iterator[Entry]:
        """Entries below a folder, in the order of the store."""
        for entry in self.requests.list(prefix):
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

    @property
    def begins(self) -> bool:
        return True

    async def _begin(self, name: str, span: Span) -> BytesLike | Failure | None:
        return await self.requests.get_async(name, span)

    def _try_get(self, name: str, byte_range: ByteRange | None, tries: int) -> Got | Failure:  # noqa: ARG002 - all tries are alike
        return self.requests.get(name, byte_range)

    def _try_read(self, name: str, unless: Version | None) -> Got | Failure:
        return self.requests.get(name, unless=unless)

    def _try_head(self, name: str) -> Head | Failure:
        return self.requests.head(name)

    def _try_put(self, name: str, data: BytesLike, traits: Traits, tries: int) -> Version | Failure:  # noqa: ARG002
        return self.requests.put(name, data, traits)

    def _put_if(
        self, place: Place, data: BytesLike, expected: Version | None
    ) -> Written | LostRace | Failure:
        body, write_id = bytes(data), random_uuid()
        traits = traits_of(place.key, body)
        send = partial(self.requests.put_if, place.name, body, traits, expected, write_id)
        look = partial(self._look, place.name)
        return write_once(SingleWrite(place.key, expected, write_id, send, look), self.retry)

    def _copy_if(
        self, source: Place, target: Place, expected: Version
    ) -> Written | LostRace | Failure:
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
        return done if isinstance(done, Failure) else Written(done)

    def _look(self, name: str) -> Seen | Missing | Failure:
        head = self._look_up(name)
        if isinstance(head, Failure):
            return head
        return Missing() if head is None else Seen(head.version, head.write_id)

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
