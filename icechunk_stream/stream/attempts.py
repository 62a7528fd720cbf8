"""One batch of a stream, attempted until it is committed, or found to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from icechunk_stream.effects import monotonic, now_micros, random_fraction, sleep
from icechunk_stream.errors import ConflictError
from icechunk_stream.storage.retry import RetryPolicy
from icechunk_stream.stream.catching_up import caught_up
from icechunk_stream.stream.cells import cells_of_new_arrays
from icechunk_stream.stream.dimensions import Fixed
from icechunk_stream.stream.frozen import FrozenMap
from icechunk_stream.stream.hidden_cells import clear_hidden, lengths_of, suspects
from icechunk_stream.stream.known import forget_replaced
from icechunk_stream.stream.ledger import AlreadyCommitted, Proceed, Timings, judge
from icechunk_stream.stream.ledger_store import (
    is_last_commit,
    is_of_batch,
    read_ledger,
    snapshot_metadata,
    write_ledger,
)
from icechunk_stream.stream.outcomes import Committed, Repeated, Skipped
from icechunk_stream.stream.rejected import for_keeping
from icechunk_stream.stream.write_rows import write_rows

if TYPE_CHECKING:
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.repository import Repository
    from icechunk_stream.session import Session
    from icechunk_stream.stream.courtesy import Courtesy
    from icechunk_stream.stream.ledger import Call, LedgerPolicy
    from icechunk_stream.stream.outcomes import BatchOutcome
    from icechunk_stream.stream.row_source import RowSource
    from icechunk_stream.stream.write_rows import Destination, WrittenRows

KeepBadRows: TypeAlias = Callable[[pa.Table, int], None]
"""Stores bad rows of a batch; the number tells apart different ones of several attempts."""

# Lost races of one batch, with pauses between them, before the stream gives up.
_TRIES = 100
_PAUSES = RetryPolicy(initial_backoff=0.01, max_backoff=2.0)
# How far back the snapshot of a repeated batch is looked for.
_HISTORY = 1_000


@dataclass(frozen=True, slots=True)
class Stream:
    """Who writes batches, by which rules, and where to."""

    app_id: str
    policy: LedgerPolicy
    destination: Destination
    courtesy: Courtesy
    manage_splitting: bool = True

    @property
    def branch(self) -> str:
        return self.courtesy.branch

    @property
    def repository(self) -> Repository:
        return self.courtesy.repository

    def reader(self, snapshot_id: str) -> SnapshotReader:
        return self.repository.readonly_session(snapshot_id=snapshot_id).reader

    def learn(self, before: SnapshotReader, snapshot_id: str, written: WrittenRows) -> None:
        """Remember the axes as they were committed, and forget what they were before."""
        reader = self.reader(snapshot_id)
        forget_replaced(before, reader, self.destination.group)
        self.destination.known.newest = snapshot_id
        for axis in written.axes:
            path = self.destination.path(axis.name)
            self.destination.known.keep_axis(reader.array(path), axis)

    def split_new_arrays(self, session: Session, written: WrittenRows) -> None:
        """See to it that whoever writes the new arrays lays their references out alike."""
        if self.manage_splitting:
            self.repository.split_new_arrays(cells_of_new_arrays(session, written.axes), session)

    def clear_hidden(self, session: Session, base: Session) -> None:
        """Where others may have made arrays shorter, see to it that nothing comes back."""
        if session.snapshot_id == self.destination.known.newest:
            return
        group, layout = self.destination.group, self.destination.layout
        paths = suspects(
            self.repository.ancestry(snapshot_id=session.snapshot_id),
            partial(is_last_commit, read_ledger(base.reader, self.app_id), self.app_id),
            lambda id: lengths_of(self.reader(id), group),
        )
        growing = {name for name, kind in layout.dims.items() if not isinstance(kind, Fixed)}
        clear_hidden(session, base, group, growing, paths)


@dataclass(slots=True)
class Attempts:
    """The attempts at one batch."""

    stream: Stream
    call: Call
    rows: RowSource
    keep: KeepBadRows | None
    losses: int = 0
    kept: pa.Table | None = None
    started_at: int = field(default_factory=now_micros)
    began: float = field(default_factory=monotonic)
    took: float = 0.0

    def outcome(self) -> BatchOutcome:
        while self.losses < _TRIES:
            self._pause()
            session = self.stream.courtesy.session()
            judgement = self._judged(session)
            if isinstance(judgement, AlreadyCommitted):
                return self._repeated()
            if judgement.may_skip and self.rows.is_empty:
                return Skipped(self.call.batch_id)
            if self.stream.courtesy.ask(session, self.losses, self.took):
                continue
            committed = self._attempt(session, judgement)
            if committed is not None:
                return committed
        raise self._starved()

    def _attempt(self, session: Session, judgement: Proceed) -> Committed | None:
        """Place and write the batch on the session's tip; None where that is no longer the tip."""
        began = monotonic()
        base = self.stream.repository.readonly_session(snapshot_id=session.snapshot_id)
        self.stream.clear_hidden(session, base)
        written = write_rows(session, base, self.stream.destination, self.rows)
        self._keep_bad_rows(written)
        self.stream.split_new_arrays(session, written)
        timings = Timings(self.started_at, FrozenMap({"write": monotonic() - self.began}))
        write_ledger(session, self.stream.app_id, judgement.entry(written.counts, timings))
        id = self._commit(session)
        self.took = monotonic() - began
        if id is None:
            return None
        self.stream.learn(base.reader, id, written)
        seconds = monotonic() - self.began
        return Committed(
            self.call.batch_id, id, written.counts, written.chunks, self.losses, seconds
        )

    def _commit(self, session: Session) -> str | None:
        """The new snapshot, or None where the batch has to be written again."""
        call = self.call
        message = f"{call.app_id}: batch {call.batch_id}"
        metadata = snapshot_metadata(call.app_id, call.batch_id, call.query_id)
        while self.losses < _TRIES:
            try:
                return session.commit(message, metadata)
            except ConflictError:
                self.losses += 1
            if not self._caught_up(session):
                return None
            self._pause()
            self.stream.courtesy.hold_back(session)
        return None

    def _caught_up(self, session: Session) -> bool:
        stream = self.stream
        return caught_up(session, stream.reader, stream.destination.group, stream.app_id)

    def _judged(self, session: Session) -> Proceed | AlreadyCommitted:
        entry = read_ledger(session.reader, self.stream.app_id)
        return judge(entry, self.call, self.stream.policy)

    def _keep_bad_rows(self, written: WrittenRows) -> None:
        """Store the bad rows, once unless another attempt finds other ones."""
        if self.keep is None or not written.rejected:
            return
        table = for_keeping(written.rejected, self.rows.schema)
        if self.kept is None or not table.equals(self.kept):
            self.keep(table, self.losses if self.kept is not None else 0)
            self.kept = table

    def _pause(self) -> None:
        """After more than one lost race, writers of one branch must not march in step."""
        if self.losses > 1:
            sleep(_PAUSES.pause(self.losses, random_fraction()))

    def _repeated(self) -> Repeated:
        marker = self.call.app_id, self.call.batch_id, self.call.query_id
        history = self.stream.repository.ancestry(branch=self.stream.branch)
        for _, snapshot in zip(range(_HISTORY), history, strict=False):
            if is_of_batch(snapshot.metadata, *marker):
                return Repeated(self.call.batch_id, snapshot.id)
        return Repeated(self.call.batch_id, None)

    def _starved(self) -> ConflictError:
        message = (
            f"batch {self.call.batch_id} of {self.call.app_id!r} lost {_TRIES} races in a row to"
            f" other writers of {self.stream.branch!r}, and nothing of it was committed: start the"
            " query again, or let fewer writers commit to this branch"
        )
        return ConflictError(message=message)
