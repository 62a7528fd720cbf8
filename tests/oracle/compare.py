"""The differences of two dumps, each as a path and two values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN = 600
_ABSENT = "<absent>"


def differences(
    expected: Any, found: Any, optional: frozenset[str] = frozenset(), path: str = "$"
) -> Iterator[str]:
    """Say where the dumps differ. A key of ``optional`` may be on one side only."""
    if isinstance(expected, dict) and isinstance(found, dict):
        yield from _dict_differences(expected, found, optional, path)
    elif isinstance(expected, list) and isinstance(found, list):
        yield from _list_differences(expected, found, optional, path)
    elif not same_scalar(expected, found):
        yield _report(path, expected, found)


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
    __tracebackhide__ = True
    difference = next(differences(expected, found, optional), None)
    assert difference is None, f"{names[0]} (first) and {names[1]} (second) differ at {difference}"


def _dict_differences(
    expected: dict[Any, Any], found: dict[Any, Any], optional: frozenset[str], path: str
) -> Iterator[str]:
    for key in sorted((expected.keys() ^ found.keys()) - optional, key=str):
        yield _report(f"{path}.{key}", expected.get(key, _ABSENT), found.get(key, _ABSENT))
    for key, value in expected.items():
        if key in found:
            yield from differences(value, found[key], optional, f"{path}.{key}")


def _list_differences(
    expected: list[Any], found: list[Any], optional: frozenset[str], path: str
) -> Iterator[str]:
    for number, (left, right) in enumerate(zip(expected, found, strict=False)):
        yield from differences(left, right, optional, f"{path}[{number}]")
    if len(expected) != len(found):
        yield _report(f"{path} (lengths {len(expected)}, {len(found)})", expected, found)


def _report(path: str, expected: Any, found: Any) -> str:
    return f"{path}:\n  first:  {_shown(expected)}\n  second: {_shown(found)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
