"""Transaction logs of the commits between two snapshots, fetched ahead of whoever reads them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from icechunk_stream.assets import transaction_log_key
from icechunk_stream.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from icechunk_stream.assets import Assets
    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.format.repo_info import SnapshotRecord
    from icechunk_stream.format.transaction_log import TransactionLog
    from icechunk_stream.refs import History


@dataclass(frozen=True, slots=True)
class Between:
    """Commits from one snapshot, which is not among them, to another one, oldest first.

    Where the first is no ancestor of the other they begin with the first snapshot of all.
    """

    records: tuple[SnapshotRecord, ...]
    connected: bool


@dataclass(frozen=True, slots=True, eq=False)
class CommitLogs:
    """A commit, the logs of the expired commits that it stands for, and then its own.

    ``lost`` are expired commits whose logs are no longer stored.
    """

    record: SnapshotRecord
    logs: tuple[TransactionLog, ...]
    lost: tuple[SnapshotId, ...]


def commits_between(history: History, older: SnapshotId, newer: SnapshotId) -> Between:
    records: list[SnapshotRecord] = []
    for record in history.ancestry(newer):
        if record.id == older:
            return Between(tuple(reversed(records)), connected=True)
        records.append(record)
    return Between(tuple(reversed(records)), connected=False)


def logs_of(assets: Assets, records: Sequence[SnapshotRecord]) -> Iterator[CommitLogs]:
    """The logs of commits, in their order; those of a few commits are on their way at a time."""
    ahead: deque[_Pending] = deque()
    waiting = iter(records)
    try:
        while True:
            room = assets.storage.concurrency - len(ahead)
            ahead.extend(_begin(assets, record) for record in islice(waiting, room))
            if not ahead:
                return
            yield _finish(ahead[0])
            ahead.popleft()
    finally:
        for pending in ahead:
            pending.cancel()


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    record: SnapshotRecord
    pruned: tuple[Future[TransactionLog | None], ...]
    own: Future[TransactionLog]

    def cancel(self) -> None:
        self.own.cancel()
        for future in self.pruned:
            future.cancel()


def _begin(assets: Assets, record: SnapshotRecord) -> _Pending:
    submit = assets.storage.executor.submit
    pruned = tuple(submit(_pruned_log, assets, id) for id in record.pruned_logs)
    return _Pending(record, pruned, submit(own_log, assets, record))


def _finish(pending: _Pending) -> CommitLogs:
    record = pending.record
    pruned = [future.result() for future in pending.pruned]
    found = [log for log in pruned if log is not None]
    missing = zip(record.pruned_logs, pruned, strict=True)
    lost = tuple(id for id, log in missing if log is None)
    return CommitLogs(record, (*found, pending.own.result()), lost)


def _pruned_log(assets: Assets, id: SnapshotId) -> TransactionLog | None:
    try:
        return assets.transaction_log(id)
    except ObjectNotFoundError:
        return None


def own_log(assets: Assets, record: SnapshotRecord) -> TransactionLog:
    """What a commit changed; where its log is gone, the error says so of the commit."""
    try:
        return assets.transaction_log(record.id)
    except ObjectNotFoundError as error:
        key = transaction_log_key(record.id)
        if record.parent_id is None:
            raise ObjectNotFoundError(_not_below(record), key=key) from error
        message = (
            f"nobody can tell what the snapshot {record.id} ({record.message!r}) changed: its log"
            f" {key} is missing in {assets.storage!r}. Restore it, or begin after that snapshot"
        )
        raise ObjectNotFoundError(message, key=key) from error


def _not_below(record: SnapshotRecord) -> str:
    """Spec v1 keeps no log of the first snapshot; only where a branch was reset it is asked for."""
    return (
        f"the branch was reset to a snapshot that does not come after the one that this began with,"
        f" and the first snapshot {record.id} has no log of changes: make the change again from the"
        " tip"
    )
