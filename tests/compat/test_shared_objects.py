"""Layouts that the format allows and no writer makes: what several things share one object."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from icechunk_stream.format.ids import ManifestId
from icechunk_stream.format.nodes import ArrayNode, ManifestRefs
from icechunk_stream.format.snapshot import ManifestFile, decode_snapshot
from icechunk_stream.format.snapshot_encode import SnapshotContents, encode_snapshot
from icechunk_stream.storage import LocalStorage
from tests.oracle import plans
from tests.oracle.compare import assert_same
from tests.oracle.dump import OPTIONAL, dump_repository, open_repository
from tests.oracle.libraries import KNOWS_V2, REFERENCE, SPEC_VERSIONS
from tests.oracle.maker import make_repository
from tests.oracle.manifest_files import Ref, id_text, manifest_file
from tests.oracle.outcomes import answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from icechunk_stream.format.nodes import Node
    from icechunk_stream.storage import ByteRange

pytestmark = pytest.mark.compat

UNKNOWN_TO_THE_REFERENCE: frozenset[str] = frozenset() if KNOWS_V2 else OPTIONAL
CHUNK = bytes(range(12))


@dataclass(frozen=True, slots=True)
class Place:
    """A repository of one commit, whose objects are being exchanged."""

    folder: Path
    spec_version: int

    def share_manifest(self, refs: Mapping[str, Sequence[Ref]]) -> None:
        """Let all arrays use one manifest, of the references given by path."""
        session = open_repository(REFERENCE, self.folder).readonly_session("main")
        file = self.folder / "snapshots" / session.snapshot_id
        old = SnapshotContents.of(decode_snapshot(file.read_bytes(), file.name))
        by_id = {str(node.id): refs[node.path] for node in old.nodes if node.path in refs}
        shared = old.manifest_files[0].id
        written = manifest_file(str(shared), by_id, self.spec_version)
        (self.folder / "manifests" / str(shared)).write_bytes(written)
        listed = ManifestFile(shared, len(written), sum(map(len, refs.values())))
        nodes = [_using(node, shared) for node in old.nodes]
        new = replace(old, manifest_files=[listed], nodes=nodes)
        file.write_bytes(encode_snapshot(new, self.spec_version))

    def put_chunk(self, content: bytes) -> None:
        (self.folder / "chunks").mkdir(exist_ok=True)
        (self.folder / "chunks" / id_text(CHUNK)).write_bytes(content)

    def assert_both_say_the_same(self) -> None:
        expected, found = (dump_repository(ic, self.folder) for ic in (REFERENCE, icechunk_stream))
        assert_same(expected, found, ("reference", "icechunk_stream"), UNKNOWN_TO_THE_REFERENCE)


def _using(node: Node, manifest: ManifestId) -> Node:
    if not isinstance(node, ArrayNode) or not len(node.manifests.ids):
        return node
    ids = np.frombuffer(manifest.raw, node.manifests.ids.dtype)
    return replace(node, manifests=ManifestRefs(ids=ids, extents=node.manifests.extents))


@pytest.fixture(params=SPEC_VERSIONS, ids="v{}".format)
def spec_version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def _place(tmp_path: Path, spec_version: int, *changes: plans.Change) -> Place:
    location = tmp_path / "repository"
    steps = (plans.Commit(0, changes, "made", {}),)
    plan = plans.Plan(spec_version=spec_version, inline_threshold=512, steps=steps)
    make_repository(REFERENCE, plan, str(location), plans.Containers(str(tmp_path)))
    return Place(location, spec_version)


def test_a_manifest_that_holds_several_arrays_is_read(tmp_path: Path, spec_version: int) -> None:
    arrays = [plans.PutArray(f"/{name}", (3,), (1,), None, {}) for name in "abc"]
    fills = [plans.WriteChunks(number, 0, 3, None, 10 * number) for number in range(3)]
    place = _place(tmp_path, spec_version, *arrays, plans.PutGroup("/", {}), *fills)
    place.put_chunk(b"?\x65\x66?\x67")
    place.share_manifest(
        {
            "/a": [Ref((number,), inline=bytes([number])) for number in range(3)],
            "/b": [Ref((number,), chunk_id=CHUNK, offset=1 + number, length=1) for number in (0, 1)]
            + [Ref((2,), chunk_id=CHUNK, offset=4, length=1)],
            "/c": [Ref((2,), inline=b"\x09")],
        }
    )
    place.assert_both_say_the_same()
    store = open_repository(icechunk_stream, place.folder).readonly_session("main").store
    values = {name: _values(store, name) for name in "abc"}
    assert values == {"a": [0, 1, 2], "b": [0x65, 0x66, 0x67], "c": [7, 7, 9]}


class CountingStorage(LocalStorage):
    """Local storage that notes the ranges asked of chunk objects."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.asked: list[ByteRange | None] = []

    def _get(self, key: str, byte_range: ByteRange | None) -> bytes:
        if key.startswith("chunks/"):
            self.asked.append(byte_range)
        return super()._get(key, byte_range)


def test_an_inner_chunk_of_a_shard_at_an_offset_costs_two_ranged_gets(
    tmp_path: Path, spec_version: int
) -> None:
    place, shards = _sharded(tmp_path, spec_version)
    start, gap = 5, 3
    place.put_chunk(b"?" * start + shards[0] + b"?" * gap + shards[1] + b"?")
    places = (start, start + len(shards[0]) + gap)
    refs = [
        Ref((number,), chunk_id=CHUNK, offset=offset, length=len(shards[number]))
        for number, offset in enumerate(places)
    ]
    place.share_manifest({"/s": refs})
    place.assert_both_say_the_same()
    storage = CountingStorage(str(place.folder))
    store = icechunk_stream.Repository.open(storage).readonly_session("main").store
    array = zarr.open_array(store, path="s", mode="r")
    assert np.asarray(array[10:12]).tolist() == [10, 11]
    assert len(storage.asked) == 2
    assert None not in storage.asked
    assert _values(store, "s") == list(range(16))


def _sharded(tmp_path: Path, spec_version: int) -> tuple[Place, list[bytes]]:
    """An array of two shards of four chunks, and the bytes of its shards."""
    place = _place(tmp_path, spec_version, plans.PutGroup("/", {}))
    repository = open_repository(REFERENCE, place.folder)
    session = repository.writable_session("main")
    group = zarr.open_group(session.store)
    array = group.create_array("s", shape=(16,), chunks=(2,), shards=(8,), dtype="uint8")
    array[...] = np.arange(16, dtype="uint8")
    session.commit("sharded")
    prototype = default_buffer_prototype()
    return place, [answer(session.store.get, f"s/c/{number}", prototype) for number in (0, 1)]


def _values(store: Any, name: str) -> list[int]:
    values = np.asarray(zarr.open_array(store, path=name, mode="r")[...])
    return [int(value) for value in values]
