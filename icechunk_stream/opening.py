"""What is at a location: a repository of which spec version, with which stored configuration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from icechunk_stream.assets import CONFIG_KEY, REPO_KEY, HeldRepo
from icechunk_stream.errors import RepositoryNotFoundError
from icechunk_stream.format.config_flex import decode_config_flexbuffer
from icechunk_stream.format.config_yaml import decode_config_yaml
from icechunk_stream.format.repo_info import decode_repo_info
from icechunk_stream.info import SpecVersion
from icechunk_stream.refs import MAIN_REF_KEY
from icechunk_stream.storage import Fetched

if TYPE_CHECKING:
    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.storage import Missing, NotModified, Storage
    from icechunk_stream.stored_config import ConfigState

_OLD_FOLDERS = ("r", "s", "a", "m", "c")
_OLD_STATE = "state.json"


@dataclass(frozen=True, slots=True)
class Found:
    """A repository as it was found; ``config`` is what it stores, if anything.

    ``repo`` is the object of spec v2, which need not be read again while it stays as it is.
    """

    spec_version: SpecVersion
    config: RepositoryConfig | None
    config_state: ConfigState
    repo: HeldRepo | None = None


def find_repository(storage: Storage) -> Found | None:
    """Look for both layouts at once; a ``repo`` object decides, whatever else is there."""
    keys = (REPO_KEY, MAIN_REF_KEY, CONFIG_KEY)
    repo, main, config = storage.together([partial(storage.read, key) for key in keys])
    if isinstance(repo, Fetched):
        info = decode_repo_info(repo.data, REPO_KEY)
        stored = info.config
        decoded = None if stored is None else decode_config_flexbuffer(stored, REPO_KEY)
        return Found(SpecVersion.v2, decoded, stored, HeldRepo(repo.version, info))
    if isinstance(main, Fetched):
        return _found_files(config)
    return None


def require_repository(storage: Storage) -> Found:
    found = find_repository(storage)
    if found is None:
        raise RepositoryNotFoundError(_what_is_there(storage))
    return found


def _found_files(config: Fetched | NotModified | Missing) -> Found:
    if isinstance(config, Fetched):
        decoded = decode_config_yaml(config.data, CONFIG_KEY)
        return Found(SpecVersion.v1, decoded, config.version)
    return Found(SpecVersion.v1, None, None)


def _what_is_there(storage: Storage) -> str:
    if _has_old_layout(storage):
        return (
            f"{storage!r} has the layout of Icechunk before 0.2, which nothing reads any more:"
            " write its data again into a new repository"
        )
    return f"{storage!r} holds no repository: check the path and prefix, or create one there"


def _has_old_layout(storage: Storage) -> bool:
    if storage.stat(_OLD_STATE) is not None:
        return True
    first = next(iter(storage.list("")), None)
    if first is None:
        return False
    there = [next(iter(storage.list(f"{folder}/")), None) for folder in _OLD_FOLDERS]
    refs, snapshots, *_ = (info is not None for info in there)
    return refs and snapshots
