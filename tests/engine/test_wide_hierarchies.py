"""Ten thousand nodes: what a commit changes is made into objects, and nothing else is."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream as ic
from icechunk_stream.format.ids import ID12, ManifestId, NodeId
from icechunk_stream.format.node_blocks import node_blocks
from icechunk_stream.format.nodes import ArrayNode, Dimension, ManifestRefs
from icechunk_stream.format.snapshot import ManifestFile, decode_snapshot
from icechunk_stream.format.snapshot_encode import SnapshotContents, encode_snapshot
from icechunk_stream.reading import children
from icechunk_stream.storage.memory import MemoryStorage
from tests.zarr.documents import GROUP, array

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from icechunk_stream.format.snapshot import Snapshot

PROTOTYPE = default_buffer_prototype()
CHANGED = ("a", "b", "c")
DOCUMENT = array([40, 60], [10, 10])
MANIFESTS = 300


@pytest.fixture(params=[1, 2])
def spec_version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def wide_storage(spec_version: int, count: int) -> MemoryStorage:
    """Three arrays with chunks, and many beside them whose manifests nobody reads."""
    storage = MemoryStorage()
    session = ic.Repository.create(storage, spec_version=spec_version).writable_session("main")
    put(session, "zarr.json", GROUP)
    for name in CHANGED:
        put(session, f"{name}/zarr.json", array([10], [2]))
        put(session, f"{name}/c/0", b"0")
    tip = session.commit("three arrays")
    key = f"snapshots/{tip}"
    made = SnapshotContents.of(decode_snapshot(storage.get(key), key))
    wide = replace(
        made,
        nodes=[*made.nodes, *(wide_node(number) for number in range(count - len(made.nodes)))],
        manifest_files=[*made.manifest_files, *map(wide_file, range(MANIFESTS))],
    )
    storage.put(key, encode_snapshot(wide, spec_version))
    return storage


def wide_node(number: int) -> ArrayNode:
    ids = [wide_id(number % MANIFESTS).raw, wide_id(-number % MANIFESTS).raw]
    boxes = np.array([[[0, 2], [0, 6]], [[2, 4], [0, 6]]], np.uint32)
    return ArrayNode(
        NodeId(number.to_bytes(8, "big")),
        f"/group-{number % 100:02}/array-{number}",
        DOCUMENT,
        (Dimension(40, 4), Dimension(60, 6)),
        ("time", None),
        ManifestRefs(np.frombuffer(b"".join(ids), ID12), boxes),
    )


def wide_id(number: int) -> ManifestId:
    return ManifestId(b"wide" + number.to_bytes(8, "big"))


def wide_file(number: int) -> ManifestFile:
    return ManifestFile(wide_id(number), 1000 + number, 48)


def put(session: ic.Session, key: str, data: bytes) -> None:
    session.store.set_sync(key, PROTOTYPE.buffer.from_bytes(data))


def tip_of(storage: MemoryStorage, tip: str) -> Snapshot:
    key = f"snapshots/{tip}"
    return decode_snapshot(storage.get(key), key)


def commit(storage: MemoryStorage) -> str:
    """Open, look one node up, change a document, chunks of two arrays, and create a group."""
    session = ic.Repository.open(storage).writable_session("main")
    assert session.store.get_sync("group-07/array-407/zarr.json") is not None
    put(session, "a/zarr.json", array([12], [2]))
    put(session, "b/c/1", b"1")
    put(session, "c/c/0", b"2")
    put(session, "group-07/new/zarr.json", GROUP)
    return session.commit("three arrays of many")


_LOOKED_AT = 8


class Watch:
    """Counts calls, and after some of them how many small objects there are: counting is slow."""

    def __init__(self) -> None:
        self.calls = 0
        self.most = 0

    def over(self, work: Callable[[], object]) -> None:
        gc.collect()
        before = sys.getallocatedblocks()

        def look(frame: FrameType, event: str, arg: object) -> None:
            self.calls += 1
            if self.calls % _LOOKED_AT == 0:
                self.most = max(self.most, sys.getallocatedblocks() - before)

        sys.setprofile(look)
        try:
            work()
        finally:
            sys.setprofile(None)


def test_opening_a_look_up_and_a_commit_make_no_object_for_each_node(spec_version: int) -> None:
    commit(wide_storage(spec_version, 1_000))
    watches = {}
    for count in (1_000, 10_000):
        storage = wide_storage(spec_version, count)
        watches[count] = Watch()
        watches[count].over(lambda storage=storage: commit(storage))  # type: ignore[misc]
    assert watches[10_000].most < 2_000
    assert watches[10_000].calls < watches[1_000].calls + 1_000


def test_the_commit_says_what_changed_and_keeps_the_rest(spec_version: int) -> None:
    storage = wide_storage(spec_version, 2_000)
    before = {node.path: node for node in tip_of(storage, tip(storage)).nodes}
    after = tip_of(storage, commit(storage))
    assert node_blocks(after.nodes, spec_version).whole.all()
    found = {node.path: node for node in after.nodes}
    changed = {path for path, node in found.items() if before.get(path) != node}
    assert changed == {"/a", "/group-07/new"}
    assert before.keys() == found.keys() - {"/group-07/new"}
    for path in before.keys() - {"/a", "/b", "/c", "/"}:
        assert manifests(found[path]) == manifests(before[path])
    used = {id for node in found.values() for id in manifests(node)}
    assert {file.id.raw for file in after.manifest_files} == used
    session = ic.Repository.open(storage).readonly_session("main")
    chunks = [session.store.get_sync(key) for key in ("a/c/0", "b/c/0", "b/c/1", "c/c/0")]
    assert [None if chunk is None else chunk.to_bytes() for chunk in chunks] == [
        b"0",
        b"0",
        b"1",
        b"2",
    ]


def tip(storage: MemoryStorage) -> str:
    return ic.Repository.open(storage).lookup_branch("main")


def manifests(node: object) -> list[bytes]:
    return [id.tobytes() for id in node.manifests.ids] if isinstance(node, ArrayNode) else []


def test_children_are_found_without_decoding_what_lies_deeper(spec_version: int) -> None:
    storage = wide_storage(spec_version, 5_000)
    session = ic.Repository.open(storage).writable_session("main")
    put(session, "d/zarr.json", GROUP)
    put(session, "d/e/zarr.json", GROUP)
    watch = Watch()
    watch.over(lambda: children(session.reader.nodes, "/"))
    assert watch.most < 1_000
    assert [node.path for node in children(session.reader.nodes, "/")] == ["/a", "/b", "/c", "/d"]
    assert [node.path for node in children(session.reader.nodes, "/d")] == ["/d/e"]
    assert len(children(session.reader.nodes, "/group-07")) == 50
    assert children(session.reader.nodes, "/group") == []


def test_nodes_that_were_decoded_are_forgotten_and_can_be_decoded_again(
    spec_version: int,
) -> None:
    storage = wide_storage(spec_version, 6_000)
    nodes = tip_of(storage, tip(storage)).nodes
    for _ in range(4):
        assert sum(1 for _ in nodes) == 6_000
    gc.collect()
    before = sys.getallocatedblocks()
    nodes._decoded.clear()
    assert before - sys.getallocatedblocks() < 4_096 * 20


def test_a_group_with_many_arrays_is_deleted_at_once(spec_version: int) -> None:
    storage = wide_storage(spec_version, 2_000)
    session = ic.Repository.open(storage).writable_session("main")
    put(session, "group-07/zarr.json", GROUP)
    session.store.delete_sync("group-07/zarr.json")
    session.commit("without a group")
    left = [node.path for node in tip_of(storage, tip(storage)).nodes]
    assert len(left) == 2_000 - 20
    assert not any(path.startswith("/group-07") for path in left)
