"""The working copy of a writable session: a branch's tip, what is changed on it, and its commit."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from icechunk_stream.changes import ChangeSet
from icechunk_stream.committing import Committer, Landed, Message, Overtaken, history_of
from icechunk_stream.config import with_defaults
from icechunk_stream.effects import random_fraction, sleep
from icechunk_stream.errors import (
    ConflictError,
    ErrorKind,
    RebaseFailedError,
    RefNotFoundError,
    SessionStateError,
)
from icechunk_stream.overlay import OverlayReader
from icechunk_stream.packing import EncodingRules
from icechunk_stream.rebasing import Rebased, Stuck, rebase
from icechunk_stream.repo_updates import UpdateRules
from icechunk_stream.storage.retry import RetryPolicy
from icechunk_stream.tips import RepoTip, check_amendable, read_tip, tip_in
from icechunk_stream.writing import Edits, WriteRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from icechunk_stream.assets import Assets
    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.conflicts import ConflictSolver
    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.info import SpecVersion
    from icechunk_stream.manifests.policy import ManifestPolicy
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.tips import Tip
    from icechunk_stream.upkeep import Upkeep

LIBRARY_KEY = "__icechunk"
# Between two rebases, so that writers of one branch do not march in step.
_PAUSES = RetryPolicy(initial_backoff=0.01, max_backoff=2.0)


@dataclass(frozen=True, slots=True)
class WritingRules:
    """What a configuration says about writing."""

    spec_version: SpecVersion
    edits: WriteRules
    encoding: EncodingRules
    updates: UpdateRules

    @classmethod
    def of(
        cls, config: RepositoryConfig, spec_version: SpecVersion, policy: ManifestPolicy
    ) -> WritingRules:
        filled = with_defaults(config)
        assert filled.inline_chunk_threshold_bytes is not None
        assert filled.manifest is not None
        splitting = filled.manifest.splitting
        updates = UpdateRules.of(config)
        return cls(
            spec_version=spec_version,
            edits=WriteRules(filled.inline_chunk_threshold_bytes, spec_version),
            encoding=EncodingRules(
                spec_version=spec_version,
                level=updates.level,
                splitting=(splitting.split_sizes if splitting else None) or (),
                policy=policy,
            ),
            updates=updates,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Workplace:
    """What writable sessions of one repository share."""

    rules: WritingRules
    upkeep: Upkeep
    default_metadata: Mapping[str, Any]


class WorkingCopy:
    """What a session changed on the tip of a branch, and has not committed."""

    def __init__(
        self,
        assets: Assets,
        tip: Tip,
        place: Workplace,
        read: Callable[[SnapshotId], SnapshotReader],
    ) -> None:
        self._assets = assets
        self._rules = rules = place.rules
        self._upkeep = place.upkeep
        self._read = read
        self._committer = self._new_committer()
        self._lock = threading.RLock()
        self._is_done = False
        # Whether a rebase got stuck below the tip, so that ``tip`` is not the branch's.
        self._is_behind = False
        self.tip = tip
        self.changes = ChangeSet()
        self.base = read(tip.id)
        self.reader = OverlayReader(self.base, self.changes)
        self.edits = Edits(self.reader, self.changes, rules.edits)

    @property
    def branch(self) -> str:
        return self.tip.branch

    def follow(self, rules: WritingRules) -> None:
        """Lay out by other rules what is committed from now on."""
        with self._lock:
            self.check_editable()
            self._rules = rules
            self._committer = self._new_committer()
            self.tip = self._tip_now()

    def check_editable(self) -> None:
        """Refuse changes that a commit of unknown outcome may or may not have."""
        if self._committer.is_in_doubt:
            message = (
                f"whether the commit on {self.branch!r} was made is unknown: commit again, which"
                " finds out, or discard the changes, before changing more"
            )
            raise SessionStateError(message, ErrorKind.COMMIT_NOT_ALLOWED)

    def discard(self) -> None:
        """Forget all changes; should an attempt to commit them land yet, others made it."""
        with self._alone():
            behind = self._is_behind
            self._committer = self._new_committer()
            self._stand_on(self.tip, ChangeSet())
            self._is_behind = behind

    def commit(self, message: Message) -> SnapshotId:
        """Commit, or raise ``ConflictError`` where the branch has moved on."""
        with self._alone():
            return self._commit(message)

    def commit_with_rebase(
        self, message: Message, solver: ConflictSolver, tries: int
    ) -> SnapshotId:
        """Commit; as often as the branch moves on before, rebase and commit again."""
        tries = max(tries, 0)
        newest: Tip | None = None
        with self._alone():
            for attempt in range(tries + 1):
                counted = replace(message, metadata=_counted(message.metadata, attempt))
                outcome = self._attempt(counted)
                if isinstance(outcome, Landed):
                    return outcome.id
                newest = outcome.tip
                if newest is None or attempt == tries:
                    break
                self._catch_up(newest, solver, attempt)
            raise self._conflict(newest)

    def amend(self, message: Message) -> SnapshotId:
        """Replace the tip by a commit that has its changes and these."""
        check_amendable(self.tip)
        return self.commit(message)

    def flush(self, message: Message) -> SnapshotId:
        """Store the changes as a snapshot on no branch, whatever became of this one's."""
        with self._alone():
            outcome = self._committer.commit(self.tip, self.base, self.changes, message)
            if not isinstance(outcome, Landed):
                raise self._conflict(outcome.tip)
            self._is_done = True
            return outcome.id

    def rebase(self, solver: ConflictSolver) -> None:
        """Bring the changes onto the newest tip; where the branch is gone, nothing happens."""
        with self._alone():
            self._rebase(solver)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One commit, rebase or discard at a time, and no writes meanwhile: they would be lost.

        Writes stay refused once a commit is made, and while its outcome is unknown.
        """
        with self._lock:
            if self._is_done:
                message = "the session was committed: begin another one to go on"
                raise SessionStateError(message, ErrorKind.COMMIT_NOT_ALLOWED)
            self.edits.close()
            try:
                yield
            finally:
                self._reopen_edits()

    def _reopen_edits(self) -> None:
        if not (self._is_done or self._committer.is_in_doubt):
            self.edits.reopen()

    def _commit(self, message: Message) -> SnapshotId:
        outcome = self._attempt(message)
        if isinstance(outcome, Landed):
            return outcome.id
        raise self._conflict(outcome.tip)

    def _rebase(self, solver: ConflictSolver) -> None:
        try:
            newest = read_tip(self._assets, self._rules.spec_version, self.branch)
        except RefNotFoundError:
            return
        if not self._committer.has_landed(newest, self.tip):
            self._rebase_onto(newest, solver)

    def _tip_now(self) -> Tip:
        """The tip in the newest ``repo`` object that was seen, if the branch did not move since."""
        tip, held = self.tip, self._assets.last_repo
        if not isinstance(tip, RepoTip) or held is None or tip.branch not in held.info.branches:
            return tip
        newest = tip_in(held, tip.branch)
        return newest if newest.id == tip.id else tip

    def _new_committer(self) -> Committer:
        rules = self._rules
        return Committer(
            self._assets, rules.spec_version, rules.encoding, rules.updates, self._upkeep
        )

    def _attempt(self, message: Message) -> Landed | Overtaken:
        if self._is_behind:
            newest = read_tip(self._assets, self._rules.spec_version, self.branch)
            if newest.id != self.tip.id:
                return Overtaken(newest)
            self.tip, self._is_behind = newest, False
        outcome = self._committer.commit(self.tip, self.base, self.changes, message)
        self._is_done = isinstance(outcome, Landed)
        return outcome

    def _catch_up(self, newest: Tip, solver: ConflictSolver, attempt: int) -> None:
        """Rebase at once; after more than one lost race, some time later."""
        if not attempt:
            self._rebase_onto(newest, solver)
            return
        sleep(_PAUSES.pause(attempt, random_fraction()))
        self._rebase(solver)

    def _rebase_onto(self, newest: Tip, solver: ConflictSolver) -> None:
        if newest.id == self.tip.id:
            self.tip, self._is_behind = newest, False
            return
        history = history_of(self._assets, newest)
        outcome = rebase(self._assets, history, self.tip.id, newest.id, self.changes, solver)
        match outcome:
            case Rebased(changes=changes):
                self._stand_on(newest, changes)
            case Stuck(reached=reached):
                self._stand_on(replace(newest, id=reached.base), reached.changes)
                self._is_behind = True
                raise RebaseFailedError(str(outcome.failed_on), outcome.conflicts)

    def _stand_on(self, tip: Tip, changes: ChangeSet) -> None:
        # Reading may fail, and a tip with the base of another one would undo the commits between.
        base = self._read(tip.id)
        self.tip = tip
        self._is_behind = False
        self.changes = changes
        self.base = base
        self.reader = OverlayReader(base, changes)
        self.edits = Edits(self.reader, changes, self._rules.edits)
        self.edits.close()

    def _conflict(self, actual: Tip | None) -> Exception:
        if actual is not None:
            return ConflictError(str(self.tip.id), str(actual.id))
        message = f"the branch {self.branch!r} is gone: create it again, or use another"
        if isinstance(self.tip, RepoTip):
            return RefNotFoundError(message, ErrorKind.BRANCH_NOT_FOUND)
        return ConflictError(str(self.tip.id), None, message)


def _counted(metadata: Mapping[str, Any], attempts: int) -> dict[str, Any]:
    """The library's own items stay, as they do in the reference."""
    own = metadata.get(LIBRARY_KEY)
    kept = own if isinstance(own, dict) else {}
    return {**metadata, LIBRARY_KEY: {**kept, "rebase_attempts": attempts}}
