"""Sessions that change a branch, and what lies between two snapshots."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from icechunk_stream.format.config_rules import with_split_rules
from icechunk_stream.in_thread import in_thread
from icechunk_stream.info import SpecVersion
from icechunk_stream.manifests.managed_rules import rules_for, unspoken
from icechunk_stream.ops.diff import diff as diff_between
from icechunk_stream.repo_updates import require_online
from icechunk_stream.repository.handle import Handle
from icechunk_stream.repository.reading import resolve
from icechunk_stream.repository.splitting import split_sizes, with_stored_rules
from icechunk_stream.session import Session
from icechunk_stream.stored_config import (
    edit_config_file,
    edit_config_in_repo,
    read_config_file,
    read_config_in_repo,
)
from icechunk_stream.tips import RepoTip, read_tip
from icechunk_stream.upkeep import Upkeep
from icechunk_stream.working_copy import Workplace, WritingRules

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from icechunk_stream.conflicts import ConflictSolver
    from icechunk_stream.format.config_node import Tree
    from icechunk_stream.manifests.managed_rules import CellSizes
    from icechunk_stream.ops.diff import Diff
    from icechunk_stream.store import IcechunkStore
    from icechunk_stream.stored_config import ConfigEdit, Edited, StoredConfig


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

    def split_new_arrays(self, cells: Mapping[str, CellSizes], session: Session) -> None:
        """Store how arrays that a session makes are split, unless rules speak of them already.

        The session goes by it, and so do those opened from now on.
        """
        wanted = unspoken(split_sizes(self._config), cells)
        if not wanted:
            return

        def edit(stored: StoredConfig) -> dict[str, Tree] | None:
            rules = rules_for(unspoken(split_sizes(stored.config), wanted))
            return with_split_rules(stored.root, rules) if rules else None

        edited = self._edit_config(edit)
        if edited.before.state == self._opened.config_state:
            self._stored(edited.after.state)
        self._follow(edited.after, wanted)
        session.follow(self._config, self._writing_rules)

    def follow_stored_splitting(self, paths: Collection[str]) -> None:
        """Go by the stored rules for exactly these arrays, where the given ones are silent."""
        wanted = unspoken(split_sizes(self._config), dict.fromkeys(paths, ()))
        if wanted:
            self._follow(self._stored_config(), wanted)

    def _edit_config(self, edit: ConfigEdit) -> Edited:
        if self.spec_version == SpecVersion.v1:
            return edit_config_file(self.storage, edit)
        return edit_config_in_repo(self._assets, self._update_rules, edit)

    def _stored_config(self) -> StoredConfig:
        if self.spec_version == SpecVersion.v1:
            return read_config_file(self.storage)
        return read_config_in_repo(self._assets.repo_info())

    def _follow(self, stored: StoredConfig, paths: Collection[str]) -> None:
        config = with_stored_rules(self._config, stored.config, paths)
        self._opened = replace(self._opened, config=config)
        self._writing_rules = WritingRules.of(
            config, self.spec_version, self._opened.manifest_policy
        )

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
