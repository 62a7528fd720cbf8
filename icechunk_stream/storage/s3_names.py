"""How a repository's keys become the names of objects in a bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.storage.base import is_key
from icechunk_stream.storage.s3_values import Place

if TYPE_CHECKING:
    from collections.abc import Callable

_ENTRIES = ("repo", "refs/branch.main/ref.json")
_ROOT = "/"


@dataclass(frozen=True, slots=True)
class Names:
    """``root`` is what each name begins with; it ends with a slash unless it is empty."""

    root: str

    @classmethod
    def below(cls, prefix: str) -> Names:
        """Names below a prefix, in which nothing but one slash at its end is of no account."""
        normal = normal_prefix(prefix)
        return cls(f"{normal}/" if normal else "")

    def name(self, key: str) -> str:
        return self.root + key

    def key(self, name: str) -> str | None:
        """The key of a listed name; None where others left what no key of ours can name."""
        key = name.removeprefix(self.root)
        return key if is_key(key) else None


def normal_prefix(prefix: str | None) -> str:
    """A prefix as it is shown: without the one slash at its end that means nothing."""
    return (prefix or "").removesuffix("/")


def find_names(prefix: str, rooted: bool | None, look: Callable[[Place], object | None]) -> Names:
    """The names of a repository; at an empty prefix, those below which there is one.

    The reference library before 2.1 began names there with a slash. A server that takes both for
    the same name has the repository at the plain one, too.
    """
    plain, legacy = Names.below(prefix), Names(_ROOT)
    if plain.root or rooted is False:
        return plain
    if rooted:
        return legacy
    is_plain = any(look(Place(key, plain.name(key))) for key in _ENTRIES)
    is_legacy = not is_plain and any(look(Place(key, legacy.name(key))) for key in _ENTRIES)
    return legacy if is_legacy else plain
