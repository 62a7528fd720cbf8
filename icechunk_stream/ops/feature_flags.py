"""Feature flags of a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.errors import ErrorKind, InvalidInputError, SessionStateError
from icechunk_stream.info import FeatureFlag

if TYPE_CHECKING:
    from icechunk_stream.format.repo_info import RepoInfo

MOVE_NODE, CREATE_TAG, DELETE_TAG = 3, 4, 5
_NAMES = {MOVE_NODE: "move_node", CREATE_TAG: "create_tag", DELETE_TAG: "delete_tag"}


def feature_flags(info: RepoInfo) -> list[FeatureFlag]:
    """Every flag, with what the repository sets it to."""
    return [
        FeatureFlag(id, name, default_enabled=True, setting=_setting(info, id))
        for id, name in _NAMES.items()
    ]


def flag_id(name: str) -> int:
    """The number under which the flag is stored."""
    for id, known in _NAMES.items():
        if known == name:
            return id
    message = f"the feature flag {name!r} is unknown: the flags are {', '.join(_NAMES.values())}"
    raise InvalidInputError(message, ErrorKind.INVALID_FEATURE_FLAG)


def require_flag(info: RepoInfo, id: int) -> None:
    """Refuse what the repository's flags forbid."""
    if _setting(info, id) is False:
        name = _NAMES[id]
        message = (
            f"the repository forbids it by its feature flag {name}:"
            f" set_feature_flag({name!r}, True) allows it again"
        )
        raise SessionStateError(message, ErrorKind.FEATURE_FLAG_DISABLED)


def _setting(info: RepoInfo, id: int) -> bool | None:
    if id in info.enabled_flags:
        return True
    return False if id in info.disabled_flags else None
