"""Changes of a repository beside commits: refs, metadata, status, flags, configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.repo_info_encode import RepoState
from icechunk_stream.format.updates import FeatureFlagChanged, MetadataChanged, StatusChanged
from icechunk_stream.in_thread import in_thread
from icechunk_stream.info import RepoStatus, SpecVersion
from icechunk_stream.ops.feature_flags import flag_id
from icechunk_stream.ops.updates import stored_status
from icechunk_stream.ref_changes import RefChanges, RefFileChanges, RepoRefChanges
from icechunk_stream.repo_updates import RepoChange, update_repo
from icechunk_stream.repository.handle import Handle, checked_metadata
from icechunk_stream.stored_config import save_config_file, save_config_in_repo

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.format.repo_info import RepoInfo


class Changing(Handle):
    """What can be done to a repository without a session."""

    # -- refs ------------------------------------------------------------------------------------

    def create_branch(self, branch: str, snapshot_id: str) -> None:
        """A new branch, whose tip is the snapshot."""
        id = SnapshotId.parse(snapshot_id)
        self._ref_changes().create_branch(branch, id)

    def reset_branch(
        self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None
    ) -> None:
        """Point a branch at another snapshot: what it leaves behind is lost to its history.

        Args:
            branch: the branch.
            snapshot_id: its new tip.
            from_snapshot_id: where the branch has to be, or it stays as it is.
        """
        id = SnapshotId.parse(snapshot_id)
        expected = None if from_snapshot_id is None else SnapshotId.parse(from_snapshot_id)
        self._ref_changes().reset_branch(branch, id, expected)

    def delete_branch(self, branch: str) -> None:
        """Delete a branch; its snapshots stay until garbage is collected."""
        self._ref_changes().delete_branch(branch)

    def create_tag(self, tag: str, snapshot_id: str) -> None:
        """A name for a snapshot that never moves."""
        id = SnapshotId.parse(snapshot_id)
        self._ref_changes().create_tag(tag, id)

    def delete_tag(self, tag: str) -> None:
        """Delete a tag; no tag can have its name again."""
        self._ref_changes().delete_tag(tag)

    # -- what spec v2 keeps beside the snapshots ---------------------------------------------------

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the repository's own metadata."""
        new = checked_metadata(metadata, SpecVersion.v2)
        self._update(lambda info: _metadata_changed(info, new))

    def update_metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Set items of the repository's own metadata, keep the others, and return all."""
        new = checked_metadata(metadata, SpecVersion.v2)
        return self._update(lambda info: _metadata_changed(info, {**info.metadata, **new})).metadata

    def set_status(self, status: RepoStatus) -> None:
        """Allow or forbid writing to the repository."""
        if not isinstance(status, RepoStatus):
            raise TypeError(f"a RepoStatus is expected, not {status!r}")
        new = stored_status(status)

        def change(info: RepoInfo) -> RepoChange:
            return RepoChange(replace(RepoState.of(info), status=new), StatusChanged(new))

        self._update(change, needs_online=False)

    def set_feature_flag(self, name: str, setting: bool | None) -> None:
        """Allow or forbid something; None is the default again."""
        self._require_v2()
        id = flag_id(name)
        self._update(lambda info: _flag_changed(info, id, setting))

    # -- configuration ---------------------------------------------------------------------------

    def save_config(self) -> None:
        """Store this repository's configuration, unless others stored one since it was opened."""
        self._prepare_to_write()
        config, known = self._config, self._opened.config_state
        if self.spec_version == SpecVersion.v1:
            self._stored(save_config_file(self.storage, config, known))
        else:
            self._stored(save_config_in_repo(self._assets, self._update_rules, config, known))

    create_branch_async = in_thread(create_branch)
    reset_branch_async = in_thread(reset_branch)
    delete_branch_async = in_thread(delete_branch)
    create_tag_async = in_thread(create_tag)
    delete_tag_async = in_thread(delete_tag)
    set_metadata_async = in_thread(set_metadata)
    update_metadata_async = in_thread(update_metadata)
    set_status_async = in_thread(set_status)
    set_feature_flag_async = in_thread(set_feature_flag)
    save_config_async = in_thread(save_config)

    def _ref_changes(self) -> RefChanges:
        self._prepare_to_write()
        if self.spec_version == SpecVersion.v1:
            return RefFileChanges(self._assets)
        return RepoRefChanges(self._assets, self._update_rules)

    def _update(
        self, change: Callable[[RepoInfo], RepoChange], *, needs_online: bool = True
    ) -> RepoInfo:
        self._require_v2()
        self._prepare_to_write()
        return update_repo(self._assets, self._update_rules, change, needs_online=needs_online)


def _metadata_changed(info: RepoInfo, metadata: dict[str, Any]) -> RepoChange:
    return RepoChange(replace(RepoState.of(info), metadata=metadata), MetadataChanged())


def _flag_changed(info: RepoInfo, id: int, setting: bool | None) -> RepoChange:
    state = replace(
        RepoState.of(info),
        enabled_flags=info.enabled_flags - {id} | ({id} if setting is True else set()),
        disabled_flags=info.disabled_flags - {id} | ({id} if setting is False else set()),
    )
    return RepoChange(state, FeatureFlagChanged(id, setting))
