"""What an open repository consists of; everything that it can do is built on this."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from icechunk_stream.assets import Assets, CacheLimits
from icechunk_stream.config import StorageSettings, with_defaults
from icechunk_stream.errors import ErrorKind, FormatError
from icechunk_stream.format.values import encode_value
from icechunk_stream.info import SpecVersion
from icechunk_stream.manifests.policy import Tiered
from icechunk_stream.preparing import prepare_to_write
from icechunk_stream.refs import History, RefFiles, RepoObject
from icechunk_stream.repo_updates import UpdateRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.credentials import Authorization
    from icechunk_stream.format.repo_info import RepoInfo
    from icechunk_stream.manifests.policy import ManifestPolicy
    from icechunk_stream.opening import Found
    from icechunk_stream.storage import Storage
    from icechunk_stream.stored_config import ConfigState


@dataclass(frozen=True, slots=True)
class Opened:
    """What was opened, and with what; ``config_state`` tells if what is stored has changed."""

    storage: Storage
    spec_version: SpecVersion
    config: RepositoryConfig
    config_state: ConfigState
    authorization: Authorization
    manifest_policy: ManifestPolicy = field(default_factory=Tiered)

    @classmethod
    def of(
        cls, storage: Storage, found: Found, config: RepositoryConfig, authorization: Authorization
    ) -> Opened:
        return cls(storage, found.spec_version, config, found.config_state, authorization)


class Handle:
    """An open repository. Pickles carry all but what was read."""

    def __init__(self, opened: Opened, commit_metadata: Mapping[str, Any] | None = None) -> None:
        self._opened = opened
        self._commit_metadata = dict(commit_metadata or {})
        self._assets = _assets(opened)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self._opened, self._commit_metadata))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.storage!r}, spec v{int(self.spec_version)})"

    @property
    def spec_version(self) -> SpecVersion:
        return self._opened.spec_version

    @property
    def config(self) -> RepositoryConfig:
        """A copy of the settings given on opening, then of the stored ones; None is the default."""
        return copy.deepcopy(self._config)

    @property
    def storage(self) -> Storage:
        return self._assets.storage

    @property
    def authorized_virtual_container_prefixes(self) -> set[str]:
        return set(self._authorization.prefixes)

    def default_commit_metadata(self) -> dict[str, Any]:
        """Metadata that sessions opened from now on add to their commits."""
        return copy.deepcopy(self._commit_metadata)

    def set_default_commit_metadata(self, metadata: dict[str, Any]) -> None:
        """Metadata that sessions opened from now on add to their commits; none if it is empty."""
        self._commit_metadata = checked_metadata(metadata, self.spec_version)

    @property
    def _config(self) -> RepositoryConfig:
        return self._opened.config

    @property
    def _authorization(self) -> Authorization:
        return self._opened.authorization

    @property
    def _update_rules(self) -> UpdateRules:
        return UpdateRules.of(self._config)

    def _history(self) -> History:
        if self.spec_version == SpecVersion.v1:
            return RefFiles(self._assets)
        return RepoObject(self._assets.repo_info())

    def _repo_info(self) -> RepoInfo:
        self._require_v2()
        return self._assets.repo_info()

    def _require_v2(self) -> None:
        if self.spec_version == SpecVersion.v1:
            message = "this needs a repository of spec v2, and the repository has spec v1"
            raise FormatError(message, ErrorKind.UNSUPPORTED_SPEC_VERSION)

    def _prepare_to_write(self) -> None:
        prepare_to_write(self.storage, self._config.storage)

    def _begin_with(self, found: Found) -> None:
        """Keep what opening has read."""
        if found.repo is not None:
            self._assets.hold_repo(found.repo.version, found.repo.info)

    def _stored(self, state: ConfigState) -> None:
        """Remember which configuration is stored now."""
        self._opened = replace(self._opened, config_state=state)


def checked_metadata(metadata: Mapping[str, Any], spec_version: SpecVersion) -> dict[str, Any]:
    """A copy of metadata that can be stored."""
    if not isinstance(metadata, dict):
        raise TypeError(f"metadata is a dict, not {metadata!r}")
    for name, value in metadata.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a metadata item is a string, not {name!r}")
        encode_value(value, spec_version, f"the metadata item {name!r}")
    return copy.deepcopy(dict(metadata))


def _assets(opened: Opened) -> Assets:
    caching = with_defaults(opened.config).caching
    assert caching is not None
    storage = opened.storage.with_settings(opened.config.storage or StorageSettings())
    return Assets(storage, CacheLimits.of(caching))
