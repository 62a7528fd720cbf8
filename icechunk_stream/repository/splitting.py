"""The splitting rules of a configuration in force, with those that are stored for some arrays."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from icechunk_stream.config import ManifestConfig, ManifestSplittingConfig
from icechunk_stream.manifests.managed_rules import followed

if TYPE_CHECKING:
    from collections.abc import Collection

    from icechunk_stream.config import RepositoryConfig, SplitSizes


def split_sizes(config: RepositoryConfig) -> SplitSizes:
    """The rules that are set; none are by default."""
    manifest = config.manifest
    if manifest is None or manifest.splitting is None:
        return ()
    return manifest.splitting.split_sizes or ()


def with_stored_rules(
    config: RepositoryConfig, stored: RepositoryConfig, paths: Collection[str]
) -> RepositoryConfig:
    """A copy that cuts exactly these arrays as the stored configuration does."""
    rules = followed(split_sizes(config), split_sizes(stored), paths)
    if rules == split_sizes(config):
        return config
    merged = copy.deepcopy(config)
    manifest = merged.manifest = merged.manifest or ManifestConfig()
    manifest.splitting = ManifestSplittingConfig(rules)
    if manifest.max_concurrent_manifest_fetches_during_commit is None:
        manifest.max_concurrent_manifest_fetches_during_commit = _fetches(stored)
    return merged


def _fetches(config: RepositoryConfig) -> int | None:
    manifest = config.manifest
    return None if manifest is None else manifest.max_concurrent_manifest_fetches_during_commit
