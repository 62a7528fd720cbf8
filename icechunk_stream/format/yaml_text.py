"""YAML text of a tree: block style, strings quoted, so that every reader takes it the same way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from icechunk_stream.format.config_node import Plain, Tagged, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.format.config_node import Tree

_PLAIN_KEY = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)\Z)[a-z][a-z_]*")
# What YAML allows within double quotes as it is, without quote, backslash and byte order mark.
_ESCAPED = re.compile(
    r"[^ !#-\[\]-~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
# A key before a colon may have 1024 characters, escapes included.
_MAX_KEY = 128


def yaml_text(tree: dict[str, Tree]) -> str:
    """The document; the caller bounds how deep the tree is."""
    lines = _block(tree) if tree else ["{}"]
    return "".join(f"{line}\n" for line in lines)


def _block(tree: dict[str, Tree] | list[Tree]) -> Iterator[str]:
    if isinstance(tree, list):
        for item in tree:
            yield from _entry("-", item)
        return
    for name, value in tree.items():
        key = name if _PLAIN_KEY.fullmatch(name) else _quoted(name)
        if len(name) > _MAX_KEY:
            yield f"? {key}"
            key = ""
        yield from _entry(f"{key}:", value)


def _entry(prefix: str, tree: Tree) -> Iterator[str]:
    if isinstance(tree, Tagged):
        yield from _entry(f"{prefix} !{tree.variant}", tree.value)
    elif isinstance(tree, dict | list) and tree:
        yield prefix
        yield from (f"  {line}" for line in _block(tree))
    else:
        yield f"{prefix} {_scalar(tree)}"


def _scalar(tree: Tree) -> str:
    match tree:
        case str():
            return _quoted(tree)
        case Plain(text):
            return _quoted(text) if isinstance(resolve(tree), str) else text
        case None | bool():
            return {None: "null", True: "true", False: "false"}[tree]
        case _:
            return repr(tree)  # a number, or an empty container, which looks the same in YAML


def _quoted(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
