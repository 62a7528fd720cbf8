"""Configuration objects: what they refuse, how they merge, what they show."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from icechunk_stream import config as c
from icechunk_stream.config.fields import IntRange, Settings
from icechunk_stream.errors import InvalidInputError
from tests.format.config_strategies import configs
from tests.secret_marker import MARKER

CLASSES: list[type[Settings]] = [
    c.RepositoryConfig,
    c.CompressionConfig,
    c.CachingConfig,
    c.StorageSettings,
    c.StorageConcurrencySettings,
    c.StorageRetriesSettings,
    c.StorageTimeoutSettings,
    c.ManifestConfig,
    c.ManifestPreloadConfig,
    c.ManifestVirtualChunkLocationCompressionConfig,
    c.S3Options,
]
RANGES = [
    (cls, name, kind)
    for cls in CLASSES
    for name, kind in cls.KINDS.items()
    if isinstance(kind, IntRange)
]
# Callers without a type checker pass anything.
ANY: Any = c
SECRET = MARKER


def container(prefix: str, name: str | None = None) -> c.VirtualChunkContainer:
    return c.VirtualChunkContainer(prefix, c.s3_store(), name)


@pytest.mark.parametrize(("cls", "name", "kind"), RANGES)
def test_integers_out_of_range_are_refused(cls: type[Settings], name: str, kind: IntRange) -> None:
    settings: Any = cls(**{name: kind.low})
    setattr(settings, name, kind.high)
    assert getattr(settings, name) == kind.high
    for wrong in (kind.low - 1, kind.high + 1):
        with pytest.raises(InvalidInputError, match=f"{cls.__name__}.{name} must be from"):
            cls(**{name: wrong})
        with pytest.raises(InvalidInputError, match=f"not {wrong}"):
            setattr(settings, name, wrong)
    assert getattr(settings, name) == kind.high


@pytest.mark.parametrize("wrong", [1.0, "1", True, b"1", [1]])
def test_only_integers_are_integers(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="must be an integer"):
        c.RepositoryConfig(inline_chunk_threshold_bytes=wrong)


def test_integers_of_numpy_become_plain_ones() -> None:
    config = ANY.RepositoryConfig(inline_chunk_threshold_bytes=np.uint8(7))
    assert type(config.inline_chunk_threshold_bytes) is int


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: ANY.StorageSettings(storage_class=1), "storage_class must be a str"),
        (lambda: ANY.StorageSettings(storage_class="\ud800"), "surrogate"),
        (lambda: ANY.StorageSettings(unsafe_use_metadata=1), "must be a bool"),
        (lambda: ANY.CompressionConfig("zstd"), "must be a CompressionAlgorithm"),
        (lambda: ANY.RepositoryConfig(compression=3), "must be a CompressionConfig"),
        (
            lambda: ANY.ManifestPreloadConfig(preload_if="true"),
            "must be a ManifestPreloadCondition",
        ),
        (lambda: ANY.ManifestPreloadCondition.or_conditions([1]), "must be a ManifestPreload"),
        (lambda: ANY.ManifestPreloadCondition.num_refs(0, 2**32), "to_refs must be from 0"),
        (lambda: ANY.ManifestPreloadCondition.name_matches(1), "must be a str"),
        (lambda: ANY.ManifestSplitDimCondition.Axis(-1), "must be from 0"),
        (lambda: ANY.ManifestSplitDimCondition.DimensionName(0), "must be a str"),
        (lambda: ANY.ManifestSplittingConfig({c.SplitAnyArray(): {0: 1}}), "SplitDimCondition"),
        (lambda: ANY.ManifestSplittingConfig([(c.SplitAnyArray(),)]), "sequence of pairs"),
        (lambda: ANY.ManifestSplittingConfig("ab"), "sequence of pairs"),
        (
            lambda: ANY.ManifestSplittingConfig({c.SplitAnyArray(): {c.SplitAxis(0): -1}}),
            "from 0",
        ),
        (lambda: ANY.S3Options(allow_http=None), "must not be None"),
        (lambda: ANY.S3Options(network_stream_timeout_seconds=2**32), "from 0 to 4294967295"),
        (lambda: ANY.S3Options(checksum_algorithm="sha1"), "must be a ChecksumAlgorithm"),
        (lambda: ANY.ObjectStoreConfig.S3({}), "must be a S3Options"),
        (lambda: ANY.ObjectStoreConfig.Gcs({"a": 1}), "must be a str"),
        (lambda: ANY.ObjectStoreConfig.Http({"headers": "x"}), "pass headers="),
        (lambda: ANY.VirtualChunkContainer("s3://a/", "s3"), "must be an ObjectStoreConfig"),
        (lambda: ANY.VirtualChunkContainer(None, c.s3_store()), "must not be None"),
        (
            lambda: ANY.RepositoryConfig(virtual_chunk_containers={"a": 1}),
            "VirtualChunkContainer",
        ),
        (lambda: ANY.RepositoryConfig(virtual_chunk_containers=[]), "must be a mapping"),
    ],
)
def test_values_of_another_type_are_refused(make: Any, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        make()


def test_settings_change_in_place() -> None:
    config = c.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = 0
    config.compression = c.CompressionConfig()
    config.compression.level = 9
    config.compression.level = None
    assert config == c.RepositoryConfig(
        inline_chunk_threshold_bytes=0, compression=c.CompressionConfig.default()
    )


def test_conditions_combine_by_operators() -> None:
    preload, split = c.ManifestPreloadCondition, c.ManifestSplitCondition
    a, b = preload.name_matches("a"), preload.num_refs(1, 5)
    assert a | b == preload.or_conditions([a, b])
    assert (a | b) & a == preload.and_conditions([preload.or_conditions([a, b]), a])
    one, other = split.path_matches("/a"), split.AnyArray()
    assert one & other == split.and_conditions([one, other])
    assert {one | other: 1}[split.or_conditions([one, other])] == 1
    assert isinstance(one | other, c.ManifestSplitCondition)
    assert isinstance(c.ManifestSplitDimCondition.Axis(1), c.ManifestSplitDimCondition)
    assert isinstance(c.s3_store(), c.ObjectStoreConfig)


def test_split_rules_keep_their_order_as_dicts_and_tuples() -> None:
    split, dim = c.ManifestSplitCondition, c.ManifestSplitDimCondition
    rules: dict[c.ManifestSplitCondition, dict[c.ManifestSplitDimCondition, int]] = {
        split.name_matches("t"): {dim.DimensionName("lon"): 3, dim.Any(): 1},
        split.AnyArray(): {dim.Axis(0): 2},
    }
    config = c.ManifestSplittingConfig.from_dict(rules)
    assert config.split_sizes == (
        (split.name_matches("t"), ((dim.DimensionName("lon"), 3), (dim.Any(), 1))),
        (split.AnyArray(), ((dim.Axis(0), 2),)),
    )
    assert config.to_dict() == rules
    assert list(config.to_dict()) == list(rules)
    lists = [[condition, list(sizes.items())] for condition, sizes in rules.items()]
    assert ANY.ManifestSplittingConfig(lists) == config
    assert c.ManifestSplittingConfig().to_dict() == {}


def test_containers_are_found_by_prefix_and_by_name() -> None:
    config = c.RepositoryConfig()
    config.set_virtual_chunk_container(container("s3://a/"))
    config.set_virtual_chunk_container(container("s3://b/", "b"))
    assert config.get_virtual_chunk_container("s3://a/") == container("s3://a/")
    assert config.get_virtual_chunk_container("b") == container("s3://b/", "b")
    assert config.get_virtual_chunk_container("c") is None
    config.clear_virtual_chunk_containers()
    assert config.virtual_chunk_containers == {}


def test_a_container_replaces_the_one_with_its_name_or_prefix() -> None:
    config = c.RepositoryConfig()
    for each in (
        container("s3://a/"),
        container("s3://a/", "x"),
        container("s3://b/", "x"),
        container("s3://c/"),
    ):
        config.set_virtual_chunk_container(each)
    assert config.virtual_chunk_containers == {
        "s3://b/": container("s3://b/", "x"),
        "s3://c/": container("s3://c/"),
    }


@pytest.mark.parametrize(
    ("prefix", "name", "reason"),
    [
        ("s3://a", None, "must end with '/'"),
        ("s3://a/", "", "must not be empty"),
        ("s3://a/", "b/c", "contain '/'"),
        ("gs://a/", None, "S3 does not serve"),
        ("a/", None, "absolute URL"),
        ("s3:///a/", None, "must name a host"),
        ("s3://[::1/", None, "is no URL"),
        ("s3://a:99999/", None, "is no URL"),
    ],
)
def test_containers_that_no_location_reaches_are_refused(
    prefix: str, name: str | None, reason: str
) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        c.RepositoryConfig().set_virtual_chunk_container(container(prefix, name))
    with pytest.raises(InvalidInputError, match=reason):
        c.RepositoryConfig(virtual_chunk_containers={"a": container(prefix, name)})


@pytest.mark.parametrize("prefix", ["file:///", "file:///a/../", "file:///%2e%2e/", "file:////"])
def test_a_container_of_the_whole_disk_is_refused(prefix: str) -> None:
    whole = c.VirtualChunkContainer(prefix, c.local_filesystem_store("/"))
    with pytest.raises(InvalidInputError, match="below '/'"):
        c.RepositoryConfig().set_virtual_chunk_container(whole)


def test_merging_is_by_field_but_whole_for_lists_of_rules() -> None:
    base = c.RepositoryConfig(
        inline_chunk_threshold_bytes=1,
        caching=c.CachingConfig(1, 2),
        virtual_chunk_containers={"s3://a/": container("s3://a/")},
        manifest=c.ManifestConfig(c.ManifestPreloadConfig(1, c.PreloadTrue(), 3), None, None, 4),
    )
    top = c.RepositoryConfig(
        caching=c.CachingConfig(num_chunk_refs=3),
        virtual_chunk_containers={"s3://b/": container("s3://b/")},
        manifest=c.ManifestConfig(c.ManifestPreloadConfig(max_arrays_to_scan=9)),
    )
    merged = base.merge(top)
    assert merged == c.RepositoryConfig(
        inline_chunk_threshold_bytes=1,
        caching=c.CachingConfig(1, 3),
        virtual_chunk_containers={"s3://b/": container("s3://b/")},
        manifest=c.ManifestConfig(c.ManifestPreloadConfig(None, None, 9), None, None, 4),
    )


@given(config=configs)
def test_merging_with_nothing_changes_nothing_and_shares_nothing(
    config: c.RepositoryConfig,
) -> None:
    before = copy.deepcopy(config)
    for merged in (config.merge(c.RepositoryConfig()), c.RepositoryConfig().merge(config)):
        assert merged == config
        merged.merge(merged)
        for name in ("compression", "caching", "storage", "manifest"):
            assert getattr(merged, name) is None or getattr(merged, name) is not getattr(
                config, name
            )
    assert config == before


def clear(settings: Settings) -> None:
    for name in settings.KINDS:
        setattr(settings, name, None)


@given(config=configs)
def test_configurations_survive_pickling(config: c.RepositoryConfig) -> None:
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert repr(again) == repr(config)


def test_defaults_fill_what_is_unset() -> None:
    config = c.RepositoryConfig(
        caching=c.CachingConfig(num_chunk_refs=3),
        manifest=c.ManifestConfig(c.ManifestPreloadConfig(max_arrays_to_scan=0)),
    )
    filled = c.with_defaults(config, c.StorageSettings(unsafe_use_metadata=False))
    assert (filled.inline_chunk_threshold_bytes, filled.max_concurrent_requests) == (512, 256)
    assert filled.caching == c.CachingConfig(500_000, 3, 0, 0, 0)
    assert filled.compression == c.CompressionConfig(c.CompressionAlgorithm.Zstd, 3)
    assert filled.storage is not None
    assert filled.storage.unsafe_use_metadata is False
    assert filled.storage.retries == c.StorageRetriesSettings(10, 100, 180_000)
    assert filled.manifest is not None
    assert filled.manifest.preload is not None
    assert filled.manifest.preload.max_arrays_to_scan == 0
    assert filled.manifest.preload.max_total_refs == 10_000
    assert filled.manifest.splitting == c.ManifestSplittingConfig(
        ((c.SplitPathMatches(".*"), ((c.SplitAnyDimension(), 2**32 - 1),)),)
    )
    assert filled.repo_update_retries == c.RepoUpdateRetryConfig(
        c.StorageRetriesSettings(100, 50, 30_000)
    )
    assert filled.num_updates_per_repo_info_file == 1000
    assert filled.virtual_chunk_containers == {}
    assert c.with_defaults(filled) == filled


@pytest.mark.parametrize(
    "value",
    [
        c.http_store({"proxy_url": f"http://u:{SECRET}@proxy"}, {"Authorization": SECRET}),
        c.http_store(None, {"x-api-key": SECRET, "Cookie": SECRET}),
        c.gcs_store({"service_account_key": SECRET}),
        c.azure_store(account="a", config={"access_key": SECRET, "sas_token": SECRET}),
        c.azure_store(account="a", config={"client_secret": SECRET, "password": SECRET}),
        c.s3_store(endpoint_url=f"https://me:{SECRET}@host/x?token={SECRET}"),
    ],
)
def test_secrets_are_not_shown(value: c.AnyObjectStoreConfig) -> None:
    url = f"https://me:{SECRET}@host/?sig={SECRET}/"
    config = c.RepositoryConfig()
    config.virtual_chunk_containers = {url: c.VirtualChunkContainer(url, value)}
    assert SECRET not in repr(value)
    assert SECRET not in repr(config)
    assert SECRET not in str(config)
    with pytest.raises(InvalidInputError) as error:
        c.validate_container(c.VirtualChunkContainer(url[:-1], value))
    assert SECRET not in str(error.value)


def test_what_is_no_secret_is_shown() -> None:
    store = c.gcs_store({"bucket": "b", "proxy_url": "http://proxy:3128/"})
    expected = "{'bucket': 'b', 'proxy_url': 'http://proxy:3128/'}"
    assert repr(store) == f"ObjectStoreConfig.Gcs({expected})"
    assert repr(c.ManifestPreloadCondition.true()) == "ManifestPreloadCondition.True()"
