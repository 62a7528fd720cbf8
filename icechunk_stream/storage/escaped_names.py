"""How keys are spelled in stores reached through obstore, as the reference library spells them."""

from __future__ import annotations

from dataclasses import dataclass

from icechunk_stream.storage.base import is_key
from icechunk_stream.storage.local_names import disk_path, key_segment

_DOTS = {".": "%2E", "..": "%2E%2E"}


@dataclass(frozen=True, slots=True)
class EscapedNames:
    """``root`` is what each name begins with; it ends with a slash unless it is empty."""

    root: str

    @classmethod
    def below(cls, prefix: str | None) -> EscapedNames:
        """Names below a prefix, whose empty segments are of no account."""
        segments = [_escaped(part) for part in (prefix or "").split("/") if part]
        return cls("".join(f"{segment}/" for segment in segments))

    def name(self, key: str) -> str:
        return self.root + disk_path(key)

    def key(self, name: str) -> str | None:
        """The key of a listed name; None where others left what no key of ours can name."""
        if not name.startswith(self.root):
            return None
        segments = [key_segment(part) for part in name[len(self.root) :].split("/")]
        key = "/".join(segment or "" for segment in segments)
        return key if is_key(key) else None


def _escaped(segment: str) -> str:
    return _DOTS.get(segment) or disk_path(segment)
