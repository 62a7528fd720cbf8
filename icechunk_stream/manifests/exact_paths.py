"""Regular expressions that find exact paths only, the same ones in either library's engine."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Escaping others means something else, or nothing, to one of the engines.
_SPECIAL = r"\\.+*?()|\[\]{}^$"
_LITERAL = rf"(?:[^{_SPECIAL}]|\\[{_SPECIAL}])*"
_EXACT = re.compile(rf"\^({_LITERAL})(?:\(\?:({_LITERAL}(?:\|{_LITERAL})*)\))?\$")
_NEXT = re.compile(rf"\|({_LITERAL})")


def exact_regex(folder: str, names: Sequence[str]) -> str:
    """Finds these names in a folder, which is written as in ``/group``, the root as nothing."""
    escaped = [_escaped(name) for name in names]
    choice = escaped[0] if len(escaped) == 1 else f"(?:{'|'.join(escaped)})"
    return f"^{_escaped(folder)}/{choice}$"


@lru_cache(maxsize=64)
def exact_paths(regex: str) -> frozenset[str] | None:
    """All that an expression finds, where it is one of ``exact_regex``; else None."""
    match = _EXACT.fullmatch(regex)
    if match is None:
        return None
    start, choice = match.groups()
    names = [""] if choice is None else _NEXT.findall(f"|{choice}")
    return frozenset(_plain(start + name) for name in names)


def _escaped(text: str) -> str:
    return re.sub(rf"[{_SPECIAL}]", r"\\\g<0>", text)


def _plain(escaped: str) -> str:
    return re.sub(r"\\(.)", r"\1", escaped)
