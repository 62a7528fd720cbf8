"""Batches of one stream: each judged by the ledger, placed, written, and committed once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icechunk_stream.effects import monotonic, now_micros, random_fraction, sleep
from icechunk_stream.errors import ConflictError, RefNotFoundError
from icechunk_stream.format.paths import canonical
from icechunk_stream.refs import MAIN
from icechunk_stream.repository import Repository
from icechunk_stream.storage.retry import RetryPolicy
from icechunk_stream.stream.frozen import FrozenMap
from icechunk_stream.stream.ledger import AlreadyCommitted, LedgerPolicy, Proceed, Timings, judge
from icechunk_stream.stream.ledger_store import (
    check_app_id,
    is_of_batch,
    read_ledger,
    snapshot_metadata,
    write_ledger,
)
from icechunk_stream.stream.outcomes import BatchOutcome, Committed, Repeated, Skipped
from icechunk_stream.stream.write_rows import Destination, write_rows

if TYPE_CHECKING:
    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.session import Session
    from icechunk_stream.storage import Storage
    from icechunk_stream.stream.layout import Rows
    from icechunk_stream.stream.ledger import Call
    from icechunk_stream.stream.row_source import RowSource

# Lost races of one batch, with pauses between them, before the stream gives up.
_TRIES = 100
_PAUSES = RetryPolicy(initial_backoff=0.01, max_backoff=2.0)
# How far back the snapshot of a repeated batch is looked for.
_HISTORY = 1_000


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What a stream writes, and where to."""

    layout: Rows
    app_id: str
    branch: str = MAIN
    group: str = "/"
    policy: LedgerPolicy = field(default_factory=LedgerPolicy)
    spec_version: int = 1
    config: RepositoryConfig | None = None

    def __post_init__(self) -> None:
        check_app_id(self.app_id)


class Batches:
    """The batches of a stream, one after the other, onto a branch."""

    def __init__(self, repository: Repository, settings: StreamSettings) -> None:
        self._repository = repository
        self._settings = settings
        self._destination = Destination(settings.layout, canonical(settings.group))

    @classmethod
    def open(cls, storage: Storage, settings: StreamSettings) -> Batches:
        """Open the repository; it is created, or the branch, where it is missing."""
        repository = Repository.open_or_create(
            storage, settings.config, create_version=settings.spec_version
        )
        batches = cls(repository, settings)
        batches._require_branch()
        return batches

    def already_committed(self, call: Call) -> Repeated | None:
        """The earlier commit of a batch, if the branch has it; a refused batch raises."""
        session = self._repository.readonly_session(self._settings.branch)
        match self._judge(session, call):
            case AlreadyCommitted():
                return self._repeated(call)
            case Proceed():
                return None

    def write(self, call: Call, rows: RowSource) -> BatchOutcome:
        """Commit a batch, on whatever tip the branch has by then.

        Raises:
            BadRowsError: rows have no place; nothing was committed.
            StreamError: the ledger does not allow the batch.
        """
        began, started_at = monotonic(), now_micros()
        for lost in range(_TRIES):
            if lost > 1:
                sleep(_PAUSES.pause(lost, random_fraction()))
            session = self._repository.writable_session(self._settings.branch)
            judgement = self._judge(session, call)
            if isinstance(judgement, AlreadyCommitted):
                return self._repeated(call)
            if judgement.may_skip and rows.is_empty:
                return Skipped(call.batch_id)
            written = write_rows(session, self._base(session), self._destination, rows)
            timings = Timings(started_at, FrozenMap({"write": monotonic() - began}))
            entry = judgement.entry(written.counts, timings)
            write_ledger(session, self._settings.app_id, entry)
            try:
                id = session.commit(self._message(call), self._metadata(call))
            except ConflictError:
                continue
            seconds = monotonic() - began
            return Committed(call.batch_id, id, written.counts, written.chunks, lost, seconds)
        raise self._starved(call)

    def _base(self, session: Session) -> Session:
        """The snapshot that a session changes, as it is without the changes."""
        return self._repository.readonly_session(snapshot_id=session.snapshot_id)

    def _judge(self, session: Session, call: Call) -> Proceed | AlreadyCommitted:
        entry = read_ledger(session.reader, self._settings.app_id)
        return judge(entry, call, self._settings.policy)

    def _repeated(self, call: Call) -> Repeated:
        marker = call.app_id, call.batch_id, call.query_id
        history = self._repository.ancestry(branch=self._settings.branch)
        for _, snapshot in zip(range(_HISTORY), history, strict=False):
            if is_of_batch(snapshot.metadata, *marker):
                return Repeated(call.batch_id, snapshot.id)
        return Repeated(call.batch_id, None)

    def _message(self, call: Call) -> str:
        return f"{call.app_id}: batch {call.batch_id}"

    def _metadata(self, call: Call) -> dict[str, Any]:
        return snapshot_metadata(call.app_id, call.batch_id, call.query_id)

    def _require_branch(self) -> None:
        branch = self._settings.branch
        try:
            self._repository.lookup_branch(branch)
        except RefNotFoundError:
            self._repository.create_branch(branch, self._repository.lookup_branch(MAIN))

    def _starved(self, call: Call) -> ConflictError:
        message = (
            f"batch {call.batch_id} of {call.app_id!r} lost {_TRIES} races in a row to other"
            f" writers of {self._settings.branch!r}, and nothing of it was committed: start the"
            " query again, or let fewer writers commit to this branch"
        )
        return ConflictError(message=message)
