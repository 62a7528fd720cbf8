"""Conditional writes to one bucket: by ETag, each with an id of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from icechunk_stream.effects import random_uuid
from icechunk_stream.storage.conditional import Seen, SingleWrite, write_once
from icechunk_stream.storage.failures import Failure, Trouble
from icechunk_stream.storage.s3_delete import Deletion
from icechunk_stream.storage.s3_values import Condition
from icechunk_stream.storage.traits import traits_of
from icechunk_stream.storage.values import LostRace, Missing, Version, Written

if TYPE_CHECKING:
    from icechunk_stream.storage.retry import Retry
    from icechunk_stream.storage.s3_clients import S3Clients
    from icechunk_stream.storage.s3_values import Place
    from icechunk_stream.storage.values import BytesLike


@dataclass(frozen=True, slots=True)
class S3Swaps:
    """Swaps and conditional copies through botocore."""

    clients: S3Clients
    retry: Retry

    def put_if(
        self, place: Place, data: BytesLike, expected: Version | None
    ) -> Written | LostRace | Failure:
        body, write_id = bytes(data), random_uuid()
        if expected is None:
            return write_once(self._write(place, body, write_id, None, None), self.retry)
        given, other = _spellings(expected.token)
        if self.clients.flips_etags:
            given, other = other, given
        second = self._write(place, body, write_id, expected, other)
        first = self._write(place, body, write_id, expected, given, respell=second)
        return write_once(first, self.retry)

    def _write(
        self,
        place: Place,
        body: bytes,
        write_id: str,
        expected: Version | None,
        etag: str | None,
        respell: SingleWrite | None = None,
    ) -> SingleWrite:
        return SingleWrite(
            key=place.key,
            expected=expected,
            write_id=write_id,
            send=partial(self._send, place, body, Condition(etag, write_id), expected),
            look=partial(self._look, place.name, expected),
            respell=respell,
        )

    def _send(
        self, place: Place, body: bytes, condition: Condition, expected: Version | None
    ) -> Version | Failure:
        traits = traits_of(place.key, body)
        version = self.clients.requests.put(place.name, body, traits, condition)
        if isinstance(version, Failure):
            return version
        if expected is not None:
            self.clients.flips_etags = condition.etag != expected.token
        if not version.token:
            return Failure(Trouble.LOST, detail="the server told no ETag")
        return version

    def _look(self, name: str, expected: Version | None) -> Seen | Missing | Failure:
        head = self.retry.call(lambda _: self.clients.requests.head(name))
        if isinstance(head, Failure):
            return Missing() if head.trouble is Trouble.MISSING else head
        same = expected is not None and _bare(head.version) == _bare(expected)
        return Seen(expected if same and expected else head.version, head.write_id)

    def copy_if(
        self, source: Place, target: Place, expected: Version
    ) -> Written | LostRace | Failure:
        """Copy within the store; where it cannot tell what it copied, through this process."""
        requests = self.clients.requests
        copied = self.retry.call(lambda _: requests.copy(source.name, target.name, expected.token))
        match copied:
            case Version() if _bare(copied) == _bare(expected):
                return Written(copied)
            case Failure(Trouble.CONFLICT | Trouble.MISSING):
                return LostRace()
            case Failure() if not _is_unsupported(copied):
                return copied
            case _:
                return self._copy_again(source, target, expected, copied)

    def _copy_again(
        self, source: Place, target: Place, expected: Version, copied: Version | Failure
    ) -> Written | LostRace | Failure:
        outcome = self._copy_through(source, target, expected)
        if isinstance(copied, Version) and isinstance(outcome, LostRace):
            # The store ignored the condition, and nobody but this call knows of the copy.
            Deletion(self.clients.requests, [target.name]).run(self.retry)
        return outcome

    def _copy_through(
        self, source: Place, target: Place, expected: Version
    ) -> Written | LostRace | Failure:
        requests = self.clients.requests
        got = self.retry.call(lambda _: requests.get(source.name, None))
        if isinstance(got, Failure):
            return LostRace() if got.trouble is Trouble.MISSING else got
        if _bare(got.version) != _bare(expected):
            return LostRace()
        traits = traits_of(source.key, got.data)
        written = self.retry.call(lambda _: requests.put(target.name, got.data, traits))
        return written if isinstance(written, Failure) else Written(written)


def _is_unsupported(failure: Failure) -> bool:
    return failure.trouble is Trouble.REFUSED and failure.status in {400, 405, 501}


def _bare(version: Version) -> str:
    """Some servers quote ETags in some answers only."""
    return version.token.strip('"')


def _spellings(token: str) -> tuple[str, str]:
    """An ETag as it was given, and in the other way: with quotes, or without."""
    return token, token.strip('"') if token.startswith('"') else f'"{token}"'
