"""Streams of one branch let the one through that has lost many races."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.effects import now_micros, sleep
from icechunk_stream.errors import ConflictError
from icechunk_stream.stream.ledger_store import list_waits, read_record, write_waiting
from icechunk_stream.stream.waiting import asks_for_way, deadline, held_until

if TYPE_CHECKING:
    from icechunk_stream.repository import Repository
    from icechunk_stream.session import Session

# Between two looks whether the other stream is through.
_LOOK = 0.1
_MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class Courtesy:
    """What one stream owes the others of its branch, and may ask of them."""

    repository: Repository
    branch: str
    app_id: str

    def session(self) -> Session:
        """A session on the tip, once no other stream asks to be let through."""
        return self.hold_back(self.repository.writable_session(self.branch))

    def hold_back(self, session: Session) -> Session:
        """Wait while the tip says that another stream asks; a session on the tip after that."""
        while (until := self._held_until(session)) is not None:
            sleep(min(_LOOK, max(until - now_micros(), 0) / _MICROS))
            session = self.repository.writable_session(self.branch)
        return session

    def ask(self, session: Session, losses: int, took: float) -> bool:
        """After many losses, ask to be let through by a commit of its own; whether one was tried.

        ``took`` is how many seconds the last attempt took.
        """
        record = read_record(session.reader, self.app_id)
        now = now_micros()
        if not asks_for_way(losses, record.waiting_until if record else None, now):
            return False
        write_waiting(session, self.app_id, deadline(now, int(took * _MICROS)))
        # After one more lost race the next attempt asks again.
        with suppress(ConflictError):
            session.commit(f"{self.app_id}: asks to be let through")
        return True

    def _held_until(self, session: Session) -> int | None:
        return held_until(list_waits(session.reader), self.app_id, now_micros())
