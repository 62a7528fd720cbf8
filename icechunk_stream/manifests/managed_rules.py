"""Splitting rules for arrays yet to be made, beside those that users wrote."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from icechunk_stream.config import (
    SplitAnyArray,
    SplitAnyDimension,
    SplitDimCondition,
    SplitPathMatches,
)
from icechunk_stream.config.fields import U32
from icechunk_stream.manifests.exact_paths import exact_paths, exact_regex
from icechunk_stream.manifests.splitting import is_about

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from icechunk_stream.config import SplitCondition, SplitRule, SplitSizes

CellSizes: TypeAlias = tuple[tuple[SplitDimCondition, int], ...]
"""Chunks of a cell along those axes that are cut."""

# Engines refuse expressions that are too large; these stay far below.
_NAMES_AT_ONCE = 1_000
_ANYTHING = (SplitPathMatches(".*"), SplitAnyArray())
_NO_CUT = ((SplitAnyDimension(), U32.high),)


def rules_for(cells: Mapping[str, CellSizes]) -> SplitSizes:
    """Rules for exactly these arrays: one for all those of a group that are cut alike.

    The reference compiles each expression again for each array that a commit changes: with a rule
    for every one of 200 arrays it would take seconds.
    """
    alike: dict[tuple[str, CellSizes], list[str]] = defaultdict(list)
    for path, sizes in sorted(cells.items(), key=lambda item: item[0]):
        folder, _, name = path.rpartition("/")
        alike[folder, sizes].append(name)
    return tuple(
        (SplitPathMatches(exact_regex(folder, names[first : first + _NAMES_AT_ONCE])), sizes)
        for (folder, sizes), names in alike.items()
        for first in range(0, len(names), _NAMES_AT_ONCE)
    )


def unspoken(rules: SplitSizes, cells: Mapping[str, CellSizes]) -> dict[str, CellSizes]:
    """Those arrays of which no rule speaks, but for the default one."""
    given = [rule[0] for rule in rules if not _is_default(rule)]
    return {
        path: sizes
        for path, sizes in cells.items()
        if not any(is_about(condition, path) for condition in given)
    }


def followed(rules: SplitSizes, stored: SplitSizes, paths: Iterable[str]) -> SplitSizes:
    """The rules in force, after what stored ones say of exactly these arrays."""
    wanted = frozenset(paths)
    return (*_narrowed(stored, wanted), *rules)


def _narrowed(stored: SplitSizes, wanted: frozenset[str]) -> Iterator[SplitRule]:
    for condition, sizes in stored:
        yield from rules_for(dict.fromkeys(_named(condition) & wanted, sizes))


def _named(condition: SplitCondition) -> frozenset[str]:
    found = exact_paths(condition.regex) if isinstance(condition, SplitPathMatches) else None
    return found or frozenset()


def _is_default(rule: SplitRule) -> bool:
    condition, sizes = rule
    return condition in _ANYTHING and sizes == _NO_CUT
