"""Replacing the configuration that a repository stores, unless somebody else replaced it first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from icechunk_stream.assets import CONFIG_KEY, backup_key
from icechunk_stream.errors import ConflictError, ErrorKind
from icechunk_stream.format.config_flex import encode_config_flexbuffer
from icechunk_stream.format.config_yaml import encode_config_yaml
from icechunk_stream.format.repo_info_encode import RepoState
from icechunk_stream.format.updates import ConfigChanged
from icechunk_stream.repo_updates import RepoChange, backup_name, update_repo
from icechunk_stream.storage import LostRace, Version, Written

if TYPE_CHECKING:
    from icechunk_stream.assets import Assets
    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.format.repo_info import RepoInfo
    from icechunk_stream.repo_updates import UpdateRules
    from icechunk_stream.storage import Storage

ConfigState: TypeAlias = "Version | bytes | None"
"""What a stored configuration is told apart by: its file's version in v1, itself in v2."""


def save_config_file(storage: Storage, config: RepositoryConfig, known: ConfigState) -> Version:
    """Spec v1: keep the file as it is, then replace it; the answer is its new version."""
    assert known is None or isinstance(known, Version)
    data = encode_config_yaml(config)
    if known is not None:
        kept = storage.copy_if(CONFIG_KEY, backup_key(backup_name(CONFIG_KEY)), known)
        if isinstance(kept, LostRace):
            raise _changed(storage)
    match storage.put_if(CONFIG_KEY, data, known):
        case Written(version):
            return version
        case LostRace():
            raise _changed(storage)


def save_config_in_repo(
    assets: Assets, rules: UpdateRules, config: RepositoryConfig, known: ConfigState
) -> bytes:
    """Spec v2: one more update of the ``repo`` object; the answer is what is stored now."""
    data = encode_config_flexbuffer(config)

    def change(info: RepoInfo) -> RepoChange:
        if info.config != known:
            raise _changed(assets.storage)
        return RepoChange(replace(RepoState.of(info), config=data), ConfigChanged())

    update_repo(assets, rules, change)
    return data


def is_default(config: RepositoryConfig | None) -> bool:
    """Whether nothing is set, so that nothing has to be stored."""
    return config is None or not (
        config.unknown or any(getattr(config, name) is not None for name in config.KINDS)
    )


def _changed(storage: Storage) -> ConflictError:
    message = (
        f"the configuration stored at {storage!r} was changed by others since this repository was"
        " opened: open it again, and apply your settings to what is stored now"
    )
    return ConflictError(message=message, kind=ErrorKind.CONFIG_UPDATED)
