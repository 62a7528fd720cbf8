"""Replacing the configuration that a repository stores, unless somebody else replaced it first.

A configuration is saved as a whole, or edited: then what others made of it meanwhile stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from icechunk_stream.assets import CONFIG_KEY, REPO_KEY, backup_key
from icechunk_stream.effects import random_fraction, sleep
from icechunk_stream.errors import ConflictError, ErrorKind
from icechunk_stream.format.config_flex import (
    config_flexbuffer,
    config_flexbuffer_root,
    encode_config_flexbuffer,
)
from icechunk_stream.format.config_node import Node
from icechunk_stream.format.config_tree import decode_config
from icechunk_stream.format.config_yaml import config_yaml, config_yaml_root, encode_config_yaml
from icechunk_stream.format.repo_info_encode import RepoState
from icechunk_stream.format.updates import ConfigChanged
from icechunk_stream.repo_updates import RepoChange, backup_name, update_repo
from icechunk_stream.storage import Fetched, LostRace, Version, Written
from icechunk_stream.storage.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.assets import Assets
    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.format.config_node import Tree
    from icechunk_stream.format.repo_info import RepoInfo
    from icechunk_stream.repo_updates import UpdateRules
    from icechunk_stream.storage import Storage

ConfigState: TypeAlias = "Version | bytes | None"
"""What a stored configuration is told apart by: its file's version in v1, itself in v2."""

# Lost races of one edit of a file, with pauses between them.
_TRIES = 20
_PAUSES = RetryPolicy(initial_backoff=0.01, max_backoff=2.0)


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """A stored configuration: the document with all that is in it, and what it says to us."""

    root: Node
    config: RepositoryConfig
    state: ConfigState

    @classmethod
    def of(cls, root: Node, state: ConfigState) -> StoredConfig:
        return cls(root, decode_config(root), state)


ConfigEdit: TypeAlias = "Callable[[StoredConfig], dict[str, Tree] | None]"
"""Makes another document of the stored one, or None where that is well as it is."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A stored configuration before and after an edit."""

    before: StoredConfig
    after: StoredConfig


def save_config_file(storage: Storage, config: RepositoryConfig, known: ConfigState) -> Version:
    """Spec v1: keep the file as it is, then replace it; the answer is its new version."""
    match _replace_file(storage, encode_config_yaml(config), known):
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


def read_config_file(storage: Storage) -> StoredConfig:
    """Spec v1: the configuration as it is now, which may be none."""
    found = storage.read(CONFIG_KEY)
    if isinstance(found, Fetched):
        return StoredConfig.of(config_yaml_root(found.data, CONFIG_KEY), found.version)
    return StoredConfig.of(Node({}, CONFIG_KEY, tagged=True), None)


def read_config_in_repo(info: RepoInfo) -> StoredConfig:
    """Spec v2: the configuration that a ``repo`` object has, which may be none."""
    if info.config is None:
        return StoredConfig.of(Node({}, REPO_KEY, tagged=False), None)
    return StoredConfig.of(config_flexbuffer_root(info.config, REPO_KEY), info.config)


def edit_config_file(storage: Storage, edit: ConfigEdit) -> Edited:
    """Spec v1: edit what is stored; after every lost race, what is stored then."""
    for tries in range(1, _TRIES + 1):
        before = read_config_file(storage)
        document = edit(before)
        if document is None:
            return Edited(before, before)
        data = config_yaml(document)
        root = config_yaml_root(data, CONFIG_KEY)
        written = _replace_file(storage, data, before.state)
        if isinstance(written, Written):
            return Edited(before, StoredConfig.of(root, written.version))
        sleep(_PAUSES.pause(tries, random_fraction()))
    raise _exhausted(storage)


def edit_config_in_repo(assets: Assets, rules: UpdateRules, edit: ConfigEdit) -> Edited:
    """Spec v2: the same by updates of the ``repo`` object."""
    seen: list[StoredConfig] = []

    def change(info: RepoInfo) -> RepoChange | None:
        seen.append(read_config_in_repo(info))
        document = edit(seen[-1])
        if document is None:
            return None
        state = replace(RepoState.of(info), config=config_flexbuffer(document))
        return RepoChange(state, ConfigChanged())

    after = read_config_in_repo(update_repo(assets, rules, change))
    return Edited(seen[-1], after)


def is_default(config: RepositoryConfig | None) -> bool:
    """Whether nothing is set, so that nothing has to be stored."""
    return config is None or not (
        config.unknown or any(getattr(config, name) is not None for name in config.KINDS)
    )


def _replace_file(storage: Storage, data: bytes, known: ConfigState) -> Written | LostRace:
    """Keep the file as it is, then replace it."""
    assert known is None or isinstance(known, Version)
    if known is not None:
        kept = storage.copy_if(CONFIG_KEY, backup_key(backup_name(CONFIG_KEY)), known)
        if isinstance(kept, LostRace):
            return kept
    return storage.put_if(CONFIG_KEY, data, known)


def _changed(storage: Storage) -> ConflictError:
    message = (
        f"the configuration stored at {storage!r} was changed by others since this repository was"
        " opened: open it again, and apply your settings to what is stored now"
    )
    return ConflictError(message=message, kind=ErrorKind.CONFIG_UPDATED)


def _exhausted(storage: Storage) -> ConflictError:
    message = (
        f"others changed {CONFIG_KEY!r} of {storage!r} during each of {_TRIES} attempts: try again"
        " later"
    )
    return ConflictError(message=message, kind=ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED)
