"""Manifests are cut where the reference library cuts them, for the same writes and settings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import icechunk_stream
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.nodes import ArrayNode

pytestmark = pytest.mark.compat

LIBRARIES = (icechunk, icechunk_stream)
NAMES = ("time", "lat", "lon")


@dataclass(frozen=True)
class Write:
    """Chunks to set and to delete, and a new length of the first axis."""

    set: tuple[tuple[int, ...], ...]
    delete: tuple[tuple[int, ...], ...] = ()
    length: int | None = None


def document(shape: list[int]) -> bytes:
    grid = {"name": "regular", "configuration": {"chunk_shape": [1] * len(shape)}}
    members = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "int8",
        "chunk_grid": grid,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
        "attributes": {},
        "dimension_names": list(NAMES[: len(shape)]),
    }
    return json.dumps(members).encode()


def put(store: Any, key: str, value: bytes) -> None:
    sync(store.set(key, default_buffer_prototype().buffer.from_bytes(value)))


def write(repository: Any, path: str, shape: list[int], step: Write, number: int) -> None:
    session = repository.writable_session("main")
    if step.length is not None:
        shape[0] = step.length
    put(session.store, f"{path}/zarr.json", document(shape) + b" " * number)
    inside = [index for index in step.set if all(i < n for i, n in zip(index, shape, strict=True))]
    for index in inside:
        put(session.store, f"{path}/c/{'/'.join(map(str, index))}", b"%03d" % number)
    for index in step.delete:
        if all(i < n for i, n in zip(index, shape, strict=True)):
            sync(session.store.delete(f"{path}/c/{'/'.join(map(str, index))}"))
    session.commit("write", allow_empty=True)


def extents(repository: Any, path: str) -> list[list[list[int]]]:
    """What the newest snapshot says of an array's manifests, read by one decoder."""
    id = SnapshotId.parse(repository.lookup_branch("main"))
    node = repository._assets.snapshot(id).nodes.get(f"/{path}")
    assert isinstance(node, ArrayNode)
    boxes: list[list[list[int]]] = node.manifests.extents.tolist()
    return boxes


def as_the_reference(ic: Any, repository: Any) -> Any:
    """The repository, with the policy of the reference where it is ours."""
    if ic is icechunk:
        return repository
    return repository.with_manifest_policy(icechunk_stream.OnePerCell())


def run(ic: Any, folder: str, rules: Any, spec: int, path: str, steps: list[Write]) -> list[Any]:
    """Extents after each commit."""
    splitting = ic.ManifestSplittingConfig.from_dict(rules(ic))
    config = ic.RepositoryConfig(manifest=ic.ManifestConfig(splitting=splitting))
    place = ic.local_filesystem_storage(folder)
    created = ic.Repository.create(place, config=config, spec_version=spec)
    repository = as_the_reference(ic, created)
    ours = icechunk_stream.Repository.open(icechunk_stream.local_filesystem_storage(folder))
    shape = list(START)
    found = []
    for number, step in enumerate(steps):
        write(repository, path, shape, step, number)
        found.append(extents(ours, path))
    return found


START = (6, 4)
INDICES = st.tuples(st.integers(0, 9), st.integers(0, 3))
WRITES = st.builds(
    Write,
    set=st.lists(INDICES, max_size=12).map(tuple),
    delete=st.lists(INDICES, max_size=3).map(tuple),
    length=st.none() | st.integers(0, 10),
)
DIMENSIONS = st.sampled_from(("axis0", "axis1", "axis7", "time", "l", "nothing", "any"))
ARRAYS = st.sampled_from(("any", "path", "name", "other", "or", "and"))


def dimension(ic: Any, kind: str) -> Any:
    of = ic.ManifestSplitDimCondition
    if kind.startswith("axis"):
        return of.Axis(int(kind[4:]))
    return of.Any() if kind == "any" else of.DimensionName(kind)


def array(ic: Any, kind: str) -> Any:
    of = ic.ManifestSplitCondition
    conditions = {
        "any": of.AnyArray(),
        "path": of.path_matches("^/g/"),
        "name": of.name_matches("emp$"),
        "other": of.path_matches("nowhere"),
    }
    conditions["or"] = of.or_conditions([conditions["other"], conditions["name"]])
    conditions["and"] = of.and_conditions([conditions["other"], conditions["any"]])
    return conditions[kind]


RULES = st.dictionaries(
    ARRAYS, st.dictionaries(DIMENSIONS, st.integers(1, 7), min_size=1, max_size=3), max_size=3
)


@pytest.mark.parametrize("spec", [1, 2])
@settings(max_examples=40)
@given(rules=RULES, steps=st.lists(WRITES, min_size=1, max_size=4))
def test_manifests_have_the_extents_that_the_reference_gives_them(
    spec: int, rules: dict[str, dict[str, int]], steps: list[Write], tmp_path_factory: Any
) -> None:
    def build(ic: Any) -> Any:
        return {
            array(ic, which): {dimension(ic, each): size for each, size in sizes.items()}
            for which, sizes in rules.items()
        }

    folder = tmp_path_factory.mktemp("splits")
    found = [run(ic, str(folder / ic.__name__), build, spec, "g/temp", steps) for ic in LIBRARIES]

    assert found[1] == found[0]


def test_a_changed_setting_parts_what_is_there_only_when_its_array_is_written(
    tmp_path: Any,
) -> None:
    found = []
    for ic in LIBRARIES:
        folder = str(tmp_path / ic.__name__)
        created = ic.Repository.create(ic.local_filesystem_storage(folder))
        repository = as_the_reference(ic, created)
        shape = [8, 3]
        every = tuple(product(range(8), range(3)))
        write(repository, "a", shape, Write(every), 0)
        write(repository, "b", shape, Write(every), 0)
        rule = {ic.ManifestSplitCondition.AnyArray(): {ic.ManifestSplitDimCondition.Axis(0): 3}}
        splitting = ic.ManifestSplittingConfig.from_dict(rule)
        config = ic.RepositoryConfig(manifest=ic.ManifestConfig(splitting=splitting))
        opened = ic.Repository.open(ic.local_filesystem_storage(folder), config=config)
        again = as_the_reference(ic, opened)
        write(again, "a", shape, Write(((4, 1),)), 1)
        ours = icechunk_stream.Repository.open(icechunk_stream.local_filesystem_storage(folder))
        found.append([extents(ours, path) for path in ("a", "b")])

    assert found[0] == [
        [[[0, 3], [0, 3]], [[3, 6], [0, 3]], [[6, 8], [0, 3]]],
        [[[0, 8], [0, 3]]],
    ]
    assert found[1] == found[0]


def test_values_survive_every_cut(tmp_path: Any) -> None:
    rule: Any = {
        icechunk_stream.ManifestSplitCondition.AnyArray(): {
            icechunk_stream.ManifestSplitDimCondition.Any(): 3
        }
    }
    splitting = icechunk_stream.ManifestSplittingConfig.from_dict(rule)
    config = icechunk_stream.RepositoryConfig(
        manifest=icechunk_stream.ManifestConfig(splitting=splitting)
    )
    place = icechunk_stream.local_filesystem_storage(str(tmp_path))
    created = icechunk_stream.Repository.create(place, config=config)
    repository = as_the_reference(icechunk_stream, created)
    expected = np.arange(20 * 10, dtype="i4").reshape(20, 10)
    session = repository.writable_session("main")
    made = zarr.create_array(session.store, name="a", shape=(20, 10), chunks=(2, 1), dtype="i4")
    made[:10] = expected[:10]
    session.commit("half")
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[10:] = expected[10:]
    session.commit("rest")

    reference = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    read = zarr.open_array(reference.readonly_session("main").store, path="a", mode="r")
    np.testing.assert_array_equal(read[:], expected)
    assert len(extents(repository, "a")) == 16
