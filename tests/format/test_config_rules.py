"""Splitting rules put into stored configurations, in which nothing else changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given

from icechunk_stream import config as c
from icechunk_stream.format.config_flex import (
    config_flexbuffer,
    config_flexbuffer_root,
    decode_config_flexbuffer,
    encode_config_flexbuffer,
)
from icechunk_stream.format.config_node import Plain, Tagged, resolve
from icechunk_stream.format.config_rules import with_split_rules
from icechunk_stream.format.config_yaml import (
    config_yaml,
    config_yaml_root,
    decode_config_yaml,
    encode_config_yaml,
)
from icechunk_stream.format.flexbuffers import decode_flexbuffer, encode_flexbuffer
from tests.format.config_strategies import configs

KEY = "key"
RULES: c.SplitSizes = ((c.SplitPathMatches("^/g/(?:a|b)$"), ((c.SplitAxis(0), 512),)),)
# What a newer library, or a person, may have put at any place.
FUTURE: dict[str, Any] = {"list": [1, -2, "three", None], "map": {"deep": {"flag": True}}, "n": 1.5}
YAML = """\
inline_chunk_threshold_bytes: 0x100   # a comment
from_the_future: {list: [1, -2, three, ~], hexadecimal: 0xff, quoted: "0xff", tag: !new {a: 1}}
storage: {future: !new {b: [!newer 2]}, unsafe_use_metadata: True}
manifest:
  future: [date, 2001-01-01]
  preload: {max_total_refs: 7, future: 8}
  splitting:
    future: yes
    split_sizes:
    - - !path_matches {regex: temp, future: 1}
      - - {condition: !Axis 0, num_chunks: 12, future: null}
"""


def with_rules(config: c.RepositoryConfig) -> c.RepositoryConfig:
    wanted = copy.deepcopy(config)
    manifest = wanted.manifest = wanted.manifest or c.ManifestConfig()
    splitting = manifest.splitting
    before = (splitting.split_sizes if splitting else None) or ()
    manifest.splitting = c.ManifestSplittingConfig(RULES + before)
    if manifest.max_concurrent_manifest_fetches_during_commit is None:
        manifest.max_concurrent_manifest_fetches_during_commit = 16
    return wanted


@given(configs)
def test_any_configuration_gets_the_rules_and_keeps_the_rest(config: c.RepositoryConfig) -> None:
    yaml = config_yaml_root(encode_config_yaml(config), KEY)
    flex = config_flexbuffer_root(encode_config_flexbuffer(config), KEY)
    wanted = with_rules(config)
    assert decode_config_yaml(config_yaml(with_split_rules(yaml, RULES)), KEY) == wanted
    edited = config_flexbuffer(with_split_rules(flex, RULES))
    assert decode_config_flexbuffer(edited, KEY) == wanted


def plain(tree: Any) -> Any:
    """What a document says, however it is spelt."""
    match tree:
        case Plain():
            return resolve(tree)
        case Tagged(variant, value):
            return variant, plain(value)
        case dict():
            return {name: plain(value) for name, value in tree.items()}
        case list():
            return [plain(item) for item in tree]
        case _:
            return tree


def test_all_that_a_yaml_document_says_is_kept() -> None:
    before = config_yaml_root(YAML.encode(), KEY)
    after = config_yaml(with_split_rules(before, RULES))
    ours = [("path_matches", {"regex": "^/g/(?:a|b)$"})]
    ours += [[{"condition": ("Axis", 0), "num_chunks": 512}]]  # type: ignore[list-item]
    expected = plain(before.value)
    expected["manifest"]["splitting"]["split_sizes"].insert(0, ours)
    expected["manifest"]["max_concurrent_manifest_fetches_during_commit"] = 16
    assert plain(config_yaml_root(after, KEY).value) == expected
    assert decode_config_yaml(after, KEY) == with_rules(decode_config_yaml(YAML.encode(), KEY))


def test_all_that_a_flexbuffer_has_is_kept() -> None:
    rule = [{"path_matches": {"regex": "temp", "f": 1}}, [{"condition": "Any", "num_chunks": 3}]]
    manifest = {"future": FUTURE, "splitting": {"future": FUTURE, "split_sizes": [rule]}}
    document: Any = {"from_the_future": FUTURE, "manifest": manifest, "storage": {"x": -7}}
    root = config_flexbuffer_root(encode_flexbuffer(document), KEY)
    found = decode_flexbuffer(config_flexbuffer(with_split_rules(root, RULES)), where=KEY)

    ours: Any = [
        {"path_matches": {"regex": "^/g/(?:a|b)$"}},
        [{"condition": {"Axis": 0}, "num_chunks": 512}],
    ]
    document["manifest"]["splitting"]["split_sizes"] = [ours, rule]
    document["manifest"]["max_concurrent_manifest_fetches_during_commit"] = 16
    assert found == document


@pytest.mark.parametrize(
    "document", ["", "{}", "manifest:", "manifest: ~", "manifest: {splitting: null}"]
)
def test_a_document_that_has_nothing_gets_the_rules_only(document: str) -> None:
    found = with_split_rules(config_yaml_root(document.encode(), KEY), RULES)
    assert decode_config_yaml(config_yaml(found), KEY) == with_rules(c.RepositoryConfig())
    assert list(found) == ["manifest"]


def test_fetches_at_once_that_are_set_stay() -> None:
    given = c.RepositoryConfig(
        manifest=c.ManifestConfig(max_concurrent_manifest_fetches_during_commit=3)
    )
    root = config_yaml_root(encode_config_yaml(given), KEY)
    found = decode_config_yaml(config_yaml(with_split_rules(root, RULES)), KEY)
    assert found.manifest is not None
    assert found.manifest.max_concurrent_manifest_fetches_during_commit == 3
