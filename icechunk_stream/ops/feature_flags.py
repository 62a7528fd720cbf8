"""Feature flags of a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.info import FeatureFlag

if TYPE_CHECKING:
    from icechunk_stream.format.repo_info import RepoInfo

_NAMES = {3: "move_node", 4: "create_tag", 5: "delete_tag"}


def feature_flags(info: RepoInfo) -> list[FeatureFlag]:
    """Every flag, with what the repository sets it to."""
    return [
        FeatureFlag(id, name, default_enabled=True, setting=_setting(info, id))
        for id, name in _NAMES.items()
    ]


def _setting(info: RepoInfo, id: int) -> bool | None:
    if id in info.enabled_flags:
        return True
    return False if id in info.disabled_flags else None
