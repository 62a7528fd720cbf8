"""Splitting configurations."""

from __future__ import annotations

from icechunk_stream import (
    ManifestConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
)


def along_first_axis(chunks: int) -> ManifestConfig:
    sizes = {ManifestSplitDimCondition.Axis(0): chunks}
    rules = {ManifestSplitCondition.AnyArray(): sizes}
    return ManifestConfig(splitting=ManifestSplittingConfig.from_dict(rules))
