"""Metadata values against the reference library, in both spec versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import icechunk
import pytest
from hypothesis import HealthCheck, given, settings

from icechunk_stream.format.values import decode_value, encode_value
from tests.format.json_strategies import metadata
from tests.format.stored import stored_metadata

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

ODD: dict[str, Any] = {
    "empty": {"list": [], "map": {}, "text": "", "": None},
    "limits": [2**64 - 1, -(2**63), 2**63, 2**63 - 1, 2**32, -(2**31) - 1, 128, -129, 65536],
    "floats": [0.1, 1.5, -0.0, 1e308, 5e-324, 3.4e38, 1e-45, 16777217.0],
    "typed": [[1, 2], [1, 2, 3], [-1, -2, -3, -4], [1.5, 2.5], [True], [1], list(range(300))],
    "mixed": [1, -1, None, True, "a", [1, "a"], {"a": [None]}],
    "text": ["é", "\U0001d518", "a\0b", "x" * 70_000],
    "shared": [{"key": 1, "other": {"key": 2}}, {"key": "key"}],
}


@pytest.fixture(params=[1, 2])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path, int]:
    version: int = request.param
    if not hasattr(icechunk, "SpecVersion") and version > 1:
        pytest.fail("the reference library of this Python has no spec version 2")
    storage = icechunk.local_filesystem_storage(str(tmp_path))
    return icechunk.Repository.create(storage, spec_version=version), tmp_path, version


def stored(repository: tuple[Any, Path, int], properties: dict[str, Any]) -> dict[str, bytes]:
    repo, root, _ = repository
    session = repo.writable_session("main")
    snapshot = session.commit("message", metadata=properties, allow_empty=True)
    return stored_metadata(root, snapshot)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(properties=metadata)
def test_random_values_read_and_write_as_the_reference_stores_them(
    repository: tuple[Any, Path, int], properties: dict[str, Any]
) -> None:
    version = repository[2]
    encoded = stored(repository, properties)
    for name, value in properties.items():
        assert repr(decode_value(encoded[name], version, "key")) == repr(in_key_order(value))
        assert encode_value(value, version).hex() == encoded[name].hex()


@pytest.mark.parametrize("name", list(ODD))
def test_odd_values_read_and_write_as_the_reference_stores_them(
    repository: tuple[Any, Path, int], name: str
) -> None:
    version = repository[2]
    encoded = stored(repository, {name: ODD[name]})[name]
    assert repr(decode_value(encoded, version, "key")) == repr(in_key_order(ODD[name]))
    assert encode_value(ODD[name], version).hex() == encoded.hex()


def test_the_reference_nests_as_deep_as_is_read(repository: tuple[Any, Path, int]) -> None:
    value: Any = []
    for _ in range(127):
        value = [value]
    encoded = stored(repository, {"deep": value})["deep"]
    assert decode_value(encoded, repository[2], "key") == value
    assert encode_value(value, repository[2]) == encoded


def test_keys_that_the_reference_cuts_are_read_as_it_reads_them(tmp_path: Path) -> None:
    storage = icechunk.local_filesystem_storage(str(tmp_path))
    repo = icechunk.Repository.create(storage, spec_version=2)
    cut = {"k": {"a\0b": 1, "ab": 2, "c\0": 3}}
    snapshot = repo.writable_session("main").commit("m", metadata=cut, allow_empty=True)
    read = icechunk.Repository.open(storage).lookup_snapshot(snapshot).metadata["k"]
    assert decode_value(stored_metadata(tmp_path, snapshot)["k"], 2, "key") == read


def in_key_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: in_key_order(value[key]) for key in sorted(value)}
    return [in_key_order(item) for item in value] if isinstance(value, list) else value
