"""Splitting configurations."""

from __future__ import annotations

from icechunk_stream import (
    ManifestConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
)


def along_first_axis(chunks: int) -> ManifestConfig:
    splitting = ManifestSplittingConfig.from_dict(
        {ManifestSplitCondition.AnyArray(): {ManifestSplitDimCondition.Axis(0): chunks}}
    )
    return ManifestConfig(splitting=splitting)
