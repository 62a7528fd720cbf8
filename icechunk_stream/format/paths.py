"""Paths of nodes: absolute, ``/`` the root, and nothing in them to resolve."""

from __future__ import annotations

from icechunk_stream.errors import ErrorKind, InvalidInputError

ROOT = "/"
_UNRESOLVED = frozenset(("", ".", ".."))


def is_canonical(path: str) -> bool:
    """Whether a stored path is absolute, without empty, ``.`` or ``..`` components."""
    if path == ROOT:
        return True
    return path.startswith(ROOT) and _UNRESOLVED.isdisjoint(path[1:].split(ROOT))


def is_child(path: str, of: str) -> bool:
    """Whether a path is directly below another one."""
    parent, _, name = path.rpartition(ROOT)
    return bool(name) and (parent or ROOT) == of


def check_unicode(path: str) -> None:
    """Refuse a path that has no UTF-8, which is what is stored."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        message = f"invalid path {path!r}: it holds a lone surrogate; write it in valid Unicode"
        raise InvalidInputError(message, ErrorKind.INVALID_PATH) from error


def canonical(path: str) -> str:
    """The stored form of a path that a caller gave, with or without its leading slash."""
    absolute = path if path.startswith(ROOT) else ROOT + path
    if not is_canonical(absolute):
        message = f"invalid path {path!r}: write it as /group/array, without empty, . or .. parts"
        raise InvalidInputError(message, ErrorKind.INVALID_PATH)
    return absolute
