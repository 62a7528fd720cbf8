"""Upkeep of a repository: manifests laid out anew for readers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from icechunk_stream.committing import Committer, Message
from icechunk_stream.compacting.compaction import Compaction, Wishes
from icechunk_stream.config import with_defaults
from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format.config_flex import plain_split_sizes
from icechunk_stream.in_thread import in_thread
from icechunk_stream.reading import SnapshotReader
from icechunk_stream.repository.handle import checked_metadata
from icechunk_stream.repository.sessions import Sessions
from icechunk_stream.tips import Amend, Commit
from icechunk_stream.virtual.containers import Containers
from icechunk_stream.working_copy import LIBRARY_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from icechunk_stream.compacting.outcome import CompactionOutcome, CompactionProgress
    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.format.ids import SnapshotId

CommitMethod: TypeAlias = Literal["new_commit", "amend"]

_MOVES: Mapping[str, type[Commit | Amend]] = {"new_commit": Commit, "amend": Amend}
_TRIES = 1_000
_log = logging.getLogger(__name__)


class Maintaining(Sessions):
    """What keeps a repository fast to read."""

    def rewrite_manifests(
        self,
        message: str,
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: CommitMethod = "new_commit",
    ) -> str:
        """Lay the manifests of all arrays out anew, and commit that; the id of the snapshot.

        As ``compact``, but there is a commit also where nothing had to be written. The splitting
        configuration in force is in its metadata.
        """
        self._prepare_to_write()
        said = self._message(message, metadata, commit_method)
        return self._compact(branch, Wishes(said, _TRIES, commits_always=True)).snapshot_id

    def compact(
        self,
        message: str = "compact manifests",
        *,
        branch: str,
        metadata: dict[str, Any] | None = None,
        commit_method: CommitMethod = "new_commit",
        on_progress: Callable[[CompactionProgress], None] | None = None,
    ) -> CompactionOutcome:
        """Merge the manifests of a branch for its readers, unless they are merged already.

        Each cell of the splitting configuration gets full manifests, as the policy counts that, and
        arrays of few chunks share one. What is laid out so already stays. Others may read and
        commit meanwhile: after a lost race only what they changed is merged again. A few full
        manifests are in memory at a time.

        Args:
            message: of the commit.
            branch: whose manifests to merge.
            metadata: of the commit.
            commit_method: ``"amend"`` replaces the last commit by one that has other manifests
                (spec v2); a ``ConflictError`` tells that there is a newer one by then.
            on_progress: called each time when some manifests were written.
        """
        self._prepare_to_write()
        said = self._message(message, metadata, commit_method)
        return self._compact(branch, Wishes(said, _TRIES, False, on_progress))

    def _compact(self, branch: str, wishes: Wishes) -> CompactionOutcome:
        rules = self._writing_rules
        committer = Committer(
            self._assets, rules.spec_version, rules.encoding, rules.updates, self._upkeep
        )
        outcome = Compaction(committer, self._reader, wishes).run(branch)
        _log.info("%s: %s", branch, outcome)
        return outcome

    def _message(
        self, text: str, metadata: Mapping[str, Any] | None, commit_method: CommitMethod
    ) -> Message:
        move = _MOVES.get(commit_method)
        if move is None:
            message = f"commit_method={commit_method!r}: give 'new_commit' or 'amend'"
            raise InvalidInputError(message)
        given = checked_metadata({**self._commit_metadata, **(metadata or {})}, self.spec_version)
        own = given.get(LIBRARY_KEY)
        kept = own if isinstance(own, dict) else {}
        return Message(text, {**given, LIBRARY_KEY: {**kept, **_splitting(self._config)}}, move)

    def _reader(self, id: SnapshotId) -> SnapshotReader:
        holders = Containers((), self._authorization)
        return SnapshotReader(self._assets, self._assets.snapshot(id), holders)

    rewrite_manifests_async = in_thread(rewrite_manifests)
    compact_async = in_thread(compact)


def _splitting(config: RepositoryConfig) -> dict[str, Any]:
    """How manifests were split, as the reference notes it."""
    manifest = with_defaults(config).manifest
    assert manifest is not None
    assert manifest.splitting is not None
    sizes = plain_split_sizes(manifest.splitting.split_sizes or ())
    return {"splitting_config": {"split_sizes": sizes}}
