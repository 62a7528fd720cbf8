"""Commits that copy nodes, in turn with those of the reference: every library reads all of them."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import icechunk_stream
from icechunk_stream.format.node_blocks import node_blocks
from icechunk_stream.format.snapshot import decode_snapshot
from tests.oracle.compare import assert_same
from tests.oracle.dump import OPTIONAL, dump_repository, open_repository
from tests.oracle.libraries import KNOWS_V2, REFERENCE, SPEC_VERSIONS, legacy_dumps

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.compat,
    # Here the libraries take turns, as they have to on a local disk.
    pytest.mark.filterwarnings("ignore:the configuration says unsafe_use_conditional_update"),
]

COMMITS = 50
NAMES = ("a", "b", "a-b", "ab", "é", "long name of a variable " * 4)
PATHS = (*NAMES, *(f"group/{name}" for name in NAMES), *(f"group/deep/{name}" for name in NAMES))
SHAPES: tuple[tuple[list[int], list[int]], ...] = (
    ([], []),
    ([5], [2]),
    ([4, 6], [2, 2]),
    ([3, 0, 2], [1, 1, 1]),
)


def document(random: Random, shape: list[int], chunks: list[int]) -> bytes:
    names = [random.choice(["x", "time", None]) for _ in shape]
    members: dict[str, Any] = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "int8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
        "attributes": {"note": "n" * random.randrange(9)},
    }
    if random.random() < 0.7:
        members["dimension_names"] = names
    return json.dumps(members).encode()


class Hierarchy:
    """Arrays by path with their shapes, as a session of either library changes them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.shapes: dict[str, tuple[list[int], list[int]]] = {}

    def begin(self, store: Any) -> None:
        for group in ("", "group/", "group/deep/"):
            put(store, f"{group}zarr.json", b'{"zarr_format":3,"node_type":"group"}')
        # So many that the others are copied.
        for number in range(20):
            put(store, f"filler-{number}/zarr.json", b'{"zarr_format":3,"node_type":"group"}')
        for path in self.random.sample(PATHS, 12):
            self._create(store, path)

    def edit(self, store: Any) -> None:
        """One to three changes of different arrays."""
        for path in self.random.sample(PATHS, self.random.randrange(1, 4)):
            if path not in self.shapes:
                self._create(store, path)
            elif self.random.random() < 0.2:
                sync(store.delete(f"{path}/zarr.json"))
                del self.shapes[path]
            elif self.random.random() < 0.3:
                put(store, f"{path}/zarr.json", document(self.random, *self.shapes[path]))
            else:
                self._write(store, path)

    def _create(self, store: Any, path: str) -> None:
        self.shapes[path] = self.random.choice(SHAPES)
        put(store, f"{path}/zarr.json", document(self.random, *self.shapes[path]))
        self._write(store, path)

    def _write(self, store: Any, path: str) -> None:
        shape, chunks = self.shapes[path]
        if all(shape):
            grid = [-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]
            index = [str(self.random.randrange(size)) for size in grid]
            data = self.random.randbytes(self.random.choice((4, 600)))
            put(store, "/".join([path, "c", *index]), data)


def put(store: Any, key: str, data: bytes) -> None:
    sync(store.set(key, default_buffer_prototype().buffer.from_bytes(data)))


@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_fifty_commits_in_turn_are_read_alike(spec_version: int, seed: int, tmp_path: Path) -> None:
    location = tmp_path / "repository"
    hierarchy = Hierarchy(seed)
    storage = REFERENCE.local_filesystem_storage(str(location))
    options = {"spec_version": spec_version} if KNOWS_V2 else {}
    session = REFERENCE.Repository.create(storage, **options).writable_session("main")
    hierarchy.begin(session.store)
    session.commit("begin")
    for number in range(COMMITS):
        library = REFERENCE if number % 2 else icechunk_stream
        session = open_repository(library, location).writable_session("main")
        hierarchy.edit(session.store)
        session.commit(f"commit {number}", allow_empty=True)
    optional = frozenset() if KNOWS_V2 else OPTIONAL
    found = dump_repository(icechunk_stream, location)
    expected = dump_repository(REFERENCE, location)
    assert_same(expected, found, ("reference", "icechunk_stream"), optional)
    if spec_version == 1:
        (old,) = legacy_dumps([(str(location), ())])
        assert_same(old, found, ("icechunk 1.1.21", "icechunk_stream"), OPTIONAL)
    assert_all_copied(location)


def assert_all_copied(location: Path) -> None:
    """There is no snapshot of either library whose nodes would have to be written anew."""
    for path in (location / "snapshots").iterdir():
        snapshot = decode_snapshot(path.read_bytes(), path.name)
        assert node_blocks(snapshot.nodes, snapshot.spec_version).whole.all()
