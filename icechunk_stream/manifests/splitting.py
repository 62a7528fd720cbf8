"""Into which cells the splitting configuration cuts the chunk grid of an array."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.config import (
    SplitAnd,
    SplitAnyArray,
    SplitAnyDimension,
    SplitAxis,
    SplitCondition,
    SplitDimCondition,
    SplitDimensionName,
    SplitNameMatches,
    SplitOr,
    SplitPathMatches,
)
from icechunk_stream.errors import InvalidInputError
from icechunk_stream.manifests.exact_paths import exact_paths

if TYPE_CHECKING:
    import numpy.typing as npt

    from icechunk_stream.config import SplitSizes
    from icechunk_stream.format.nodes import ArrayNode

_UNSPLIT = 2**32 - 1
# Arrays and rules for which the answer is known from the commit before.
_REMEMBERED = 4096


def cell_sizes(rules: SplitSizes, node: ArrayNode) -> npt.NDArray[np.int64]:
    """Chunks along every axis of a cell: the first rule that speaks of an axis decides."""
    sizes: list[int | None] = [None] * len(node.shape)
    for condition, by_dimension in rules:
        if not is_about(condition, node.path):
            continue
        for axis, size in enumerate(sizes):
            if size is None:
                sizes[axis] = _size(by_dimension, node, axis)
    return np.array([size or _UNSPLIT for size in sizes], np.int64)


def is_about(condition: SplitCondition, path: str) -> bool:
    """Whether a rule speaks of the array at a path."""
    match condition:
        case SplitOr(conditions):
            return any(is_about(each, path) for each in conditions)
        case SplitAnd(conditions):
            return all(is_about(each, path) for each in conditions)
        case SplitPathMatches(regex):
            return _matches(regex, path)
        case SplitNameMatches(regex):
            return _matches(regex, path.rpartition("/")[2])
        case SplitAnyArray():
            return True


def _size(
    by_dimension: tuple[tuple[SplitDimCondition, int], ...], node: ArrayNode, axis: int
) -> int | None:
    found = (size for condition, size in by_dimension if _is_about_axis(condition, node, axis))
    return next(found, None)


def _is_about_axis(condition: SplitDimCondition, node: ArrayNode, axis: int) -> bool:
    match condition:
        case SplitAxis(number):
            return number == axis
        case SplitDimensionName(regex):
            names = node.dimension_names or ()
            name = names[axis] if axis < len(names) else None
            return name is not None and _matches(regex, name)
        case SplitAnyDimension():
            return True


@lru_cache(maxsize=_REMEMBERED)
def _matches(regex: str, text: str) -> bool:
    """A search in time linear in the text: stored expressions are not to be trusted."""
    exact = exact_paths(regex)
    if exact is not None:
        return text in exact
    try:
        return bool(pc.match_substring_regex(text, regex).as_py())
    except pa.ArrowInvalid as error:
        message = (
            f"the splitting configuration has an invalid regular expression {regex!r} ({error}):"
            " save a configuration without it"
        )
        raise InvalidInputError(message) from error
