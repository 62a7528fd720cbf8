"""The first difference of two dumps, as a path and two values."""

from __future__ import annotations

from typing import Any

_SHOWN = 600


def first_difference(
    expected: Any, found: Any, optional: frozenset[str] = frozenset(), path: str = "$"
) -> str | None:
    """Say where the dumps differ first, or None. An optional key may be on one side only."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return _dict_difference(expected, found, optional, path)
    if isinstance(expected, list) and isinstance(found, list):
        return _list_difference(expected, found, optional, path)
    if same_scalar(expected, found):
        return None
    return _report(path, expected, found)


def same_scalar(expected: Any, found: Any) -> bool:
    """Equal in type too: 1, 1.0 and True are three values, 0.0 and -0.0 two."""
    if type(expected) is not type(found):
        return False
    if isinstance(expected, float):
        return repr(expected) == repr(found)
    return bool(expected == found)


def assert_same(
    expected: Any, found: Any, names: tuple[str, str], optional: frozenset[str] = frozenset()
) -> None:
    difference = first_difference(expected, found, optional)
    assert difference is None, f"{names[0]} (first) and {names[1]} (second) differ at {difference}"


def _dict_difference(
    expected: dict[Any, Any], found: dict[Any, Any], optional: frozenset[str], path: str
) -> str | None:
    one_sided = (expected.keys() ^ found.keys()) - optional
    if one_sided:
        key = min(one_sided, key=str)
        return _report(f"{path}.{key}", expected.get(key, "<absent>"), found.get(key, "<absent>"))
    for key, value in expected.items():
        if key in found:
            inner = first_difference(value, found[key], optional, f"{path}.{key}")
            if inner is not None:
                return inner
    return None


def _list_difference(
    expected: list[Any], found: list[Any], optional: frozenset[str], path: str
) -> str | None:
    for number, (left, right) in enumerate(zip(expected, found, strict=False)):
        inner = first_difference(left, right, optional, f"{path}[{number}]")
        if inner is not None:
            return inner
    if len(expected) == len(found):
        return None
    return _report(f"{path} (lengths {len(expected)}, {len(found)})", expected, found)


def _report(path: str, expected: Any, found: Any) -> str:
    return f"{path}:\n  first:  {_shown(expected)}\n  second: {_shown(found)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
