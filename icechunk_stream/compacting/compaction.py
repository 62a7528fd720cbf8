"""A compaction: manifests made, and committed; on the newest tip, if others commit meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from icechunk_stream.changes import ChangeSet
from icechunk_stream.committing import Landed
from icechunk_stream.compacting.making import Maker
from icechunk_stream.compacting.outcome import (
    AlreadyCompact,
    Compacted,
    CompactionProgress,
    ManifestTotals,
)
from icechunk_stream.compacting.plans import plan_of
from icechunk_stream.compacting.survey import Survey
from icechunk_stream.compacting.trees import files_of, tree_with
from icechunk_stream.effects import monotonic, random_fraction, sleep
from icechunk_stream.errors import CommitStateUnknownError, ConflictError
from icechunk_stream.repo_updates import require_online
from icechunk_stream.storage.retry import RetryPolicy
from icechunk_stream.tips import Amend, RepoTip, check_amendable, read_tip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from icechunk_stream.building import Tree
    from icechunk_stream.committing import Committer, Message, Overtaken
    from icechunk_stream.compacting.outcome import CompactionOutcome
    from icechunk_stream.compacting.plans import Job
    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.tips import Tip

# After so many lost races only what is stored already is committed: that takes no longer than any
# commit, so that writers who never rest do not keep it from ending.
_EAGER_TRIES = 3
_PAUSES = RetryPolicy(initial_backoff=0.01, max_backoff=2.0)


@dataclass(frozen=True, slots=True, eq=False)
class Wishes:
    """What a compaction should do: what it says, how often it tries, whom it tells."""

    message: Message
    tries: int
    commits_always: bool
    on_progress: Callable[[CompactionProgress], None] | None = None


@dataclass(slots=True, eq=False)
class Compaction:
    """One compaction of a branch, with what its attempts know and what they stored."""

    committer: Committer
    read: Callable[[SnapshotId], SnapshotReader]
    wishes: Wishes
    survey: Survey = field(init=False)
    maker: Maker = field(init=False)
    lost_races: int = 0
    progress: CompactionProgress = field(default_factory=lambda: CompactionProgress(0, 0, 0))

    def __post_init__(self) -> None:
        assets = self.committer.assets
        self.survey = Survey(assets)
        self.maker = Maker(assets, self.committer.encoding, self._report)

    def run(self, branch: str) -> CompactionOutcome:
        """Compact a branch; ``ConflictError`` where others were quicker every time."""
        started = monotonic()
        while True:
            tip = self._tip(branch)
            outcome = self._attempt(tip)
            if isinstance(outcome, Compacted):
                return replace(outcome, seconds=monotonic() - started)
            if isinstance(outcome, AlreadyCompact):
                return outcome
            if self.wishes.message.move is Amend or self.lost_races == self.wishes.tries:
                raise _conflict(branch, self.lost_races + 1)
            self.lost_races += 1
            sleep(_PAUSES.pause(self.lost_races, random_fraction()))

    def _tip(self, branch: str) -> Tip:
        tip = read_tip(self.committer.assets, self.committer.spec_version, branch)
        if isinstance(tip, RepoTip):
            require_online(tip.held.info)
        if self.wishes.message.move is Amend:
            check_amendable(tip)
        return tip

    def _attempt(self, tip: Tip) -> CompactionOutcome | Overtaken:
        base = self.read(tip.id)
        is_eager = self.lost_races < _EAGER_TRIES
        jobs = plan_of(base, self.committer.encoding, self.survey, looks=is_eager)
        if is_eager:
            self._begin(jobs)
            self.maker.make(jobs)
        jobs = list(filter(self.maker.changes, jobs))
        if not (jobs or self.wishes.commits_always):
            now = ManifestTotals.of(base.snapshot.manifest_files)
            return AlreadyCompact(str(tip.id), now)
        tree = tree_with(base.snapshot, jobs, self.maker.made)
        outcome = self._commit(tip, base, tree)
        if not isinstance(outcome, Landed):
            return outcome
        return self._compacted(outcome.id, tree)

    def _commit(self, tip: Tip, base: SnapshotReader, tree: Tree) -> Landed | Overtaken:
        try:
            return self.committer.commit(tip, base, ChangeSet(), self.wishes.message, tree)
        except CommitStateUnknownError as error:
            message = (
                f"whether the manifests of {tip.branch!r} were replaced is unknown ({error})."
                " Either way nothing is lost: compact again"
            )
            raise CommitStateUnknownError(message) from error

    def _compacted(self, id: SnapshotId, tree: Tree) -> Compacted:
        return Compacted(
            snapshot_id=str(id),
            before=ManifestTotals.of(tree.base.manifest_files),
            after=ManifestTotals.of(files_of(tree)),
            written=ManifestTotals.of(self.maker.files()),
            lost_races=self.lost_races,
            seconds=0.0,
        )

    def _begin(self, jobs: Sequence[Job]) -> None:
        todo = sum(len(job) for job in jobs if job.key not in self.maker.made)
        done = self.progress.refs_written
        self.progress = CompactionProgress(done, done + todo, self.lost_races)

    def _report(self, jobs: Sequence[Job]) -> None:
        done = self.progress.refs_written + sum(map(len, jobs))
        self.progress = replace(self.progress, refs_written=done)
        if self.wishes.on_progress is not None:
            self.wishes.on_progress(self.progress)


def _conflict(branch: str, times: int) -> ConflictError:
    message = (
        f"others committed to {branch!r} before the new manifests could be, {times} times:"
        " compact again when fewer do"
    )
    return ConflictError(message=message)
