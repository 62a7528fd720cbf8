"""Conditions on manifests: between configuration objects and their stored trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from icechunk_stream.config.conditions import (
    PreloadAnd,
    PreloadFalse,
    PreloadNameMatches,
    PreloadNumRefs,
    PreloadOr,
    PreloadPathMatches,
    PreloadTrue,
    SplitAnd,
    SplitAnyArray,
    SplitAnyDimension,
    SplitAxis,
    SplitDimensionName,
    SplitNameMatches,
    SplitOr,
    SplitPathMatches,
)
from icechunk_stream.config.fields import U32, U64
from icechunk_stream.format.config_node import Tagged

if TYPE_CHECKING:
    from icechunk_stream.config.conditions import (
        PreloadCondition,
        SplitCondition,
        SplitDimCondition,
    )
    from icechunk_stream.config.manifests import SplitRule, SplitSizes
    from icechunk_stream.format.config_node import Node, Tree


def decode_preload_condition(node: Node) -> PreloadCondition:
    variant, held = node.variant()
    match variant:
        case "or":
            return PreloadOr(tuple(decode_preload_condition(item) for item in held.items()))
        case "and":
            return PreloadAnd(tuple(decode_preload_condition(item) for item in held.items()))
        case "path_matches":
            return PreloadPathMatches(held.field("regex").text())
        case "name_matches":
            return PreloadNameMatches(held.field("regex").text())
        case "num_refs":
            return _decode_num_refs(held)
        case _:
            return _decode_constant(node, variant, held)


def _decode_constant(node: Node, variant: str, held: Node) -> PreloadCondition:
    if not held.is_null or variant not in {"true", "false"}:
        raise node.error(f"has the unknown variant {variant!r}")
    return PreloadTrue() if variant == "true" else PreloadFalse()


def _decode_num_refs(node: Node) -> PreloadCondition:
    lowest = _decode_bound(node.field("from"), "Included")
    end = _decode_bound(node.field("to"), "Excluded")
    if lowest is not None and lowest > U32.high:
        return PreloadFalse()
    # No manifest has more references than 32 bits count: such an end is none.
    return PreloadNumRefs(lowest, None if end is not None and end > U32.high else end)


def _decode_bound(node: Node, exact: str) -> int | None:
    """The bound in the form called ``exact``; the other form is one further."""
    variant, held = node.variant()
    if variant == "Unbounded":
        return None
    if variant not in {"Included", "Excluded"}:
        raise node.error(f"has the unknown variant {variant!r}")
    return held.integer(U32) + (variant != exact)


def decode_split_sizes(node: Node) -> SplitSizes:
    return tuple(_decode_rule(rule) for rule in node.items())


def _decode_rule(node: Node) -> SplitRule:
    match node.items():
        case [condition, sizes]:
            return _decode_split_condition(condition), tuple(
                _decode_size(size) for size in sizes.items()
            )
        case _:
            raise node.error("must be a pair")


def _decode_size(node: Node) -> tuple[SplitDimCondition, int]:
    return _decode_dimension(node.field("condition")), node.field("num_chunks").integer(U32)


def _decode_split_condition(node: Node) -> SplitCondition:
    variant, held = node.variant()
    match variant:
        case "or":
            return SplitOr(tuple(_decode_split_condition(item) for item in held.items()))
        case "and":
            return SplitAnd(tuple(_decode_split_condition(item) for item in held.items()))
        case "path_matches":
            return SplitPathMatches(held.field("regex").text())
        case "name_matches":
            return SplitNameMatches(held.field("regex").text())
        case "any_array" if held.is_null:
            return SplitAnyArray()
        case _:
            raise node.error(f"has the unknown variant {variant!r}")


def _decode_dimension(node: Node) -> SplitDimCondition:
    variant, held = node.variant()
    match variant:
        case "Axis":
            return SplitAxis(held.integer(U64))
        case "DimensionName":
            return SplitDimensionName(held.text())
        case "Any" if held.is_null:
            return SplitAnyDimension()
        case _:
            raise node.error(f"has the unknown variant {variant!r}")


def encode_preload_condition(condition: PreloadCondition) -> Tree:
    match condition:
        case PreloadOr(conditions):
            return Tagged("or", [encode_preload_condition(each) for each in conditions])
        case PreloadAnd(conditions):
            return Tagged("and", [encode_preload_condition(each) for each in conditions])
        case PreloadPathMatches(regex):
            return Tagged("path_matches", {"regex": regex})
        case PreloadNameMatches(regex):
            return Tagged("name_matches", {"regex": regex})
        case _:
            return _encode_simple(condition)


def _encode_simple(condition: PreloadNumRefs | PreloadTrue | PreloadFalse) -> Tree:
    match condition:
        case PreloadNumRefs(lowest, end):
            bounds: Tree = {
                "from": _encode_bound(lowest, "Included"),
                "to": _encode_bound(end, "Excluded"),
            }
            return Tagged("num_refs", bounds)
        case PreloadTrue():
            return "true"
        case PreloadFalse():
            return "false"
        case _:
            assert_never(condition)


def _encode_bound(bound: int | None, variant: str) -> Tree:
    return "Unbounded" if bound is None else Tagged(variant, int(bound))


def encode_split_sizes(rules: SplitSizes) -> Tree:
    return [
        [_encode_split_condition(condition), [_encode_size(*size) for size in sizes]]
        for condition, sizes in rules
    ]


def _encode_size(dimension: SplitDimCondition, size: int) -> Tree:
    return {"condition": _encode_dimension(dimension), "num_chunks": size}


def _encode_split_condition(condition: SplitCondition) -> Tree:
    match condition:
        case SplitOr(conditions):
            return Tagged("or", [_encode_split_condition(each) for each in conditions])
        case SplitAnd(conditions):
            return Tagged("and", [_encode_split_condition(each) for each in conditions])
        case SplitPathMatches(regex):
            return Tagged("path_matches", {"regex": regex})
        case SplitNameMatches(regex):
            return Tagged("name_matches", {"regex": regex})
        case SplitAnyArray():
            return "any_array"
        case _:
            assert_never(condition)


def _encode_dimension(dimension: SplitDimCondition) -> Tree:
    match dimension:
        case SplitAxis(axis):
            return Tagged("Axis", int(axis))
        case SplitDimensionName(regex):
            return Tagged("DimensionName", regex)
        case SplitAnyDimension():
            return "Any"
        case _:
            assert_never(dimension)
