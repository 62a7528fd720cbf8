"""How keys are spelled on a local disk: as the reference library's local backend spells them."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from icechunk_stream.effects import random_bytes
from icechunk_stream.storage.base import is_key

_ESCAPED = re.compile(r"[^ !$&-)+-;=@A-Z_a-z]")


def disk_path(key: str) -> str:
    """A key's path below the root, with unusual characters percent-encoded."""
    return _ESCAPED.sub(_percent_encoded, key)


def key_segment(name: str) -> str | None:
    """The segment of a key that a file name spells, or None for a name that no key has."""
    if "%" not in name:
        return None if _ESCAPED.search(name) else name
    try:
        segment = unquote_to_bytes(name).decode()
    except UnicodeDecodeError:
        return None
    return segment if disk_path(segment) == name and is_key(segment) else None


def temporary_name() -> str:
    """A name that nobody guesses, that spells no key, and that the reference library skips too."""
    return f"tmp#{int.from_bytes(random_bytes(16)):039d}"


def _percent_encoded(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())
