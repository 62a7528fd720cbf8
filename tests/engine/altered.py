"""Storages in memory that something happens to: another writer comes between, an answer is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.errors import CommitStateUnknownError
from icechunk_stream.storage import MemoryStorage, ObjectInfo, Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.storage import BytesLike, LostRace, Version, Written


class Interrupted(MemoryStorage):
    """Runs ``before`` once, when a conditional write of ``key`` is on its way."""

    def __init__(self, key: str, before: Callable[[Storage], None]) -> None:
        super().__init__()
        self.key = key
        self.before: Callable[[Storage], None] | None = before

    def _put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        if key == self.key and self.before is not None:
            before, self.before = self.before, None
            before(self)
        return super()._put_if(key, data, expected)


class InterruptedAfter(Interrupted):
    """The same once the write is done."""

    def _put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        after, self.before = self.before if key == self.key else None, self.before
        outcome = MemoryStorage._put_if(self, key, data, expected)
        if after is not None:
            self.before = None
            after(self)
        return outcome


class LosesAnswers(MemoryStorage):
    """From ``arm`` on, the answer of the next conditional write of a key is lost.

    ``then`` is what others do before it is looked for.
    """

    armed: str | None = None
    lands = True

    def arm(self, key: str, *, lands: bool, then: Callable[[], None] | None = None) -> None:
        self.armed, self.lands, self.then = key, lands, then

    def _put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        if key != self.armed:
            return super()._put_if(key, data, expected)
        self.armed = None
        if self.lands:
            super()._put_if(key, data, expected)
        if self.then is not None:
            self.then()
        raise CommitStateUnknownError("the answer was lost", key=key)


class Careless(MemoryStorage):
    """Writes whatever the condition is."""

    decides_races = False

    def _put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        return super()._put_if(key, data, self._version(key))


class OtherClock(MemoryStorage):
    """Its clock is off by some microseconds."""

    decides_races = False

    def __init__(self, off: int) -> None:
        super().__init__()
        self.off = off

    def _stat(self, key: str) -> ObjectInfo | None:
        found = super()._stat(key)
        return found and ObjectInfo(key, found.size, found.modified_at + self.off)


class Counting(MemoryStorage):
    """Counts conditional writes of chunks, which probes consist of."""

    decides_races = False

    probes = 0

    def _put_if(self, key: str, data: BytesLike, expected: Version | None) -> Written | LostRace:
        self.probes += key.startswith("chunks/")
        return super()._put_if(key, data, expected)
