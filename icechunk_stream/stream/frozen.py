"""A mapping that does not change, hashes and travels in pickles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def given_fields(value: Any) -> str:  # noqa: ANN401 - any dataclass
    """The repr of a dataclass without the fields that are as by default."""
    shown = []
    for each in fields(value):
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        found = getattr(value, each.name)
        if default is MISSING or found != default:
            shown.append(f"{each.name}={found!r}")
    return f"{type(value).__name__}({', '.join(shown)})"


class FrozenMap(Mapping[K, V]):
    """A mapping in the order in which it was given; hashable whatever its values are."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._items: dict[K, V] = dict(items or {})

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items))

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[object, ...]:
        return (FrozenMap, (self._items,))
