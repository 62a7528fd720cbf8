"""Configurations of every setting, within what the reference library can be told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from icechunk_stream import config as c
from icechunk_stream.config.fields import IntRange, Settings

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "null",
        "true",
        "~",
        "1",
        "0x1f",
        "1e3",
        "2001-01-01",
        "1:30",
        "yes",
        "",
        " x ",
        "a: b #",
        "'\"",
    ]
)
names = st.text("abcXYZ019-_.é ", min_size=1, max_size=8)
preload_conditions = st.recursive(
    st.builds(c.PreloadTrue)
    | st.builds(c.PreloadFalse)
    | st.builds(c.PreloadNameMatches, texts)
    | st.builds(c.PreloadPathMatches, texts)
    | st.builds(c.PreloadNumRefs, *[st.none() | st.integers(0, 2**32 - 1) for _ in ("from", "to")]),
    lambda inner: (
        st.builds(c.PreloadOr, st.lists(inner, max_size=4).map(tuple))
        | st.builds(c.PreloadAnd, st.lists(inner, max_size=4).map(tuple))
    ),
    max_leaves=6,
)
split_conditions = st.recursive(
    st.builds(c.SplitAnyArray)
    | st.builds(c.SplitNameMatches, texts)
    | st.builds(c.SplitPathMatches, texts),
    lambda inner: (
        st.builds(c.SplitOr, st.lists(inner, max_size=4).map(tuple))
        | st.builds(c.SplitAnd, st.lists(inner, max_size=4).map(tuple))
    ),
    max_leaves=4,
)
split_dimensions = (
    st.builds(c.SplitAnyDimension)
    | st.builds(c.SplitAxis, st.integers(0, 2**64 - 1))
    | st.builds(c.SplitDimensionName, texts)
)
split_sizes = st.lists(
    st.tuples(
        split_conditions,
        st.lists(st.tuples(split_dimensions, st.integers(0, 2**32 - 1)), max_size=3).map(tuple),
    ),
    max_size=3,
).map(tuple)
options = st.dictionaries(st.text("abcde_", min_size=1, max_size=5), texts, max_size=3)


def settings_of(cls: type[Settings], **special: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any combination of set and unset fields; integers come from the ends of their range."""
    fields = {
        name: st.none() | integers(kind, at_least_one="concurren" in name)
        for name, kind in cls.KINDS.items()
        if isinstance(kind, IntRange)
    }
    return st.builds(cls, **fields, **special)


def integers(kind: IntRange, *, at_least_one: bool) -> st.SearchStrategy[int]:
    # With a concurrency of 0 the reference library waits for ever.
    low = max(kind.low, 1) if at_least_one else kind.low
    return st.sampled_from([low, kind.high]) | st.integers(low, kind.high)


s3_options = settings_of(
    c.S3Options,
    region=st.none() | texts,
    endpoint_url=st.none() | texts,
    anonymous=st.booleans(),
    allow_http=st.booleans(),
    force_path_style=st.booleans(),
    requester_pays=st.booleans(),
    checksum_algorithm=st.none() | st.sampled_from(c.ChecksumAlgorithm),
)


def container(
    scheme: str, stores: st.SearchStrategy[c.AnyObjectStoreConfig]
) -> st.SearchStrategy[c.VirtualChunkContainer]:
    prefixes = st.text("abc/%é", max_size=5).map(lambda path: f"{scheme}://bucket/a{path}/")
    return st.builds(c.VirtualChunkContainer, prefixes, stores, st.none() | names)


containers = st.one_of(
    container("s3", st.builds(c.S3Store, s3_options)),
    container("s3", st.builds(c.S3CompatibleStore, s3_options)),
    container("tigris", st.builds(c.TigrisStore, s3_options)),
    container("gs", st.builds(c.GcsStore, options)),
    container("az", st.builds(c.AzureStore, options)),
    container("https", st.builds(c.HttpStore, options, options)),
    container("file", st.builds(c.LocalFileSystemStore, names.map("/dir/x{}".format))),
)
storage = settings_of(
    c.StorageSettings,
    concurrency=st.none() | settings_of(c.StorageConcurrencySettings),
    retries=st.none() | settings_of(c.StorageRetriesSettings),
    timeouts=st.none() | settings_of(c.StorageTimeoutSettings),
    unsafe_use_conditional_create=st.none() | st.booleans(),
    unsafe_use_conditional_update=st.none() | st.booleans(),
    unsafe_use_metadata=st.none() | st.booleans(),
    storage_class=st.none() | texts,
    metadata_storage_class=st.none() | texts,
    chunks_storage_class=st.none() | texts,
)


def on_disk(config: c.RepositoryConfig) -> c.RepositoryConfig:
    """The configuration without what the reference library refuses on a local file system."""
    if config.storage is None:
        return config
    usable = replace(
        config.storage, unsafe_use_metadata=None, storage_class=None, metadata_storage_class=None
    )
    return replace(config, storage=replace(usable, chunks_storage_class=None))


manifest = settings_of(
    c.ManifestConfig,
    preload=st.none()
    | settings_of(c.ManifestPreloadConfig, preload_if=st.none() | preload_conditions),
    splitting=st.none() | st.builds(c.ManifestSplittingConfig, st.none() | split_sizes),
    virtual_chunk_location_compression=st.none()
    | settings_of(c.ManifestVirtualChunkLocationCompressionConfig),
)
compression = settings_of(
    c.CompressionConfig, algorithm=st.none() | st.just(c.CompressionAlgorithm.Zstd)
)
update_retries = st.builds(
    c.RepoUpdateRetryConfig, st.none() | settings_of(c.StorageRetriesSettings)
)
configs = settings_of(
    c.RepositoryConfig,
    compression=st.none() | compression,
    caching=st.none() | settings_of(c.CachingConfig),
    storage=st.none() | storage,
    manifest=st.none() | manifest,
    repo_update_retries=st.none() | update_retries,
    virtual_chunk_containers=st.none()
    | st.lists(containers, max_size=3).map(lambda each: {one.url_prefix: one for one in each}),
)
