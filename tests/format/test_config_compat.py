"""Stored configurations against the reference library: read, and written for it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk
import pytest
from hypothesis import HealthCheck, given, settings

from icechunk_stream import config as c
from icechunk_stream.format.config_flex import decode_config_flexbuffer, encode_config_flexbuffer
from icechunk_stream.format.config_yaml import decode_config_yaml, encode_config_yaml
from tests.format.config_strategies import configs, on_disk
from tests.format.reference_config import to_reference
from tests.format.stored import stored_config
from tests.oracle.compare import differences
from tests.oracle.config_tree import CONFIG_KEYS, config_tree
from tests.oracle.libraries import ROOT, legacy_python

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.compat

FEW = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
# The older library shows nothing of a condition that it fetched.
UNSEEN = "$.manifest.preload.preload_if"
COMPARABLE = (c.S3Store, c.S3CompatibleStore, c.TigrisStore, c.GcsStore, c.AzureStore)
LEGACY = """
import json, sys, icechunk
from tests.oracle.config_tree import config_tree
icechunk.set_logs_filter("off")
for line in sys.stdin:
    stored = icechunk.Repository.fetch_config(icechunk.local_filesystem_storage(line.strip()))
    print(json.dumps(config_tree(stored), default=str))
"""


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Make one repository after another by the reference library."""
    made = iter(range(1_000_000))

    def make_one(version: int, config: c.RepositoryConfig | None = None) -> Path:
        root = tmp_path / str(next(made))
        storage = icechunk.local_filesystem_storage(str(root))
        given = None if config is None else to_reference(config)
        icechunk.Repository.create(storage, config=given, spec_version=version)
        return root

    return make_one


def fetched(root: Path) -> Any:
    return icechunk.Repository.fetch_config(icechunk.local_filesystem_storage(str(root)))


def test_the_reference_tells_configurations_apart() -> None:
    conditions: list[c.PreloadCondition] = [c.PreloadTrue()]
    conditions += [c.PreloadNameMatches("a"), c.PreloadNameMatches("b")]
    told = [
        to_reference(
            c.RepositoryConfig(manifest=c.ManifestConfig(c.ManifestPreloadConfig(1, each)))
        )
        for each in conditions
    ]
    assert [told.index(each) for each in told] == [0, 1, 2]


def without_storage(config: c.RepositoryConfig) -> c.RepositoryConfig:
    """The reference adds the backend's storage settings to what it is given."""
    return replace(config, storage=None)


@FEW
@given(config=configs.map(on_disk))
def test_yaml_of_the_reference_is_read(
    make: Callable[..., Path], config: c.RepositoryConfig
) -> None:
    file = make(1, config) / "config.yaml"
    if not file.exists():
        assert config == c.RepositoryConfig()
        return
    decoded = decode_config_yaml(file.read_bytes(), "config.yaml")
    assert to_reference(decoded) == fetched(file.parent)
    assert without_storage(decoded) == without_storage(config)


@FEW
@given(config=configs.map(on_disk))
def test_flexbuffers_of_the_reference_are_read(
    make: Callable[..., Path], config: c.RepositoryConfig
) -> None:
    root = make(2, replace(config, inline_chunk_threshold_bytes=7))
    encoded = stored_config(root)
    decoded = decode_config_flexbuffer(encoded, "repo")
    assert to_reference(decoded) == fetched(root)
    assert without_storage(decoded) == without_storage(
        replace(config, inline_chunk_threshold_bytes=7)
    )
    if not config.virtual_chunk_containers:
        assert encode_config_flexbuffer(decoded).hex() == encoded.hex()


@FEW
@given(config=configs)
def test_our_yaml_is_read_by_the_reference(
    make: Callable[..., Path], config: c.RepositoryConfig
) -> None:
    root = make(1)
    (root / "config.yaml").write_bytes(encode_config_yaml(config))
    assert fetched(root) == to_reference(config)


def test_our_yaml_is_read_by_the_older_reference(make: Callable[..., Path]) -> None:
    written = older_configs()
    roots = [make(1) for _ in written]
    for root, config in zip(roots, written, strict=True):
        (root / "config.yaml").write_bytes(encode_config_yaml(config))
    answers = subprocess.run(
        [legacy_python(), "-c", LEGACY],
        cwd=ROOT,
        input="\n".join(map(str, roots)),
        capture_output=True,
        check=False,
        text=True,
    )
    assert answers.returncode == 0, answers.stderr[-2000:]
    for config, answer in zip(written, answers.stdout.splitlines(), strict=True):
        expected = json.loads(json.dumps(config_tree(config)))
        found = differences(expected, json.loads(answer), CONFIG_KEYS)
        assert [each for each in found if not each.startswith(UNSEEN)] == []


def older_configs() -> list[c.RepositoryConfig]:
    found: list[c.RepositoryConfig] = []

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(config=configs)
    def collect(config: c.RepositoryConfig) -> None:
        known = (config.virtual_chunk_containers or {}).items()
        # It knows no HTTP headers, and shows only what follows the last dot of a path.
        kept = {key: each for key, each in known if isinstance(each.store, COMPARABLE)}
        found.append(replace(config, virtual_chunk_containers=kept))

    collect()
    return found


@FEW
@given(base=configs, top=configs)
def test_configurations_merge_as_in_the_reference(
    base: c.RepositoryConfig, top: c.RepositoryConfig
) -> None:
    assert to_reference(base.merge(top)) == to_reference(base).merge(to_reference(top))


STORES: dict[str, c.AnyObjectStoreConfig] = {
    "local": c.local_filesystem_store("/dir"),
    "http": c.http_store(),
    "s3": c.s3_store(),
    "s3_compatible": c.s3_store(s3_compatible=True),
    "tigris": c.ObjectStoreConfig.Tigris(c.S3Options()),
    "gcs": c.gcs_store(),
    "azure": c.azure_store(account="a"),
    "memory": c.ObjectStoreConfig.InMemory(),
}
SCHEMES = ["s3", "S3", "tigris", "gs", "gcs", "az", "azure", "abfs", "abfss", "http", "https"]
SCHEMES += ["file", "memory", "r2", "s3a", "vcc"]
PREFIXES = ["file:///", "file:///a/", "file:////", "file:///a/../", "file:///%2e%2e/", "file:/a/"]
PREFIXES += ["s3:///a/", "s3://a", "s3://a//b/", "s3://a:80/", "s3://a:99999/", "a/", "/", ""]
PREFIXES += [f"{scheme}://bucket/path/" for scheme in SCHEMES]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", [None, "name", "", "a/b"])
def test_containers_are_refused_where_the_reference_refuses_them(
    prefix: str, name: str | None
) -> None:
    accepted = [accepts(prefix, name, store) for store in STORES.values()]
    assert [ours for ours, _ in accepted] == [theirs for _, theirs in accepted]


def accepts(prefix: str, name: str | None, store: c.AnyObjectStoreConfig) -> tuple[bool, bool]:
    container = c.VirtualChunkContainer(prefix, store, name)
    return (
        taken(c.RepositoryConfig(), container),
        taken(to_reference(c.RepositoryConfig()), to_reference(container)),
    )


def taken(config: Any, container: Any) -> bool:
    try:
        config.set_virtual_chunk_container(container)
    except ValueError:
        return False
    return True
