"""Sessions that change a branch, and what lies between two snapshots."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from icechunk_stream.in_thread import in_thread
from icechunk_stream.ops.diff import diff as diff_between
from icechunk_stream.repo_updates import require_online
from icechunk_stream.repository.handle import Handle
from icechunk_stream.repository.reading import resolve
from icechunk_stream.session import Session
from icechunk_stream.tips import RepoTip, read_tip
from icechunk_stream.upkeep import Upkeep
from icechunk_stream.working_copy import Workplace, WritingRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.conflicts import ConflictSolver
    from icechunk_stream.ops.diff import Diff
    from icechunk_stream.store import IcechunkStore


class Sessions(Handle):
    """The part of a repository that opens sessions for writing."""

    def writable_session(self, branch: str) -> Session:
        """A session whose changes are committed to a branch."""
        self._prepare_to_write()
        tip = read_tip(self._assets, self.spec_version, branch)
        if isinstance(tip, RepoTip):
            require_online(tip.held.info)
        place = Workplace(self._writing_rules, self._upkeep, self._commit_metadata)
        return Session.on_branch(self._assets, self._config, self._authorization, tip, place)

    @cached_property
    def _writing_rules(self) -> WritingRules:
        return WritingRules.of(self._config, self.spec_version, self._opened.manifest_policy)

    @cached_property
    def _upkeep(self) -> Upkeep:
        return Upkeep(self._assets)

    @contextmanager
    def transaction(
        self,
        branch: str,
        *,
        message: str,
        metadata: dict[str, Any] | None = None,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1_000,
    ) -> Iterator[IcechunkStore]:
        """A store whose changes are committed when the block ends, unless it raises."""
        session = self.writable_session(branch)
        yield session.store
        session.commit(
            message, metadata=metadata, rebase_with=rebase_with, rebase_tries=rebase_tries
        )

    def diff(
        self,
        *,
        from_branch: str | None = None,
        from_tag: str | None = None,
        from_snapshot_id: str | None = None,
        to_branch: str | None = None,
        to_tag: str | None = None,
        to_snapshot_id: str | None = None,
    ) -> Diff:
        """What was changed between two versions, the first of which is an ancestor of the other."""
        history = self._history()
        start = resolve(history, from_branch, from_tag, from_snapshot_id)
        end = resolve(history, to_branch, to_tag, to_snapshot_id)
        return diff_between(self._assets, history, start, end)

    writable_session_async = in_thread(writable_session)
    diff_async = in_thread(diff)
