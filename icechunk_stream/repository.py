"""A repository: its refs and history, and sessions on its snapshots."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from icechunk_stream.assets import Assets, CacheLimits
from icechunk_stream.config import RepositoryConfig, StorageSettings, with_defaults
from icechunk_stream.credentials import Authorization
from icechunk_stream.errors import (
    ErrorKind,
    FormatError,
    InvalidInputError,
    SnapshotNotFoundError,
)
from icechunk_stream.format.ids import ManifestId, SnapshotId
from icechunk_stream.format.times import from_micros, to_micros
from icechunk_stream.in_thread import in_thread, iterate_in_thread
from icechunk_stream.info import (
    FeatureFlag,
    ManifestFileInfo,
    RepoStatus,
    SnapshotInfo,
    SpecVersion,
    Update,
)
from icechunk_stream.opening import find_repository, require_repository
from icechunk_stream.ops.feature_flags import feature_flags
from icechunk_stream.ops.inspect import (
    inspect_manifest,
    inspect_repo_info,
    inspect_snapshot,
    inspect_transaction_log,
)
from icechunk_stream.ops.updates import public_status, public_update
from icechunk_stream.refs import History, RefFiles, RepoObject
from icechunk_stream.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from datetime import datetime

    from icechunk_stream.credentials import AnyCredential
    from icechunk_stream.format.repo_info import RepoInfo, SnapshotRecord
    from icechunk_stream.storage import Storage


class Repository:
    """Open one with ``Repository.open(storage)``."""

    def __init__(
        self,
        assets: Assets,
        spec_version: SpecVersion,
        config: RepositoryConfig,
        authorization: Authorization,
    ) -> None:
        self._assets = assets
        self._spec_version = spec_version
        self._config = config
        self._authorization = authorization

    @classmethod
    def open(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, AnyCredential | None] | None = None,
    ) -> Self:
        """Open the repository at a location.

        Args:
            storage: where the repository is.
            config: settings that go before the stored ones.
            authorize_virtual_chunk_access: the containers, by url_prefix, whose virtual chunks may
                be read, and the credentials to use for each. Chunks elsewhere are never read.
        """
        found = require_repository(storage)
        stored = found.config or RepositoryConfig()
        merged = stored if config is None else stored.merge(config)
        caching = with_defaults(merged).caching
        assert caching is not None
        configured = storage.with_settings(merged.storage or StorageSettings())
        assets = Assets(configured, CacheLimits.of(caching))
        authorization = Authorization(dict(authorize_virtual_chunk_access or {}))
        return cls(assets, found.spec_version, merged, authorization)

    @staticmethod
    def exists(storage: Storage, storage_settings: StorageSettings | None = None) -> bool:  # noqa: ARG004
        """Whether a repository is at a location."""
        return find_repository(storage) is not None

    @staticmethod
    def fetch_spec_version(
        storage: Storage,
        storage_settings: StorageSettings | None = None,  # noqa: ARG004
    ) -> SpecVersion | None:
        """The spec version of the repository at a location, or None where there is none."""
        found = find_repository(storage)
        return None if found is None else found.spec_version

    @staticmethod
    def fetch_config(storage: Storage) -> RepositoryConfig | None:
        """The configuration that a repository stores, or None where it stores none."""
        return require_repository(storage).config

    def __reduce__(self) -> tuple[object, ...]:
        state = (self._assets, self._spec_version, self._config, self._authorization)
        return (Repository, state)

    def __repr__(self) -> str:
        return f"Repository({self._assets.storage!r}, spec v{int(self._spec_version)})"

    @property
    def spec_version(self) -> SpecVersion:
        return self._spec_version

    @property
    def config(self) -> RepositoryConfig:
        """Settings given on opening, then the stored ones; None is the default."""
        return self._config

    @property
    def storage(self) -> Storage:
        return self._assets.storage

    @property
    def authorized_virtual_container_prefixes(self) -> set[str]:
        return set(self._authorization.prefixes)

    def with_pickled_credentials(self) -> Repository:
        """The same repository, whose pickles carry static credentials: keep them as secret."""
        assets = Assets(self.storage.with_pickled_credentials(), self._assets.limits)
        authorization = Authorization(self._authorization.prefixes, pickle_static=True)
        return Repository(assets, self._spec_version, self._config, authorization)

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
        records = history.ancestry(_resolve(history, branch, tag, snapshot_id))
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
            for file in snapshot.manifest_files.values()
        ]

    # -- sessions --------------------------------------------------------------------------------

    def readonly_session(
        self,
        branch: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
    ) -> Session:
        """A session that reads a branch, a tag or a snapshot; a branch also as it was at a time."""
        if as_of is not None and branch is None:
            raise InvalidInputError("as_of needs a branch", ErrorKind.INVALID_REF_NAME)
        history = self._history()
        id = _resolve(history, branch, tag, snapshot_id)
        if as_of is not None:
            id = _newest_before(history, id, as_of)
        elif snapshot_id is not None:
            id = history.record(id).id
        return Session(self._assets, self._config, self._authorization, id)

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
    readonly_session_async = in_thread(readonly_session)
    get_metadata_async = in_thread(get_metadata)
    get_status_async = in_thread(get_status)
    feature_flags_async = in_thread(feature_flags)
    enabled_feature_flags_async = in_thread(enabled_feature_flags)
    disabled_feature_flags_async = in_thread(disabled_feature_flags)
    inspect_snapshot_async = in_thread(inspect_snapshot)
    inspect_manifest_async = in_thread(inspect_manifest)
    inspect_transaction_log_async = in_thread(inspect_transaction_log)
    inspect_repo_info_async = in_thread(inspect_repo_info)
    exists_async = staticmethod(in_thread(exists))
    fetch_config_async = staticmethod(in_thread(fetch_config))
    fetch_spec_version_async = staticmethod(in_thread(fetch_spec_version))

    @classmethod
    async def open_async(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, AnyCredential | None] | None = None,
    ) -> Self:
        """``open`` for an event loop."""
        return await in_thread(cls.open)(storage, config, authorize_virtual_chunk_access)

    def _history(self) -> History:
        if self._spec_version == SpecVersion.v1:
            return RefFiles(self._assets)
        return RepoObject(self._assets.repo_info())

    def _repo_info(self) -> RepoInfo:
        if self._spec_version == SpecVersion.v1:
            message = "this needs a repository of spec v2, and the repository has spec v1"
            raise FormatError(message, ErrorKind.UNSUPPORTED_SPEC_VERSION)
        return self._assets.repo_info()

    def _pruned_logs(self, id: SnapshotId) -> tuple[SnapshotId, ...]:
        if self._spec_version == SpecVersion.v1:
            return ()
        with suppress(SnapshotNotFoundError):
            return self._history().record(id).pruned_logs
        return ()

    def _updates(self, info: RepoInfo | None) -> Iterator[Update]:
        """The log page by page; the newest entry of an earlier page is told where it lies."""
        seen: set[str] = set()
        backup: str | None = None
        while info is not None:
            for number, update in enumerate(info.updates()):
                public = public_update(update)
                yield public if number else replace(public, backup_path=backup)
            backup = info.repo_before_updates
            if backup is None or backup in seen:
                return
            seen.add(backup)
            info = self._assets.backup(backup)


def _resolve(
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


def _newest_before(history: History, id: SnapshotId, as_of: datetime) -> SnapshotId:
    if as_of.tzinfo is None:
        raise TypeError("as_of needs a time zone: a time without one may mean another moment")
    limit = to_micros(as_of)
    for record in history.ancestry(id):
        if record.flushed_at <= limit:
            return record.id
    message = f"the branch has no snapshot of {as_of.isoformat()} or before"
    raise SnapshotNotFoundError(message, ErrorKind.NO_SNAPSHOT_AT_TIME)


def _info(record: SnapshotRecord) -> SnapshotInfo:
    return SnapshotInfo(
        id=str(record.id),
        parent_id=None if record.parent_id is None else str(record.parent_id),
        written_at=from_micros(record.flushed_at),
        message=record.message,
        metadata=record.metadata,
    )
