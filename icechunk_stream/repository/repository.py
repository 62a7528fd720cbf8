"""A repository created or opened, and sessions on its snapshots."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from icechunk_stream.config import RepositoryConfig, StorageSettings
from icechunk_stream.creating import await_repository, create_repository
from icechunk_stream.credentials import Authorization
from icechunk_stream.errors import (
    ConflictError,
    ErrorKind,
    InvalidInputError,
    SnapshotNotFoundError,
)
from icechunk_stream.format.times import to_micros
from icechunk_stream.in_thread import in_thread
from icechunk_stream.info import SpecVersion
from icechunk_stream.opening import Found, find_repository, require_repository
from icechunk_stream.repository.changing import Changing
from icechunk_stream.repository.handle import Opened
from icechunk_stream.repository.maintaining import Maintaining
from icechunk_stream.repository.reading import Reading, resolve
from icechunk_stream.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from icechunk_stream.credentials import AnyCredential
    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.manifests.policy import ManifestPolicy
    from icechunk_stream.refs import History
    from icechunk_stream.storage import Storage

# How creating fails where another creator was quicker.
_CREATED_BY_OTHERS = (
    ErrorKind.BRANCH_UPDATE_CONFLICT,
    ErrorKind.REPO_INFO_UPDATED,
    ErrorKind.PARENT_DIRECTORY_NOT_CLEAN,
)


class Repository(Reading, Changing, Maintaining):
    """Open one with ``Repository.open(storage)``, make one with ``Repository.create(storage)``."""

    @classmethod
    def create(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, AnyCredential | None] | None = None,
        spec_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
    ) -> Self:
        """Create a repository; of several creators at one place, one at most succeeds.

        Args:
            storage: where the repository will be; on clouds below a prefix.
            config: its settings, which are stored in it.
            authorize_virtual_chunk_access: as for ``open``.
            spec_version: of the format; the newest one by default.
            check_clean_root: whether the place has to be empty.
        """
        version = _spec_version(spec_version)
        given = RepositoryConfig() if config is None else copy.deepcopy(config)
        configured = storage.with_settings(given.storage or StorageSettings())
        found = create_repository(configured, version, given, check_clean_root=check_clean_root)
        return cls._of(storage, found, None, authorize_virtual_chunk_access)

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
        return cls._of(storage, found, config, authorize_virtual_chunk_access)

    @classmethod
    def open_or_create(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, AnyCredential | None] | None = None,
        create_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
    ) -> Self:
        """Open the repository at a location, or create it; several may do so at once.

        Args:
            storage: where the repository is, or will be.
            config: settings that go before the stored ones, or that are stored when it is created.
            authorize_virtual_chunk_access: as for ``open``.
            create_version: of the format, if the repository is created.
            check_clean_root: whether the place has to be empty, if the repository is created.
        """
        access = authorize_virtual_chunk_access
        version = _spec_version(create_version)
        found = find_repository(storage)
        if found is None:
            try:
                return cls.create(storage, config, access, version, check_clean_root)
            except (ConflictError, InvalidInputError) as error:
                found = _created_by_others(storage, error)
        return cls._of(storage, found, config, access)

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

    def reopen(
        self,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, AnyCredential | None] | None = None,
    ) -> Self:
        """The same repository with other settings or credentials; what is not given stays."""
        opened = self._opened
        if config is not None:
            opened = replace(opened, config=opened.config.merge(config))
        if authorize_virtual_chunk_access is not None:
            authorization = Authorization(dict(authorize_virtual_chunk_access))
            opened = replace(opened, authorization=authorization)
        return type(self)(opened)

    def with_pickled_credentials(self) -> Self:
        """The same repository, whose pickles carry static credentials: keep them as secret."""
        authorization = Authorization(self._authorization.prefixes, pickle_static=True)
        storage = self._opened.storage.with_pickled_credentials()
        opened = replace(self._opened, storage=storage, authorization=authorization)
        return type(self)(opened, self._commit_metadata)

    def with_manifest_policy(self, policy: ManifestPolicy) -> Self:
        """The same repository, whose sessions lay manifests out by another policy."""
        return type(self)(replace(self._opened, manifest_policy=policy), self._commit_metadata)

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
        id = resolve(history, branch, tag, snapshot_id)
        if as_of is not None:
            id = _newest_before(history, id, as_of)
        elif snapshot_id is not None:
            id = history.record(id).id
        return Session(self._assets, self._config, self._authorization, id)

    readonly_session_async = in_thread(readonly_session)
    reopen_async = in_thread(reopen)
    exists_async = staticmethod(in_thread(exists))
    fetch_config_async = staticmethod(in_thread(fetch_config))
    fetch_spec_version_async = staticmethod(in_thread(fetch_spec_version))

    @classmethod
    async def create_async(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, AnyCredential | None] | None = None,
        spec_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
    ) -> Self:
        """``create`` for an event loop."""
        access = authorize_virtual_chunk_access
        return await in_thread(cls.create)(storage, config, access, spec_version, check_clean_root)

    @classmethod
    async def open_async(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, AnyCredential | None] | None = None,
    ) -> Self:
        """``open`` for an event loop."""
        return await in_thread(cls.open)(storage, config, authorize_virtual_chunk_access)

    @classmethod
    async def open_or_create_async(
        cls,
        storage: Storage,
        config: RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Mapping[str, AnyCredential | None] | None = None,
        create_version: SpecVersion | int | None = None,
        check_clean_root: bool = True,
    ) -> Self:
        """``open_or_create`` for an event loop."""
        access = authorize_virtual_chunk_access
        create = in_thread(cls.open_or_create)
        return await create(storage, config, access, create_version, check_clean_root)

    @classmethod
    def _of(
        cls,
        storage: Storage,
        found: Found,
        config: RepositoryConfig | None,
        access: Mapping[str, AnyCredential | None] | None,
    ) -> Self:
        stored = found.config or RepositoryConfig()
        merged = stored if config is None else stored.merge(config)
        opened = Opened.of(storage, found, merged, Authorization(dict(access or {})))
        repository = cls(opened)
        repository._begin_with(found)
        return repository


def _spec_version(given: SpecVersion | int | None) -> SpecVersion:
    if given is None:
        return SpecVersion.current()
    try:
        return SpecVersion(given)
    except ValueError as error:
        message = f"spec version {given!r} is unknown: give 1 or 2"
        raise InvalidInputError(message, ErrorKind.UNSUPPORTED_SPEC_VERSION) from error


def _created_by_others(storage: Storage, error: ConflictError | InvalidInputError) -> Found:
    """The repository because of which creating failed, or that failure."""
    found = await_repository(storage) if error.kind in _CREATED_BY_OTHERS else None
    if found is None:
        raise error
    return found


def _newest_before(history: History, id: SnapshotId, as_of: datetime) -> SnapshotId:
    if as_of.tzinfo is None:
        raise TypeError("as_of needs a time zone: a time without one may mean another moment")
    found = history.newest_at(id, to_micros(as_of))
    if found is None:
        message = f"the branch has no snapshot of {as_of.isoformat()} or before"
        raise SnapshotNotFoundError(message, ErrorKind.NO_SNAPSHOT_AT_TIME)
    return found
