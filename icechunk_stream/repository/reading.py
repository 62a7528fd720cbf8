"""What a repository says of itself: refs, history, status, and what its objects hold."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icechunk_stream.errors import ErrorKind, InvalidInputError, SnapshotNotFoundError
from icechunk_stream.format.ids import ManifestId, SnapshotId
from icechunk_stream.format.times import from_micros
from icechunk_stream.in_thread import in_thread, iterate_in_thread
from icechunk_stream.info import (
    FeatureFlag,
    ManifestFileInfo,
    RepoStatus,
    SnapshotInfo,
    SpecVersion,
    Update,
)
from icechunk_stream.ops.feature_flags import feature_flags
from icechunk_stream.ops.inspect import (
    inspect_manifest,
    inspect_repo_info,
    inspect_snapshot,
    inspect_transaction_log,
)
from icechunk_stream.ops.updates import public_status, public_update
from icechunk_stream.repository.handle import Handle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from icechunk_stream.format.repo_info import RepoInfo, SnapshotRecord
    from icechunk_stream.refs import History


class Reading(Handle):
    """What can be asked of a repository without a session."""

    # -- refs ------------------------------------------------------------------------------------

    def list_branches(self) -> set[str]:
        return self._history().branches()

    def lookup_branch(self, branch: str) -> str:
        """The snapshot at the tip of a branch."""
        return str(self._history().branch(branch))

    def list_tags(self) -> set[str]:
        return self._history().tags()

    def lookup_tag(self, tag: str) -> str:
        """The snapshot that a tag names."""
        return str(self._history().tag(tag))

    # -- history ---------------------------------------------------------------------------------

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Message, time and metadata of a commit."""
        return _info(self._history().record(SnapshotId.parse(snapshot_id)))

    def ancestry(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
    ) -> Iterator[SnapshotInfo]:
        """Commits from the one that is named to the first, newest first."""
        history = self._history()
        records = history.ancestry(resolve(history, branch, tag, snapshot_id))
        return (_info(record) for record in records)

    def async_ancestry(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
    ) -> AsyncIterator[SnapshotInfo]:
        """Commits from the one that is named to the first, newest first."""
        return iterate_in_thread(self.ancestry(branch=branch, tag=tag, snapshot_id=snapshot_id))

    def list_manifest_files(self, snapshot_id: str) -> list[ManifestFileInfo]:
        """Manifests that a snapshot uses."""
        snapshot = self._assets.snapshot(SnapshotId.parse(snapshot_id))
        return [
            ManifestFileInfo(str(file.id), file.size_bytes, file.num_chunk_refs)
            for file in snapshot.manifest_files
        ]

    # -- what spec v2 keeps beside the snapshots ---------------------------------------------------

    def get_metadata(self) -> dict[str, Any]:
        """The repository's own metadata."""
        return self._repo_info().metadata

    @property
    def metadata(self) -> dict[str, Any]:
        return self.get_metadata()

    def get_status(self) -> RepoStatus:
        """Whether the repository may be written to."""
        return public_status(self._repo_info().status)

    @property
    def status(self) -> RepoStatus:
        return self.get_status()

    def feature_flags(self) -> list[FeatureFlag]:
        return feature_flags(self._repo_info())

    def enabled_feature_flags(self) -> list[FeatureFlag]:
        return [flag for flag in self.feature_flags() if flag.enabled]

    def disabled_feature_flags(self) -> list[FeatureFlag]:
        return [flag for flag in self.feature_flags() if not flag.enabled]

    def ops_log(self) -> Iterator[Update]:
        """Everything that was done to the repository, newest first."""
        return self._updates(self._repo_info())

    def ops_log_async(self) -> AsyncIterator[Update]:
        """Everything that was done to the repository, newest first."""
        return iterate_in_thread(self.ops_log())

    # -- inspection ------------------------------------------------------------------------------

    def inspect_snapshot(self, snapshot_id: str) -> dict[str, Any]:
        """What a snapshot object holds."""
        return inspect_snapshot(self._assets, SnapshotId.parse(snapshot_id))

    def inspect_manifest(self, manifest_id: str) -> dict[str, Any]:
        """How many references of which kind a manifest object holds."""
        return inspect_manifest(self._assets, ManifestId.parse(manifest_id))

    def inspect_transaction_log(self, snapshot_id: str) -> dict[str, Any]:
        """What a commit changed."""
        id = SnapshotId.parse(snapshot_id)
        return inspect_transaction_log(self._assets, id, self._pruned_logs(id))

    def inspect_repo_info(self) -> dict[str, Any]:
        """What the ``repo`` object of spec v2 holds."""
        return inspect_repo_info(self._repo_info())

    list_branches_async = in_thread(list_branches)
    lookup_branch_async = in_thread(lookup_branch)
    list_tags_async = in_thread(list_tags)
    lookup_tag_async = in_thread(lookup_tag)
    lookup_snapshot_async = in_thread(lookup_snapshot)
    list_manifest_files_async = in_thread(list_manifest_files)
    get_metadata_async = in_thread(get_metadata)
    get_status_async = in_thread(get_status)
    feature_flags_async = in_thread(feature_flags)
    enabled_feature_flags_async = in_thread(enabled_feature_flags)
    disabled_feature_flags_async = in_thread(disabled_feature_flags)
    inspect_snapshot_async = in_thread(inspect_snapshot)
    inspect_manifest_async = in_thread(inspect_manifest)
    inspect_transaction_log_async = in_thread(inspect_transaction_log)
    inspect_repo_info_async = in_thread(inspect_repo_info)

    def _pruned_logs(self, id: SnapshotId) -> tuple[SnapshotId, ...]:
        if self.spec_version == SpecVersion.v1:
            return ()
        with suppress(SnapshotNotFoundError):
            return self._history().record(id).pruned_logs
        return ()

    def _updates(self, info: RepoInfo | None) -> Iterator[Update]:
        """The log page by page; entries that name no backup lie in that of their page."""
        seen: set[str] = set()
        backup: str | None = None
        while info is not None:
            for update in info.updates():
                public = public_update(update)
                yield public if public.backup_path else replace(public, backup_path=backup)
            backup = info.repo_before_updates
            if backup is None or backup in seen:
                return
            seen.add(backup)
            info = self._assets.backup(backup)


def resolve(
    history: History, branch: str | None, tag: str | None, snapshot_id: str | None
) -> SnapshotId:
    """The snapshot that exactly one of the three names."""
    if sum(name is not None for name in (branch, tag, snapshot_id)) != 1:
        message = "name exactly one of branch, tag and snapshot_id"
        raise InvalidInputError(message, ErrorKind.INVALID_REF_NAME)
    if branch is not None:
        return history.branch(branch)
    if tag is not None:
        return history.tag(tag)
    assert snapshot_id is not None
    return SnapshotId.parse(snapshot_id)


def _info(record: SnapshotRecord) -> SnapshotInfo:
    return SnapshotInfo(
        id=str(record.id),
        parent_id=None if record.parent_id is None else str(record.parent_id),
        written_at=from_micros(record.flushed_at),
        message=record.message,
        metadata=record.metadata,
    )
