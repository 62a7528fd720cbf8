"""Nodes of hostile snapshots that a commit copies: they stay what they are, or are refused."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, cast

import pytest

from icechunk_stream.errors import FormatError, InvalidInputError
from icechunk_stream.format import snapshot_encode
from icechunk_stream.format.ids import NodeId, SnapshotId
from icechunk_stream.format.node_blocks import node_blocks
from icechunk_stream.format.nodes import ArrayNode, GroupNode
from icechunk_stream.format.snapshot import decode_snapshot
from icechunk_stream.format.snapshot_encode import SnapshotContents, encode_snapshot
from tests.hostile import documents as doc
from tests.hostile import raw
from tests.hostile.mutate import mutant
from tests.hostile.raw import Octets, Offsets, Table, u8, u32, u64
from tests.hostile.reading import KEY, SNAPSHOT, seal
from tests.hostile.test_mutants import payloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.snapshot import Snapshot

BLOCK = 1_000
NEW = GroupNode(NodeId(b"\xfe new id"), "/new", b"{}")


@pytest.fixture(scope="module", autouse=True)
def copy_few_nodes_too() -> Iterator[None]:
    """So few as these are otherwise written anew, which is quicker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_encode, "_FEW", 0)
        yield


def committed_on(payload: bytes | bytearray, spec_version: int = 2) -> tuple[Snapshot, Snapshot]:
    """A snapshot, and the one that a commit makes of it that adds a group."""
    base = decode_snapshot(seal(payload, SNAPSHOT.file_type, spec_version), KEY)
    contents = SnapshotContents(SnapshotId(b"\xfe" * 12), None, 0, "", {}, (), [NEW], base)
    return base, decode_snapshot(encode_snapshot(contents, spec_version), KEY)


def outcome(snapshot: Snapshot, path: str) -> object:
    """What a node is, or that it is refused."""
    try:
        return plain(snapshot.nodes.get(path))
    except FormatError:
        return FormatError


def plain(node: Node | None) -> object:
    if not isinstance(node, ArrayNode):
        return node
    ids = [id.tobytes() for id in node.manifests.ids]
    return node, ids, node.manifests.extents.tolist()


def assert_same_nodes(base: Snapshot, after: Snapshot) -> None:
    paths = [path.decode() for path in base.nodes.paths.to_pylist()]
    assert {*paths, "/new"} == {path.decode() for path in after.nodes.paths.to_pylist()}
    for path in paths:
        found = outcome(base, path)
        if found is not FormatError:
            assert outcome(after, path) == found, path


def assert_stays(payload: bytes | bytearray, spec_version: int = 2) -> None:
    try:
        base, after = committed_on(payload, spec_version)
    except (FormatError, InvalidInputError):
        return
    assert_same_nodes(base, after)


@pytest.mark.parametrize("start", range(0, 3 * BLOCK, BLOCK))
def test_damaged_snapshots_are_refused_or_copied_as_they_are(start: int) -> None:
    try_mutants(range(start, start + BLOCK))


@pytest.mark.soak
@pytest.mark.parametrize("start", range(10**7, 10**7 + 500_000, 50_000))
def test_half_a_million_damaged_snapshots_are_refused_or_copied(start: int) -> None:
    try_mutants(range(start, start + 50_000))


def try_mutants(seeds: range) -> None:
    sources = payloads(SNAPSHOT)
    for seed in seeds:
        name, payload, spec_version = sources[seed % len(sources)]
        try:
            assert_stays(mutant(payload, seed), spec_version)
        except Exception as error:
            raise AssertionError(f"mutant {seed} of {name}") from error


# -- parts that are shared, or lie in each other ---------------------------------------------------


def data(node: Table) -> Table:
    return cast("Table", node.fields[4])


def two_arrays() -> tuple[Table, Table]:
    return doc.array("/a", 8), doc.array("/b", 9)


def shared(share: Callable[[Table, Table], None]) -> Table:
    """A snapshot of a group and two arrays that have a part in common."""
    first, second = two_arrays()
    share(first, second)
    return doc.snapshot(doc.group("/", 1), first, second)


def field_of_node(slot: int) -> Callable[[Table, Table], None]:
    def share(first: Table, second: Table) -> None:
        second.fields[slot] = first.fields[slot]

    return share


def field_of_data(slot: int) -> Callable[[Table, Table], None]:
    def share(first: Table, second: Table) -> None:
        data(second).fields[slot] = data(first).fields[slot]

    return share


def tables_of(slot: int) -> Callable[[Table, Table], None]:
    def share(first: Table, second: Table) -> None:
        data(second).fields[slot] = Offsets(cast("Offsets", data(first).fields[slot]).items)

    return share


SHARED = {
    "document": field_of_node(2),
    "data": field_of_node(4),
    "names": field_of_data(1),
    "manifests": field_of_data(2),
    "shape": field_of_data(3),
    "tables of names": tables_of(1),
    "tables of manifests": tables_of(2),
    "tables of the shape": tables_of(3),
}


@pytest.mark.parametrize("part", SHARED)
def test_nodes_that_share_a_part_are_written_anew(part: str) -> None:
    base, after = committed_on(raw.payload(shared(SHARED[part])))
    assert node_blocks(base.nodes, 2).whole.tolist() == [True, False, False]
    assert_same_nodes(base, after)
    assert node_blocks(after.nodes, 2).whole.all()


def test_a_table_that_a_node_has_twice_is_written_twice() -> None:
    array = doc.array("/a", names=None)
    name = Table("DimensionName", {0: raw.text("x")})
    data(array).fields[1] = Offsets([name, name])
    base, after = committed_on(raw.payload(doc.snapshot(array)))
    assert not node_blocks(base.nodes, 2).whole.any()
    assert_same_nodes(base, after)
    assert node_blocks(after.nodes, 2).whole.all()


def test_names_of_dimensions_that_nodes_share_stay_shared() -> None:
    """The reference writes each name once."""
    names = [raw.text("time"), raw.text("a longer name"), raw.text("alone")]
    arrays = [doc.array(f"/{number}", 10 + number, names=None) for number in range(3)]
    for array, used in zip(arrays, ((0, 1), (1, 0), (2, 2)), strict=True):
        named = [Table("DimensionName", {0: names[number]}) for number in used]
        data(array).fields[1] = Offsets(named)
    base, after = committed_on(raw.payload(doc.snapshot(*arrays)))
    assert node_blocks(base.nodes, 2).whole.all()
    for _ in range(3):
        assert_same_nodes(base, after)
        assert node_blocks(after.nodes, 2).whole.all()
        assert encoded(after).count(b"\x04\0\0\0time\0") <= 2
        contents = SnapshotContents(SnapshotId(b"\xfd" * 12), None, 0, "", {}, (), (), after)
        after = decode_snapshot(encode_snapshot(contents, 2), KEY)


def test_a_document_that_lies_over_a_table_of_its_node_stays_as_it_is() -> None:
    """Copying a table changes its first word, which here is a part of the document."""
    group = doc.group("/a", 1)
    flat = raw.lay_out(doc.snapshot(group))
    flat.data += bytes(-len(flat.data) % 4)
    end = len(flat.data)
    flat.data += struct.pack("<Ii", 8, end + 4 - flat.vtable(data(group))) + b"tail"
    for slot, target in ((2, end), (4, end + 4)):
        flat.put("I", flat.place(group, slot), target - flat.place(group, slot))
    base, after = committed_on(flat.data)
    assert cast("GroupNode", base.nodes.get("/a")).user_data.endswith(b"tail")
    assert node_blocks(base.nodes, 2).whole.tolist() == [False]
    assert_same_nodes(base, after)


def test_nodes_that_lie_in_each_other_stay_as_they_are() -> None:
    """The document of the first one stands behind all of the second one."""
    first, second = doc.group("/a", 1), doc.group("/b", 2)
    flat = raw.lay_out(doc.snapshot(first, second))
    flat.data += bytes(-len(flat.data) % 4)
    flat.put("I", flat.place(first, 2), len(flat.data) - flat.place(first, 2))
    flat.data += struct.pack("<I", 2) + b"{}"
    base, after = committed_on(flat.data)
    assert not node_blocks(base.nodes, 2).whole.any()
    assert_same_nodes(base, after)
    assert node_blocks(after.nodes, 2).whole.all()


@pytest.mark.parametrize("size", range(1, 9))
def test_a_string_at_the_end_of_a_block_still_ends_with_a_nul(size: int) -> None:
    group = doc.group("/a", 1)
    flat = raw.lay_out(doc.snapshot(group))
    flat.data += bytes(-len(flat.data) % 4)
    flat.put("I", flat.place(group, 1), len(flat.data) - flat.place(group, 1))
    path = "/" + "p" * size
    flat.data += struct.pack("<I", len(path)) + path.encode() + b"\0"
    base, after = committed_on(flat.data)
    assert_same_nodes(base, after)
    row = after.nodes.row(path)
    assert row is not None
    string = after.nodes.buffer.table(int(after.nodes.at[row])).target(1)
    assert string is not None
    assert after.nodes.buffer.data[string + 4 + len(path)] == 0


# -- vtables ---------------------------------------------------------------------------------------


def test_fields_that_are_not_known_are_left_out() -> None:
    array, group = doc.array("/a"), doc.group("/b")
    for table in (array, group, data(array), data(group)):
        table.fields[9] = Octets(b"what a later release writes")
    base, after = committed_on(raw.payload(doc.snapshot(array, group)))
    assert node_blocks(base.nodes, 2).whole.all()
    assert_same_nodes(base, after)
    payload = encoded(after)
    assert b"later release" not in payload


def encoded(snapshot: Snapshot) -> bytes:
    return bytes(snapshot.nodes.buffer.data)


def test_vtables_of_other_sizes_are_followed() -> None:
    """The same fields, in tables that are longer than they need to be."""
    array = doc.array("/a")
    data(array).fields[3] = Offsets(
        [Table("DimensionShapeV2", {0: u64(4), 1: u32(2), 7: u64(size)}) for size in range(2)]
    )
    base, after = committed_on(raw.payload(doc.snapshot(array)))
    assert_same_nodes(base, after)


def wrong_vtable(table_of: Callable[[Table], Table], like: Callable[[Table], Table]) -> bytes:
    """A snapshot in which a table of the array has the vtable of another one of its tables."""
    array = doc.array("/a")
    flat = raw.lay_out(doc.snapshot(doc.group("/", 1), array))
    table, other = flat.position(table_of(array)), flat.vtable(like(array))
    return bytes(flat.put("i", table, table - other).data)


def part(slot: int) -> Callable[[Table], Table]:
    return lambda array: cast("Table", cast("Offsets", data(array).fields[slot]).items[0])


TABLES: dict[str, Callable[[Table], Table]] = {
    "node": lambda array: array,
    "data": data,
    "name": part(1),
    "manifest": part(2),
    "dimension": part(3),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("like", TABLES)
def test_tables_with_the_vtable_of_others_are_refused_or_stay(table: str, like: str) -> None:
    assert_stays(wrong_vtable(TABLES[table], TABLES[like]))


@pytest.mark.parametrize("table", TABLES)
def test_vtables_outside_of_the_buffer_are_refused(table: str) -> None:
    array = doc.array("/a")
    flat = raw.lay_out(doc.snapshot(array))
    at = flat.position(TABLES[table](array))
    for target in (-2, 2**31 - 1, at - len(flat.data), at - len(flat.data) + 2):
        with pytest.raises(FormatError):
            committed_on(bytes(flat.put("i", at, target).data))


# -- what is missing -------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", [0, 1, 2, 4])
def test_nodes_that_lack_a_part_are_refused(slot: int) -> None:
    group = doc.group("/a")
    del group.fields[slot]
    with pytest.raises(FormatError):
        committed_on(raw.payload(doc.snapshot(group)))


@pytest.mark.parametrize("slot", [2, 3])
def test_arrays_that_lack_a_part_are_refused(slot: int) -> None:
    array = doc.array("/a")
    del data(array).fields[slot]
    with pytest.raises(FormatError):
        committed_on(raw.payload(doc.snapshot(array)))


@pytest.mark.parametrize("tag", [0, 3, 255])
def test_nodes_of_unknown_types_are_refused(tag: int) -> None:
    group = doc.group("/a")
    group.fields[3] = u8(tag)
    with pytest.raises(FormatError):
        committed_on(raw.payload(doc.snapshot(group)))


@pytest.mark.parametrize("path", ["/a/", "/a//b", "/..", "/a/../b", "/\n/./b"])
def test_paths_that_would_have_to_be_resolved_are_refused(path: str) -> None:
    with pytest.raises(FormatError):
        committed_on(raw.payload(doc.snapshot(doc.group(path))))


def test_arrays_encoded_in_spec_v1_are_written_anew_in_a_snapshot_of_spec_v2() -> None:
    """Their shape would be read as that of an array without dimensions."""
    base, after = committed_on(raw.payload(doc.snapshot(doc.array_v1("/a"))))
    assert not node_blocks(base.nodes, 2).whole.any()
    assert_same_nodes(base, after)
    assert node_blocks(after.nodes, 2).whole.all()


def test_arrays_with_the_shape_of_spec_v2_are_written_anew_in_spec_v1() -> None:
    array = doc.array_v1("/a", shape=((4, 2), (6, 2)))
    dimensions = [Table("DimensionShapeV2", {0: u64(n), 1: u32(n // 2)}) for n in (4, 6)]
    data(array).fields[3] = Offsets(dimensions)
    base, after = committed_on(raw.payload(doc.snapshot_v1(array)), 1)
    assert not node_blocks(base.nodes, 1).whole.any()
    assert_same_nodes(base, after)
    assert node_blocks(after.nodes, 1).whole.all()


def test_arrays_without_the_empty_shape_of_spec_v1_get_it() -> None:
    array = doc.array("/a")
    data(array).fields.pop(0, None)
    base, after = committed_on(raw.payload(doc.snapshot(array)))
    assert_same_nodes(base, after)
    assert node_blocks(after.nodes, 2).whole.all()
