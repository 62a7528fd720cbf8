"""One commit: every immutable object put in parallel, then the one write that makes it visible."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from icechunk_stream.assets import manifest_key, snapshot_key, transaction_log_key
from icechunk_stream.building import build_tree
from icechunk_stream.changes.logs import log_of, merged_logs
from icechunk_stream.commit_logs import own_log
from icechunk_stream.effects import now_micros, random_bytes, random_fraction, sleep
from icechunk_stream.errors import (
    CommitStateUnknownError,
    ConflictError,
    ErrorKind,
    FormatError,
    IcechunkError,
    RefNotFoundError,
    StorageError,
)
from icechunk_stream.format.ids import OBJECT_ID_SIZE, SnapshotId
from icechunk_stream.format.repo_info import SnapshotRecord
from icechunk_stream.format.snapshot_encode import SnapshotContents, encode_snapshot
from icechunk_stream.format.times import from_micros
from icechunk_stream.format.transaction_log_encode import encode_transaction_log
from icechunk_stream.laying_out import Yard
from icechunk_stream.packing import Shelf
from icechunk_stream.preparing import MAX_CLOCK_SKEW
from icechunk_stream.refs import RefFiles, RepoObject
from icechunk_stream.storage import Written
from icechunk_stream.tips import Amend, Commit, Detach, FileTip, RepoTip, read_tip, swap_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from icechunk_stream.assets import Assets, HeldRepo
    from icechunk_stream.building import Tree
    from icechunk_stream.changes import ChangeSet
    from icechunk_stream.format.transaction_log_encode import LogContents
    from icechunk_stream.info import SpecVersion
    from icechunk_stream.packing import EncodingRules, NewManifest
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.refs import History
    from icechunk_stream.repo_updates import UpdateRules
    from icechunk_stream.storage import LostRace
    from icechunk_stream.tips import Move, Swap, Tip
    from icechunk_stream.upkeep import LaterMerge, Upkeep

_IMMEDIATE_TRIES = 5
# Sends of one snapshot whose answers were lost, before the outcome is called unknown.
_DOUBTFUL_TRIES = 3
# So many bytes are copied into memory sooner than threads are woken to do it.
_LIGHT = 2**20


@dataclass(frozen=True, slots=True)
class Landed:
    """The commit was made; where the branch was reset or deleted since, it is not there now."""

    id: SnapshotId


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The branch moved on to another tip, or is gone (None); nothing was committed."""

    tip: Tip | None


@dataclass(frozen=True, slots=True)
class Message:
    """What a commit says of itself, and how it goes into the history."""

    text: str
    metadata: Mapping[str, Any]
    move: type[Commit | Amend | Detach] = Commit


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """All objects of one attempt, and what the tip will know of its snapshot."""

    record: SnapshotRecord
    manifests: tuple[NewManifest, ...]
    objects: tuple[tuple[str, bytes], ...]
    later: tuple[LaterMerge, ...]

    @property
    def size(self) -> int:
        """Bytes to store."""
        return sum(len(data) for _, data in self.objects) + sum(
            len(new.data) for new in self.manifests if new.data
        )


@dataclass(slots=True)
class Committer:
    """Commits of one session; remembers what its attempts stored and may have made visible."""

    assets: Assets
    spec_version: SpecVersion
    encoding: EncodingRules
    updates: UpdateRules
    upkeep: Upkeep
    shelf: Shelf = field(default_factory=Shelf)
    attempts: set[SnapshotId] = field(default_factory=set)

    def commit(
        self,
        tip: Tip,
        base: SnapshotReader,
        changes: ChangeSet,
        message: Message,
        tree: Tree | None = None,
    ) -> Landed | Overtaken:
        """Put a commit on a tip whose snapshot is the base of the changes, and of a given tree.

        Raises:
            CommitStateUnknownError: the commit may or may not be in the history, or may get there
                yet. Calling again finds out, and never commits twice.
        """
        # With the base of another tip, the commits between them would be undone.
        assert base.snapshot.id == tip.id
        settled = self._settle(tip, message.move) if self.attempts else None
        if settled is not None:
            return settled
        if tree is None:
            tree = build_tree(changes, Yard(base, self.encoding, self.shelf, self.upkeep))
        draft = self._draft(tip, tree, changes, message)
        move = message.move(draft.record)
        swap = swap_of(self.assets, tip, move, self.updates)
        prepared = self._store(draft, swap)
        try:
            outcome = self._publish(tip, move, swap, prepared)
            if isinstance(outcome, Landed):
                self.upkeep.begin(draft.later, self.encoding)
                self._forget(base, move)
            return outcome
        finally:
            if isinstance(move, Detach):
                # No branch has it, so that whatever became of it a commit is still to be made.
                self.attempts.discard(draft.record.id)

    def _forget(self, base: SnapshotReader, move: Move) -> None:
        """The next session begins with the new snapshot: long streams need not keep all of them."""
        if not isinstance(move, Detach):
            self.assets.forget_snapshot(base.snapshot.id)

    @property
    def is_in_doubt(self) -> bool:
        """Whether an attempt may have been made visible, or may yet be."""
        return bool(self.attempts)

    def has_landed(self, newest: Tip, tip: Tip) -> bool:
        """Whether the history at the newest tip has an attempt that was put on ``tip``."""
        return isinstance(self._decided(newest, tip, Commit), Landed)

    def _settle(self, tip: Tip, move: type[Move]) -> Landed | Overtaken | None:
        """After an attempt of unknown outcome: what became of it, or None if nothing yet."""
        return self._decided(self._newest(tip, move), tip, move)

    def _decided(self, newest: Tip | None, tip: Tip, move: type[Move]) -> Landed | Overtaken | None:
        landed = self._landed(newest, tip)
        if landed is not None:
            return landed
        overtaken = _overtaken(newest, tip, move)
        if overtaken is not None:
            # They were to replace a version of the tip that is no longer there.
            self.attempts.clear()
        return overtaken

    def _draft(self, tip: Tip, tree: Tree, changes: ChangeSet, message: Message) -> Draft:
        id = SnapshotId(random_bytes(OBJECT_ID_SIZE))
        log = log_of(changes, id)
        parent: SnapshotId | None = tree.base.id
        if message.move is Amend:
            amended = history_of(self.assets, tip).record(tip.id)
            parent = amended.parent_id
            log = merged_logs(own_log(self.assets, amended), log, id)
        record = SnapshotRecord(
            id=id,
            parent_id=parent,
            flushed_at=moment_after(tree.base.flushed_at),
            message=message.text,
            metadata=dict(message.metadata),
        )
        return Draft(record, tree.new, self._objects(record, tree, log), tree.later)

    def _objects(
        self, record: SnapshotRecord, tree: Tree, log: LogContents
    ) -> tuple[tuple[str, bytes], ...]:
        contents = SnapshotContents(
            id=record.id,
            parent_id=record.parent_id,
            flushed_at=record.flushed_at,
            message=record.message,
            metadata=record.metadata,
            manifest_files=tree.files,
            nodes=tree.nodes,
            base=tree.base,
            gone=tree.gone,
        )
        spec, level = self.encoding.spec_version, self.encoding.level
        snapshot = encode_snapshot(contents, spec, level)
        encoded_log = encode_transaction_log(log, spec, level)
        return (
            (snapshot_key(record.id), snapshot),
            (transaction_log_key(record.id), encoded_log),
        )

    def _store(self, draft: Draft, swap: Swap) -> LostRace | None:
        """Everything that nobody sees yet, in one wave."""
        calls: list[Callable[[], LostRace | None]] = [swap.prepare]
        calls += [partial(self._put, key, data) for key, data in draft.objects]
        calls += [partial(self._put_manifest, new) for new in draft.manifests if new.data]
        storage = self.assets.storage
        is_light = storage.writes_to_memory and draft.size <= _LIGHT
        outcomes = [call() for call in calls] if is_light else storage.together(calls)
        return outcomes[0]

    def _put(self, key: str, data: bytes) -> None:
        self.assets.storage.put(key, data)
        self.assets.keep_written(key, data)

    def _put_manifest(self, new: NewManifest) -> None:
        assert new.data is not None
        self._put(manifest_key(new.file.id), new.data)
        self.shelf.keep(new)
        self.assets.keep_tables(new.file.id, {part.node: part.table for part in new.parts})

    def _publish(
        self, tip: Tip, move: Move, swap: Swap, prepared: LostRace | None
    ) -> Landed | Overtaken:
        """Swap, and never say that nothing was committed where that is not certain."""
        doubts: list[StorageError] = []
        try:
            return self._swap_until_certain(tip, move, swap, prepared, doubts)
        except IcechunkError as error:
            lost = [doubt for doubt in doubts if isinstance(doubt, CommitStateUnknownError)]
            if not lost:
                raise
            raise _unknown(tip.branch, lost[0], type(move)) from error

    def _swap_until_certain(
        self,
        tip: Tip,
        move: Move,
        swap: Swap,
        prepared: LostRace | None,
        doubts: list[StorageError],
    ) -> Landed | Overtaken:
        """The same snapshot every time; ``doubts`` gets the failures whose outcome is unknown."""
        for tries in range(_IMMEDIATE_TRIES + self.updates.retry.max_tries):
            outcome = prepared or self._send(swap, move)
            if isinstance(outcome, Written):
                return Landed(move.record.id)
            if isinstance(outcome, StorageError):
                doubts.append(outcome)
            elif not doubts:
                self.attempts.discard(move.record.id)
            newest = self._newest(tip, type(move))
            decided = self._decided(newest, tip, type(move))
            if decided is not None:
                return decided
            self._check_doubts(outcome, doubts, move.record.id)
            self._wait(tries)
            assert newest is not None
            swap = swap_of(self.assets, newest, move, self.updates)
            prepared = swap.prepare()
        raise _exhausted(tip.branch)

    def _send(self, swap: Swap, move: Move) -> Written | LostRace | StorageError:
        self.attempts.add(move.record.id)
        try:
            return swap.send()
        except StorageError as error:
            return error

    def _newest(self, tip: Tip, move: type[Move]) -> Tip | None:
        """The tip as it is now, or None where the branch is gone; a detached move needs none."""
        if move is Detach and isinstance(tip, RepoTip):
            return replace(tip, held=self.assets.repo())
        try:
            return read_tip(self.assets, self.spec_version, tip.branch)
        except RefNotFoundError:
            return None

    def _landed(self, newest: Tip | None, tip: Tip) -> Landed | None:
        """The attempt that the history has, if it has one."""
        if isinstance(tip, RepoTip):
            return self._landed_in(self.assets.last_repo)
        if isinstance(newest, FileTip) and self.attempts and newest.id != tip.id:
            return self._landed_before(newest, tip)
        return None

    def _landed_in(self, held: HeldRepo | None) -> Landed | None:
        """Spec v2 lists a snapshot also when its branch is gone."""
        if held is None:
            return None
        found = (id for id in self.attempts if held.info.snapshots.row(id) is not None)
        return next((Landed(id) for id in found), None)

    def _landed_before(self, newest: FileTip, tip: Tip) -> Landed | None:
        for record in history_of(self.assets, newest).ancestry(newest.id):
            if record.id in self.attempts:
                return Landed(record.id)
            if record.id == tip.id:
                return None
        return None

    def _check_doubts(
        self, outcome: LostRace | StorageError, doubts: list[StorageError], id: SnapshotId
    ) -> None:
        """Give up on a write that failed for certain, and on one that stays in doubt."""
        if not isinstance(outcome, StorageError):
            return
        if not any(isinstance(doubt, CommitStateUnknownError) for doubt in doubts):
            self.attempts.discard(id)
            raise outcome
        if len(doubts) >= _DOUBTFUL_TRIES:
            raise outcome

    def _wait(self, tries: int) -> None:
        if tries >= _IMMEDIATE_TRIES:
            pause = self.updates.retry.pause(tries - _IMMEDIATE_TRIES + 1, random_fraction())
            sleep(pause)


def history_of(assets: Assets, tip: Tip) -> History:
    """The history as it was when the tip was read."""
    return RefFiles(assets) if isinstance(tip, FileTip) else RepoObject(tip.held.info)


def moment_after(parent: int) -> int:
    """The time of a commit: now, and strictly after its parent."""
    now = now_micros()
    if parent - now > MAX_CLOCK_SKEW:
        message = (
            f"the last commit is of {from_micros(parent).isoformat()}, but the clock here says"
            f" {from_micros(now).isoformat()}: set the clock that is wrong, then commit again"
        )
        raise FormatError(message, ErrorKind.SNAPSHOT_TIMESTAMP)
    return max(now, parent + 1)


def _overtaken(newest: Tip | None, tip: Tip, move: type[Move]) -> Overtaken | None:
    if newest is None:
        return Overtaken(None)
    return Overtaken(newest) if newest.id != tip.id and move is not Detach else None


def _unknown(branch: str, error: StorageError, move: type[Move]) -> CommitStateUnknownError:
    again = (
        "Flushing again is safe, and may list the same changes twice"
        if move is Detach
        else "Commit this session again: that finds out first, and never commits twice"
    )
    message = (
        f"whether the commit on {branch!r} was made is unknown ({error}). Nothing was deleted."
        f" {again}"
    )
    return CommitStateUnknownError(message)


def _exhausted(branch: str) -> ConflictError:
    message = (
        f"others changed the repository during every attempt to commit to {branch!r}: try again"
        " later, or raise repo_update_retries"
    )
    return ConflictError(message=message, kind=ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED)
