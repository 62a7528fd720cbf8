"""Stored configurations: both forms, forms of old, and hostile ones."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given

from icechunk_stream import config as c
from icechunk_stream.errors import ErrorKind, FormatError, InvalidInputError
from icechunk_stream.format.config_flex import decode_config_flexbuffer, encode_config_flexbuffer
from icechunk_stream.format.config_yaml import decode_config_yaml, encode_config_yaml
from icechunk_stream.format.flexbuffers import decode_flexbuffer, encode_flexbuffer
from tests.format.config_strategies import configs
from tests.format.fuzz import KEY, refusals

if TYPE_CHECKING:
    from icechunk_stream.format.json_value import Json

EXAMPLE = """\
# as a person may write it
inline_chunk_threshold_bytes: 0x100
get_partial_values_concurrency: null
compression: {algorithm: zstd, level: 5}
caching: {num_snapshot_nodes: 10, num_chunk_refs: ~}
storage:
  concurrency: {max_concurrent_requests_for_object: 4, ideal_concurrent_request_size: 65536}
  unsafe_use_metadata: True
  storage_class: 2001-01-01
  metadata_storage_class: 123
  chunks_storage_class: "null"
virtual_chunk_containers:
  s3://raw/in/:
    name: raw
    url_prefix: s3://raw/in/
    store: !s3
      region: eu-west-1
      anonymous: true
      allow_http: false
      network_stream_timeout_seconds: 60
      checksum_algorithm: crc64_nvme
  file:///d/: {url_prefix: "file:///d/", store: !local_file_system /d}
  https://h/: {url_prefix: "https://h/", store: !http {timeout: "1", headers: {a: b}}}
  any: {url_prefix: memory, store: in_memory}
manifest:
  preload:
    max_total_refs: 7
    preload_if: !and
    - !or [!path_matches {regex: '^/x'}, !name_matches {regex: '^t$'}]
    - !num_refs {from: !Included 1, to: Unbounded}
    - !num_refs {from: !Excluded 1, to: !Included 3}
    - 'true'
    - false
  splitting:
    split_sizes:
    - - !path_matches {regex: temp}
      - - {condition: !Axis 0, num_chunks: 12}
        - {condition: !DimensionName lat, num_chunks: 2}
        - {condition: Any, num_chunks: 9}
    - - any_array
      - - {condition: Any, num_chunks: 100}
  virtual_chunk_location_compression: {compression_level: -5}
repo_update_retries: {default: {max_tries: 5, initial_backoff_ms: 10, max_backoff_ms: 100}}
previous_file: old
"""
S3 = "virtual_chunk_containers: {a: {url_prefix: x, store: !s3 %s}}"
STORE = "virtual_chunk_containers: {a: {url_prefix: x, store: %s}}"
PRELOAD = "manifest: {preload: {preload_if: %s}}"
SPLIT = "manifest: {splitting: {split_sizes: %s}}"


def example() -> c.RepositoryConfig:
    preload, split = c.ManifestPreloadCondition, c.ManifestSplitCondition
    condition = preload.and_conditions(
        [
            preload.path_matches("^/x") | preload.name_matches("^t$"),
            preload.num_refs(1, None),
            preload.num_refs(2, 4),
            preload.true(),
            preload.false(),
        ]
    )
    sizes: dict[c.ManifestSplitCondition, dict[c.ManifestSplitDimCondition, int]] = {
        split.path_matches("temp"): {
            c.ManifestSplitDimCondition.Axis(0): 12,
            c.ManifestSplitDimCondition.DimensionName("lat"): 2,
            c.ManifestSplitDimCondition.Any(): 9,
        },
        split.AnyArray(): {c.ManifestSplitDimCondition.Any(): 100},
    }
    config = c.RepositoryConfig(
        inline_chunk_threshold_bytes=256,
        compression=c.CompressionConfig(c.CompressionAlgorithm.Zstd, 5),
        caching=c.CachingConfig(num_snapshot_nodes=10),
        storage=c.StorageSettings(
            concurrency=c.StorageConcurrencySettings(4, 65536),
            unsafe_use_metadata=True,
            storage_class="2001-01-01",
            metadata_storage_class="123",
            chunks_storage_class="null",
        ),
        manifest=c.ManifestConfig(
            preload=c.ManifestPreloadConfig(7, condition),
            splitting=c.ManifestSplittingConfig.from_dict(sizes),
            virtual_chunk_location_compression=c.ManifestVirtualChunkLocationCompressionConfig(
                compression_level=-5
            ),
        ),
        repo_update_retries=c.RepoUpdateRetryConfig(c.StorageRetriesSettings(5, 10, 100)),
        previous_file="old",
    )
    raw = c.s3_store(
        region="eu-west-1", anonymous=True, checksum_algorithm=c.ChecksumAlgorithm.Crc64Nvme
    )
    c.http_store({"timeout": "1"}, {"a": "b"})
    config.virtual_chunk_containers = {
        "s3://raw/in/": c.VirtualChunkContainer("s3://raw/in/", raw, "raw"),
        "file:///d/": c.VirtualChunkContainer("file:///d/", c.local_filesystem_store("/d")),
        "https://h/": c.VirtualChunkContainer(
            "https://h/", c.http_store({"timeout": "1"}, {"a": "b"})
        ),
        "any": c.VirtualChunkContainer("memory", c.ObjectStoreConfig.InMemory()),
    }
    return config


def from_yaml(text: str | bytes) -> c.RepositoryConfig:
    return decode_config_yaml(text.encode() if isinstance(text, str) else text, KEY)


def from_flex(tree: Json) -> c.RepositoryConfig:
    return decode_config_flexbuffer(encode_flexbuffer(tree), KEY)


def test_every_setting_is_read_from_yaml() -> None:
    assert from_yaml(EXAMPLE) == example()


@given(config=configs)
def test_configurations_survive_yaml_and_flexbuffers(config: c.RepositoryConfig) -> None:
    assert decode_config_yaml(encode_config_yaml(config), KEY) == config
    assert decode_config_flexbuffer(encode_config_flexbuffer(config), KEY) == config


@pytest.mark.parametrize("text", ["", "{}", "# nothing", "---\n", "--- {}\n...\n", "\ufeff{}"])
def test_an_empty_document_sets_nothing(text: str) -> None:
    assert from_yaml(text) == c.RepositoryConfig()


@pytest.mark.parametrize(
    ("name", "prefixes"),
    [
        ("test-repo-v1", {"tigris", "az", "file", "gcs", "s3://testbucket"}),
        ("split-repo-v1", set()),
        ("expire-repo-v1-by-1.1.21", set()),
    ],
)
def test_configurations_of_old_repositories_are_read(
    fixtures_folder: Path, name: str, prefixes: set[str]
) -> None:
    config = from_yaml((fixtures_folder / name / "config.yaml").read_bytes())
    containers = config.virtual_chunk_containers or {}
    assert config.inline_chunk_threshold_bytes == 12
    assert {each.url_prefix for each in containers.values()} == prefixes
    assert from_yaml(encode_config_yaml(config)) == config
    assert config.merge(c.RepositoryConfig()) == config
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("+5", 5),
        ("0x1f", 31),
        ("0o17", 15),
        ("0b11", 3),
        ("-0", 0),
        ("!!int 5", 5),
        ("!!str 5", None),
    ],
)
def test_integers_are_read_as_yaml_1_2_spells_them(text: str, value: int | None) -> None:
    document = f"inline_chunk_threshold_bytes: {text}"
    if value is None:
        with pytest.raises(FormatError, match="must be an integer"):
            from_yaml(document)
    else:
        assert from_yaml(document).inline_chunk_threshold_bytes == value


@pytest.mark.parametrize("text", ["yes", "1_000", "017", "1:30", ".inf", "2001-01-01", "True"])
def test_text_without_quotes_stays_text(text: str) -> None:
    config = from_yaml(f"storage: {{storage_class: {text}}}")
    assert config.storage == c.StorageSettings(storage_class=text)


def test_unknown_settings_are_ignored_and_kept() -> None:
    text = "newer: !kind {a: [1, 0x10, 1.5, 'yes', null, true, '1']}\nstorage: {newer: 1}\n"
    config = from_yaml(text + "max_concurrent_requests: 3")
    assert config == c.RepositoryConfig(max_concurrent_requests=3, storage=c.StorageSettings())
    assert from_yaml(encode_config_yaml(config)).unknown == config.unknown
    assert b"0x10" in encode_config_yaml(config)
    moved = decode_config_flexbuffer(encode_config_flexbuffer(config), KEY)
    assert moved.unknown == {"newer": {"kind": {"a": [1, 16, 1.5, "yes", None, True, "1"]}}}
    assert from_yaml(encode_config_yaml(moved)) == config
    assert moved.merge(c.RepositoryConfig(max_concurrent_requests=4)).unknown == moved.unknown


def test_unknown_settings_of_odd_names_and_values_are_kept() -> None:
    odd = {"null": [], "x" * 2000: {}, "a b": [[{"c": [None]}], []], "é": "yes", "\n": -0.5, "": 1}
    config = from_flex(cast("Json", odd))
    assert from_yaml(encode_config_yaml(config)).unknown.keys() == odd.keys()
    moved = from_yaml(encode_config_yaml(config))
    assert from_yaml(encode_config_yaml(moved)).unknown == moved.unknown
    again = decode_config_flexbuffer(encode_config_flexbuffer(moved), KEY)
    assert again.unknown == odd


def test_bounds_that_32_bits_do_not_hold_are_read() -> None:
    last = "!num_refs {from: Unbounded, to: !Included 4294967295}"
    never = "!num_refs {from: !Excluded 4294967295, to: Unbounded}"
    config = from_yaml(PRELOAD % f"!or [{last}, {never}]")
    assert config.manifest is not None
    assert config.manifest.preload is not None
    expected = c.ManifestPreloadCondition.num_refs(None, None) | c.ManifestPreloadCondition.false()
    assert config.manifest.preload.preload_if == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "inline_chunk_threshold_bytes: 70000",
            "inline_chunk_threshold_bytes must be from 0 to 65535",
        ),
        ("inline_chunk_threshold_bytes: -1", "must be from 0"),
        ("inline_chunk_threshold_bytes: 1.0", "must be an integer"),
        ("inline_chunk_threshold_bytes: '5'", "must be an integer"),
        ("inline_chunk_threshold_bytes: true", "must be an integer"),
        ("inline_chunk_threshold_bytes: " + "9" * 100_000, "must be an integer"),
        ("inline_chunk_threshold_bytes: !!int '5'", "must be an integer"),
        ("inline_chunk_threshold_bytes: !foo 5", "must be an integer"),
        ("inline_chunk_threshold_bytes: [5]", "must be an integer"),
        ("compression: {level: 256}", "compression.level must be from 0 to 255"),
        ("compression: [zstd, 3]", "compression must be a map"),
        ("compression: {algorithm: lz4}", "unknown variant 'lz4'"),
        ("compression: {algorithm: {zstd: null}}", "one of a few variants"),
        ("caching: {num_chunk_refs: 18446744073709551616}", "must be from 0"),
        ("storage: {retries: {max_tries: 0}}", "storage.retries.max_tries must be from 1"),
        ("storage: {unsafe_use_metadata: yes}", "must be true or false"),
        ("storage: {unsafe_use_metadata: 'true'}", "must be true or false"),
        ("storage: {storage_class: [a]}", "must be a string"),
        (PRELOAD % "!num_refs {from: Unbounded}", "has no 'to'"),
        (PRELOAD % "!num_refs {from: !Included 4294967296, to: Unbounded}", "from 0 to 4294967295"),
        (PRELOAD % "!num_refs {from: ~, to: Unbounded}", "unknown variant '~'"),
        (PRELOAD % "!and {}", "must be a list"),
        (PRELOAD % "!true 5", "unknown variant 'true'"),
        (PRELOAD % "! true", "the tag '!' is not allowed"),
        (PRELOAD % "{true: null}", "one of a few variants"),
        (PRELOAD % "!name_matches x", "must be a map"),
        (SPLIT % "[[any_array]]", r"split_sizes\[0\] must be a pair"),
        (SPLIT % "[[any_array, [], 3]]", "must be a pair"),
        (SPLIT % "[[any_array, [{num_chunks: 1}]]]", "has no 'condition'"),
        (SPLIT % "[[any_array, [{condition: any, num_chunks: 1}]]]", "unknown variant 'any'"),
        (SPLIT % "[[any_array, [{condition: !Axis -1, num_chunks: 1}]]]", "must be from 0"),
        ("virtual_chunk_containers: {a: null}", "a must be a map"),
        ("virtual_chunk_containers: {a: {store: in_memory}}", "a has no 'url_prefix'"),
        (STORE % "gcs", "must be a map"),
        (STORE % "!gcs {a: [b]}", "must be a string"),
        (STORE % "!http {headers: ~}", "must be a map"),
        (STORE % "!azzure {}", "unknown variant 'azzure'"),
        (STORE % "!in_memory {}", "unknown variant 'in_memory'"),
        (S3 % "{anonymous: true}", "has no 'allow_http'"),
        (S3 % "{anonymous: true, allow_http: ~}", "must be true or false"),
        (S3 % "{anonymous: true, allow_http: true, checksum_algorithm: md5}", "'md5'"),
        ("[]", "the document must be a map"),
        ("null", "the document must be a map"),
        ("a", "the document must be a map"),
        ("!config {}", "the document must be a map"),
        ("{}\n---\n{}", "more than one document"),
        ("a: 1\na: 2", "the key 'a' is there twice"),
        ("? [1]\n: 2", "a key is not a string"),
        ("a: [1", "did not find expected"),
        ("a: \x01", "control characters"),
        (b"a: \xff", "not UTF-8"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        ("a: !!python/object/apply:os.system [ls]", "tag:yaml.org,2002:python/object/apply"),
        (
            "a: !<tag:yaml.org,2002:python/name:os.system> x",
            "python/name:os.system' is not allowed",
        ),
        ("!!python/object/new:os.system [ls]", "is not allowed"),
        ("a: &a [x]\nb: *a", "it has an alias"),
        ("a: &a {level: 3}\ncompression: {<<: *a}", "it has an alias"),
        ("a: &a [x,x]\n" + "".join(f"{n}: &{n} [{'*a,' * 9}]\n" for n in "bcdefgh"), "alias"),
        ("a: " + "[" * 127 + "]" * 127, None),
        ("a: " + "[" * 128 + "]" * 128, "nested deeper than 128"),
        ("[" * 10**6, "nested deeper than 128"),
        ("a: " + "{b: " * 10**5, "nested deeper than 128"),
        ("- " * 10**5, "nested deeper than 128"),
        ("- a\n" * 2**18, "more than 100000 parts"),
        ("a: " + "x" * 2**20, "1048579 bytes are more than 1048576"),
        ("%TAG !a! x\n" * 90_000, "more than 8 directives"),
        ("&a " * 10**5, "did not find expected"),
    ],
)
def test_hostile_yaml_is_refused_by_name(text: str | bytes, reason: str | None) -> None:
    if reason is None:
        assert from_yaml(text) == c.RepositoryConfig()
        return
    with pytest.raises(FormatError, match=f"^{KEY}: .*{reason}") as error:
        from_yaml(text)
    assert error.value.key == KEY
    assert error.value.kind == ErrorKind.CONFIG_DESERIALIZATION


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ([], "the document must be a map"),
        (None, "the document must be a map"),
        ({"inline_chunk_threshold_bytes": 70_000}, "from 0 to 65535"),
        ({"inline_chunk_threshold_bytes": True}, "must be an integer"),
        ({"inline_chunk_threshold_bytes": "5"}, "must be an integer"),
        ({"compression": {"algorithm": {"zstd": 1}}}, "unknown variant 'zstd'"),
        ({"manifest": {"preload": {"preload_if": {"true": None, "false": None}}}}, "one of a few"),
        ({"manifest": {"preload": {"preload_if": {"and": {}}}}}, "must be a list"),
        ({"manifest": {"preload": {"preload_if": 1}}}, "one of a few variants"),
        (
            {"virtual_chunk_containers": {"a": {"url_prefix": "x", "store": {"gcs": {"a": 1}}}}},
            "string",
        ),
    ],
)
def test_hostile_flexbuffers_are_refused_by_name(tree: Json, reason: str) -> None:
    with pytest.raises(FormatError, match=f"^{KEY}: .*{reason}") as error:
        from_flex(tree)
    assert error.value.key == KEY


def test_deep_conditions_are_read_where_the_reference_reads_them() -> None:
    config = chained(125)
    assert from_yaml(encode_config_yaml(config)) == config
    assert config.merge(config) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert c.with_defaults(config).manifest != config.manifest
    assert decode_config_flexbuffer(encode_config_flexbuffer(config), KEY) == config


@pytest.mark.parametrize("conditions", [200, 100_000])
def test_conditions_too_deep_to_be_read_are_not_written(conditions: int) -> None:
    config = chained(conditions)
    for encode in (encode_config_yaml, encode_config_flexbuffer):
        with pytest.raises(InvalidInputError, match="in one or_conditions"):
            encode(config)


def chained(conditions: int) -> c.RepositoryConfig:
    condition: c.PreloadCondition = c.PreloadTrue()
    for _ in range(conditions - 1):
        condition = condition | c.PreloadFalse()
    return c.RepositoryConfig(manifest=c.ManifestConfig(c.ManifestPreloadConfig(None, condition)))


def test_damaged_yaml_is_read_or_refused() -> None:
    tokens = [
        b"!",
        b"!!",
        b"&a ",
        b"*a",
        b"[",
        b"]",
        b"{",
        b"}",
        b"? ",
        b": ",
        b"- ",
        b"\n",
        b"|\n",
    ]
    tokens += [b"%", b"'", b'"', b"---\n", b"...\n", b"#", b"!and ", b"!s3 ", b"~", b"\t", b"  "]
    documents = [part.encode() for part in re.split(r"^(?=\w)", EXAMPLE, flags=re.MULTILINE)]
    documents.append(encode_config_yaml(c.RepositoryConfig(manifest=example().manifest)))
    refused = refusals(lambda data: decode_config_yaml(data, KEY), documents, 10_000, tokens)
    assert 2_000 < refused < 10_000


def test_damaged_flexbuffers_are_read_or_refused() -> None:
    whole = decode_flexbuffer(encode_config_flexbuffer(example()), where=KEY)
    assert isinstance(whole, dict)
    documents = [encode_flexbuffer({name: part}) for name, part in whole.items()]
    refused = refusals(lambda data: decode_config_flexbuffer(data, KEY), documents, 10_000)
    assert 1_000 < refused < 10_000
