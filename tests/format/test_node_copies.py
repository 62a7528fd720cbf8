"""Nodes that go from one snapshot into the next one as bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format import snapshot_encode
from icechunk_stream.format.ids import ID12, ManifestId, NodeId, SnapshotId
from icechunk_stream.format.node_blocks import node_blocks
from icechunk_stream.format.nodes import (
    ArrayDataSlot,
    ArrayNode,
    GroupNode,
    ManifestRefs,
    NodeSlot,
    NodeType,
)
from icechunk_stream.format.snapshot import ManifestFile, decode_snapshot
from icechunk_stream.format.snapshot_encode import SnapshotContents, encode_snapshot
from tests.format.encodable import KEY, U32, U64, node_ids, nodes, snapshots
from tests.format.test_snapshot_encode import plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.snapshot import Snapshot

NEXT = SnapshotId(b"next snapsho")
FIXTURES = (
    "test-repo-v1",
    "test-repo-v2",
    "split-repo-v1",
    "split-repo-v2",
    "expire-repo-v1-by-1.1.21",
    "expire-repo-v2-by-working-copy",
)


@pytest.fixture(scope="module", autouse=True)
def copy_few_nodes_too() -> Iterator[None]:
    """So few as these are otherwise written anew, which is quicker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_encode, "_FEW", 0)
        yield


@dataclass(frozen=True)
class Change:
    """Some nodes of a base that are gone, and some that are new or not what they were."""

    gone: list[str]
    nodes: list[Node]
    files: list[ManifestFile]

    def on(self, base: Snapshot) -> SnapshotContents:
        """The next snapshot as its base and what is different."""
        return SnapshotContents(
            NEXT, None, 1, "next", {"a": 1}, self.files, self.nodes, base, self.gone
        )

    def without_base(self, base: Snapshot) -> SnapshotContents:
        """The next snapshot with all that it has."""
        changed = {node.id for node in self.nodes}
        kept = [
            node for node in base.nodes if node.id not in changed and node.path not in self.gone
        ]
        everything = [*kept, *self.nodes]
        used = {id for node in everything for id in used_by(node)}
        files = {file.id: file for file in (*base.manifest_files, *self.files) if file.id in used}
        return SnapshotContents(NEXT, None, 1, "next", {"a": 1}, list(files.values()), everything)


def used_by(node: Node) -> list[ManifestId]:
    if isinstance(node, GroupNode):
        return []
    return [node.manifests.id(number) for number in range(len(node.manifests))]


@st.composite
def changes(draw: st.DrawFn, base: Snapshot, spec_version: int) -> Change:
    fates = {
        node: draw(st.sampled_from(["stays", "stays", "other", "gone"])) for node in base.nodes
    }
    gone = [node for node, fate in fates.items() if fate == "gone"]
    made = [
        draw(nodes(spec_version, node.id, node.path))
        for node, fate in fates.items()
        if fate == "other"
    ]
    places = {f"/new{number}" for number in range(draw(st.integers(0, 3)))}
    places -= {node.path for node in base.nodes}
    again = draw(st.permutations([node.path for node in gone]))[:1]
    fresh = node_ids.filter(lambda id: id not in {node.id for node in (*base.nodes, *made)})
    for path in [*sorted(places), *again]:
        id = draw(fresh)
        made.append(draw(nodes(spec_version, id, path)))
    known = {file.id for file in base.manifest_files}
    sizes = st.tuples(st.integers(0, U64), st.integers(0, U32))
    used = sorted({id for node in made for id in used_by(node)} - known)
    files = [ManifestFile(id, *draw(sizes)) for id in used]
    return Change([node.path for node in gone], made, files)


def read(data: bytes) -> Snapshot:
    return decode_snapshot(data, KEY)


def said(snapshot: Snapshot) -> dict[str, Any]:
    return plain(SnapshotContents.of(snapshot))


def assert_all_copied(snapshot: Snapshot) -> None:
    """All nodes can be copied, and their strings end as those of a strict reader do."""
    assert node_blocks(snapshot.nodes, snapshot.spec_version).whole.all()
    buffer = snapshot.nodes.buffer
    for at in snapshot.nodes.at.tolist():
        node = buffer.table(at)
        strings = [node.target(NodeSlot.PATH)]
        data = node.table(NodeSlot.DATA)
        assert data is not None
        if node.scalar(NodeSlot.DATA_TYPE, "B") == NodeType.ARRAY:
            names = data.tables(ArrayDataSlot.DIMENSION_NAMES)
            strings += [name.target(0) for name in names if name.has(0)]
        for string in strings:
            assert string is not None
            start, size = buffer.vector(string, 1)
            assert buffer.data[start + size] == 0


@pytest.mark.parametrize("spec_version", [1, 2])
@given(data=st.data())
def test_copies_say_what_nodes_written_anew_say(spec_version: int, data: st.DataObject) -> None:
    base = read(encode_snapshot(data.draw(snapshots(spec_version)), spec_version))
    for _ in range(3):
        change = data.draw(changes(base, spec_version))
        copied = read(encode_snapshot(change.on(base), spec_version))
        anew = read(encode_snapshot(change.without_base(base), spec_version))
        assert said(copied) == said(anew)
        assert_all_copied(copied)
        base = copied


@given(data=st.data())
def test_nodes_of_spec_v1_are_written_anew_in_spec_v2(data: st.DataObject) -> None:
    base = read(encode_snapshot(data.draw(snapshots(1)), 1))
    change = data.draw(changes(base, 2))
    upgraded = read(encode_snapshot(change.on(base), 2))
    assert said(upgraded) == said(read(encode_snapshot(change.without_base(base), 2)))
    assert_all_copied(upgraded)


@pytest.mark.parametrize("name", FIXTURES)
def test_snapshots_of_the_reference_are_copied(name: str, fixtures_folder: Path) -> None:
    for path in sorted((fixtures_folder / name / "snapshots").iterdir()):
        snapshot = read(path.read_bytes())
        assert_all_copied(snapshot)
        contents = replace(
            SnapshotContents.of(snapshot), base=snapshot, nodes=(), manifest_files=()
        )
        copied = read(encode_snapshot(contents, snapshot.spec_version))
        assert said(copied) == said(snapshot)
        again = replace(contents, base=copied)
        assert said(read(encode_snapshot(again, snapshot.spec_version))) == said(snapshot)


# -- hierarchies made by hand ----------------------------------------------------------------------


def group(path: str) -> GroupNode:
    return GroupNode(node_id(path), path, b"{}")


def array(path: str, *manifests: int) -> ArrayNode:
    ids = np.frombuffer(b"".join(manifest_id(number).raw for number in manifests), ID12)
    refs = ManifestRefs(ids, np.zeros((len(ids), 0, 2), np.uint32))
    return ArrayNode(node_id(path), path, b"{}", (), None, refs)


def node_id(path: str) -> NodeId:
    return NodeId(path.encode().ljust(8)[:8])


def manifest_id(number: int) -> ManifestId:
    return ManifestId(number.to_bytes(12, "big"))


def file(number: int) -> ManifestFile:
    return ManifestFile(manifest_id(number), 100 + number, number)


def base_of(*nodes: Node) -> Snapshot:
    numbers = {int.from_bytes(id.raw, "big") for node in nodes for id in used_by(node)}
    files = [file(number) for number in numbers]
    return read(encode_snapshot(SnapshotContents(NEXT, None, 0, "", {}, files, nodes), 2))


def next_of(
    base: Snapshot, *nodes: Node, gone: tuple[str, ...] = (), files: tuple[int, ...] = ()
) -> Snapshot:
    change = Change(list(gone), list(nodes), [file(number) for number in files])
    return read(encode_snapshot(change.on(base), 2))


def paths(snapshot: Snapshot) -> list[str]:
    return [node.path for node in snapshot.nodes]


def files(snapshot: Snapshot) -> list[ManifestFile]:
    return list(snapshot.manifest_files)


def test_a_manifest_stays_listed_as_long_as_an_array_uses_it() -> None:
    base = base_of(array("/a", 1, 2), array("/b", 2, 3), array("/c", 3))
    assert files(next_of(base, gone=("/a",))) == [file(2), file(3)]
    assert files(next_of(base, gone=("/a", "/b"))) == [file(3)]
    assert files(next_of(base, array("/b", 4), files=(4,))) == [file(1), file(2), file(3), file(4)]
    assert files(next_of(base, array("/c", 0, 1), files=(0,))) == [
        file(0),
        file(1),
        file(2),
        file(3),
    ]


def test_a_manifest_that_is_not_used_is_not_listed() -> None:
    assert files(next_of(base_of(array("/a", 1)), files=(2,))) == [file(1)]


def test_a_manifest_that_is_not_listed_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="which is not listed"):
        next_of(base_of(array("/a", 1)), array("/b", 0))
    with pytest.raises(InvalidInputError, match="which is not listed"):
        next_of(base_of(group("/")), array("/b", 0))


def test_new_nodes_stand_where_their_paths_belong() -> None:
    base = base_of(group("/"), group("/b"), group("/d"))
    added = next_of(base, group("/e"), group("/a"), group("/c"), group("/b/x"))
    assert paths(added) == ["/", "/a", "/b", "/b/x", "/c", "/d", "/e"]
    assert paths(next_of(added, gone=("/", "/c", "/e"))) == ["/a", "/b", "/b/x", "/d"]


def test_a_node_may_take_the_place_of_one_that_is_gone() -> None:
    new = replace(group("/a"), id=node_id("/other"))
    assert next_of(base_of(group("/a"), group("/b")), new, gone=("/a",)).nodes.get("/a") == new


def test_a_node_with_another_path_leaves_the_one_that_it_had() -> None:
    moved = replace(group("/a"), path="/z")
    assert paths(next_of(base_of(group("/a"), group("/b")), moved)) == ["/b", "/z"]


def test_two_nodes_with_one_path_or_id_are_refused() -> None:
    base = base_of(group("/a"), group("/b"))
    with pytest.raises(InvalidInputError, match="two nodes have the path /a"):
        next_of(base, replace(group("/a"), id=node_id("/other")))
    with pytest.raises(InvalidInputError, match="the same id"):
        next_of(base, replace(group("/c"), id=node_id("/d")), group("/d"))


def test_snapshots_do_not_grow_as_nodes_are_changed_again_and_again() -> None:
    base = base_of(*(group(f"/{number}") for number in range(20)), array("/array", 1))
    sizes = []
    for number in range(60):
        changed = group(f"/{number % 20}") if number % 3 else array("/array", 1)
        base = next_of(base, replace(changed, user_data=b"{} "))
        sizes.append(base.nbytes)
    assert max(sizes[30:]) <= max(sizes[:30])


@pytest.mark.parametrize("size", range(8))
def test_blocks_keep_their_place_within_eight_bytes(size: int) -> None:
    """Readers check that numbers are where the processor can load them."""
    base = base_of(
        *(replace(node, user_data=b" " * size) for node in (group("/a"), array("/b", 1)))
    )
    blocks = node_blocks(base.nodes, 2)
    after = node_blocks(next_of(base, group("/new")).nodes, 2)
    assert (blocks.starts % 8).tolist() == (after.starts[:2] % 8).tolist()
