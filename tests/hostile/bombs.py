"""Small objects that ask for much: parts shared a million times, texts that claim to be long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.hostile import documents as doc
from tests.hostile import frames, raw, reading
from tests.hostile.raw import Field, Inline, Octets, Offsets, Table, text, u8, u32, u64, words

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 1_000_000
SOME = 50_000
LONG = b"s" * 4_000_000
FRAME = frames.frame(frames.raw_blocks(b"s3://bucket/key"), 15)


@dataclass(frozen=True)
class Bomb:
    """An object that must cost little, whether it is refused or not."""

    kind: reading.Kind
    document: Callable[[], Table | bytes]
    refused: bool = True

    def sealed(self) -> bytes:
        document = self.document()
        payload = document if isinstance(document, bytes) else raw.payload(document)
        return reading.seal(payload, self.kind.file_type)


def _numbered(count: int) -> list[str]:
    return [f"/{number:06}" for number in range(count)]


# -- snapshots -------------------------------------------------------------------------------------


def _nodes_that_are_one() -> Table:
    return doc.snapshot(*[doc.group("/a")] * MANY)


def _nodes_with_one_long_path() -> Table:
    return doc.snapshot(*[doc.group(b"/" + LONG)] * SOME)


def _nodes_with_one_document() -> Table:
    return _nodes_sharing({2: Octets(LONG)}, SOME)


def _nodes_with_one_array() -> Table:
    boxes = [((n, n + 1),) for n in range(2000)]
    shared = doc.array("/a", shape=((2000, 2000),), boxes=boxes, names=None)
    return _nodes_sharing({3: u8(1), 4: shared.fields[4]}, 2000)


def _nodes_sharing(fields: dict[int, Field], count: int) -> Table:
    nodes = [doc.group(path) for path in _numbered(count)]
    for node in nodes:
        node.fields |= fields
    return doc.snapshot(*nodes)


def _manifests_that_are_one(rank: int, count: int = MANY) -> Table:
    ref = doc.manifest_ref(1, [(0, 1)] * rank)
    array = doc.array("/a", shape=[(1, 1)] * rank, boxes=(), names=None)
    _data(array).fields[2] = Offsets([ref] * count)
    return doc.snapshot(array)


def _boxes_side_by_side() -> Table:
    boxes = [((0, 7), (n, n + 1), (0, 7)) for n in range(SOME)]
    return doc.snapshot(doc.array("/a", shape=((7, 7), (SOME, SOME), (7, 7)), boxes=boxes))


def _pinwheels() -> Table:
    """Boxes that no straight cut separates, five to a pinwheel, in one long row."""
    wheel = (
        ((0, 2), (0, 1)),
        ((0, 1), (1, 3)),
        ((1, 2), (1, 2)),
        ((1, 3), (2, 3)),
        ((2, 3), (0, 2)),
    )
    boxes = [
        ((low + 3 * n, high + 3 * n), second)
        for n in range(SOME // 5)
        for (low, high), second in wheel
    ]
    return doc.snapshot(doc.array("/a", shape=((SOME, SOME), (3, 3)), boxes=boxes))


def _staircase() -> Table:
    """Long boxes that lie beside each other along one axis, and overlap along the other."""
    boxes = [((n, n + 20_000), (n, n + 1)) for n in range(20_000)]
    return doc.snapshot(doc.array("/a", shape=((40_000, 40_000), (20_000, 20_000)), boxes=boxes))


def _rings(count: int) -> Table:
    """Rings in rings, each of four boxes, which no straight cut separates."""
    boxes = []
    for low in range(count):
        high = 2 * count - low
        boxes += [
            ((low, high - 1), (low, low + 1)),
            ((high - 1, high), (low, high - 1)),
            ((low + 1, high), (high - 1, high)),
            ((low, low + 1), (low + 1, high)),
        ]
    return doc.snapshot(doc.array("/a", shape=((2 * count, 2 * count),) * 2, boxes=boxes))


def _dimensions_that_are_one() -> Table:
    array = doc.array("/a", boxes=[((0, 1), (0, 1))] * 1000)
    _data(array).fields[3] = Offsets([Table("DimensionShapeV2", {0: u64(1), 1: u32(1)})] * MANY)
    return doc.snapshot(array)


def _names_that_are_one() -> Table:
    array = doc.array("/a")
    _data(array).fields[1] = Offsets([Table("DimensionName", {0: text("x")})] * MANY)
    return doc.snapshot(array)


def _names_with_one_long_text() -> Table:
    array = doc.array("/a")
    _data(array).fields[1] = Offsets([Table("DimensionName", {0: text(LONG)})] * 1000)
    return doc.snapshot(array)


def _manifest_files_that_are_one() -> Table:
    snapshot = doc.snapshot()
    file = Table("ManifestFileInfoV2", {0: doc.id12(1), 1: u64(2**40), 2: u32(2**31)})
    snapshot.fields[7] = Offsets([file] * MANY)
    return snapshot


def _metadata_with_one_value() -> Table:
    snapshot = doc.snapshot()
    value = Octets(LONG + b"\0\x14\x01")
    items = [Table("MetadataItem", {0: text(name), 1: value}) for name in _numbered(1000)]
    snapshot.fields[5] = Offsets(items)
    return snapshot


def _huge(field: Field, slot: int) -> Table:
    """A snapshot with a field that is what it claims to be."""
    snapshot = doc.snapshot()
    snapshot.fields[slot] = field
    return snapshot


def _incompressible(start: bytes) -> bytes:
    """Some 200 MB that shrink by less than what is taken for a bomb."""
    return start + b"".join(b"%09d " % number for number in range(20_000_000))


def _data(array: Table) -> Table:
    data = array.fields[4]
    assert isinstance(data, Table)
    return data


# -- manifests -------------------------------------------------------------------------------------


def _refs_that_are_one(rank: int) -> Table:
    return doc.manifest(doc.array_refs(1, [doc.virtual([0] * rank)] * MANY))


def _arrays_with_one_vector() -> Table:
    shared = Offsets([doc.inline([0])])
    arrays = [Table("ArrayManifest", {0: doc.id8(node), 1: shared}) for node in range(1, SOME)]
    return doc.manifest(*arrays)


def _refs_sharing(**fields: Field) -> Table:
    refs = [doc.ref([number], length=u64(1), **fields) for number in range(SOME)]
    frame = doc.ref([SOME], length=u64(1), compressed=Octets(FRAME))
    return doc.manifest(
        doc.array_refs(1, [*refs, frame]), algorithm=u8(1), dictionary=Octets(b"dictionary" * 8)
    )


def _overlapping_locations() -> bytes:
    """Each location begins four bytes after the one before, and is 8000 bytes long."""
    lengths = words(*[8000] * (SOME + 2000))
    refs = [doc.ref([number], length=u64(1), location=lengths) for number in range(SOME)]
    flat = raw.lay_out(doc.manifest(doc.array_refs(1, refs)))
    for number, ref in enumerate(refs):
        place = flat.place(ref, 5)
        flat.put("I", place, flat.position(lengths) + 4 * (number + 1) - place)
    return bytes(flat.data)


def _refs_of_many_shapes() -> Table:
    """Every reference has a vtable of its own."""
    refs = [doc.inline([number]) for number in range(4000)]
    for number, ref in enumerate(refs):
        ref.fields[100] = Inline(bytes(1 + number))
    return doc.manifest(doc.array_refs(1, refs))


def _arrays_of_refs_of_many_shapes() -> Table:
    refs = [doc.inline([number]) for number in range(1000)]
    for number, ref in enumerate(refs):
        ref.fields[100] = Inline(bytes(1 + number))
    shared = Offsets(refs)
    arrays = [Table("ArrayManifest", {0: doc.id8(node), 1: shared}) for node in range(1, 2000)]
    return doc.manifest(*arrays)


# -- transaction logs ------------------------------------------------------------------------------


def _updated_arrays_with_one_vector() -> Table:
    shared = Offsets([Table("ChunkIndices", {0: words(0)})])
    return doc.log(
        [Table("ArrayUpdatedChunks", {0: doc.id8(node), 1: shared}) for node in range(1, SOME)]
    )


def _updated_chunks_that_are_one(rank: int) -> Table:
    chunk = Table("ChunkIndices", {0: words(*[0] * rank)})
    return doc.log([Table("ArrayUpdatedChunks", {0: doc.id8(1), 1: Offsets([chunk] * MANY)})])


def _moves_that_are_one() -> Table:
    return doc.log((), [doc.move()] * MANY)


def _moves_with_one_long_path() -> Table:
    return doc.log((), [doc.move("/" + "a/" * 1_000_000 + "b")] * 1000)


# -- repo objects ----------------------------------------------------------------------------------


def _updates_that_are_one() -> Table:
    return doc.repo(slot_7=Offsets([doc.update(5, Table("TagCreated", {0: text("t")}))] * MANY))


def _updates_with_one_long_text() -> Table:
    entry = doc.update(5, Table("TagCreated", {0: text(LONG)}))
    return doc.repo(slot_7=Offsets([entry] * SOME))


def _deleted_tags_that_are_one(name: bytes, count: int) -> Table:
    return doc.repo(slot_3=Offsets([text(name)] * count))


def _tags_that_are_one() -> Table:
    return doc.repo(slot_1=Offsets([Table("Ref", {0: text("t"), 1: u32(0)})] * MANY))


def _snapshots_that_are_one() -> Table:
    return doc.repo(*[doc.info(1, -1)] * MANY)


def _snapshots_sharing(fields: dict[int, Field]) -> Table:
    snapshots = [doc.info(number, number - 1) for number in range(2000)]
    for snapshot in snapshots:
        snapshot.fields |= fields
    return doc.repo(*snapshots, slot_1=doc.refs(tag=1))


def _many_items() -> Offsets:
    return Offsets([doc.metadata(name) for name in _numbered(SOME)])


S, M, L, R = reading.SNAPSHOT, reading.MANIFEST, reading.LOG, reading.REPO

BOMBS: dict[str, Bomb] = {
    "nodes that are one": Bomb(S, _nodes_that_are_one),
    "nodes with one long path": Bomb(S, _nodes_with_one_long_path),
    "nodes with one long document": Bomb(S, _nodes_with_one_document),
    "nodes with one array of many manifests": Bomb(S, _nodes_with_one_array),
    "manifests that are one, rank 1": Bomb(S, lambda: _manifests_that_are_one(1)),
    "manifests that are one, rank 64": Bomb(S, lambda: _manifests_that_are_one(64)),
    "manifests that are one, rank 0": Bomb(S, lambda: _manifests_that_are_one(0)),
    "boxes side by side along the second axis": Bomb(S, _boxes_side_by_side, refused=False),
    "boxes in pinwheels": Bomb(S, _pinwheels, refused=False),
    "boxes in a staircase": Bomb(S, _staircase, refused=False),
    "boxes in 1000 rings": Bomb(S, lambda: _rings(1000), refused=False),
    "boxes in 5000 rings": Bomb(S, lambda: _rings(5000), refused=False),
    "dimensions that are one": Bomb(S, _dimensions_that_are_one),
    "dimension names that are one": Bomb(S, _names_that_are_one),
    "dimension names with one long text": Bomb(S, _names_with_one_long_text),
    "manifest files that are one": Bomb(S, _manifest_files_that_are_one),
    "metadata items with one long value": Bomb(S, _metadata_with_one_value),
    "a zarr.json of 200 MB": Bomb(
        S, lambda: doc.snapshot(doc.group("/a", document=_incompressible(b"[")))
    ),
    "a message of 200 MB": Bomb(S, lambda: _huge(text(_incompressible(b"")), 4)),
    "a metadata value of 200 MB": Bomb(
        S, lambda: _huge(Offsets([doc.metadata(value=_incompressible(b""))]), 5)
    ),
    "references that are one, rank 1": Bomb(M, lambda: _refs_that_are_one(1)),
    "references that are one, rank 64": Bomb(M, lambda: _refs_that_are_one(64)),
    "arrays with one vector of references": Bomb(M, _arrays_with_one_vector),
    "references with one long location": Bomb(M, lambda: _refs_sharing(location=text(LONG))),
    "references with one long frame": Bomb(M, lambda: _refs_sharing(compressed=Octets(LONG))),
    "references with one long etag": Bomb(
        M, lambda: _refs_sharing(location=text("s3://b/k"), etag=text(LONG))
    ),
    "references with one location of 8 kB": Bomb(
        M, lambda: _refs_sharing(location=text(LONG[:8000])), refused=False
    ),
    "references with overlapping locations": Bomb(M, _overlapping_locations),
    "references of many shapes": Bomb(M, _refs_of_many_shapes, refused=False),
    "arrays of references of many shapes": Bomb(M, _arrays_of_refs_of_many_shapes),
    "updated arrays with one vector": Bomb(L, _updated_arrays_with_one_vector, refused=False),
    "updated chunks that are one, rank 1": Bomb(L, lambda: _updated_chunks_that_are_one(1)),
    "updated chunks that are one, rank 64": Bomb(L, lambda: _updated_chunks_that_are_one(64)),
    "moves that are one": Bomb(L, _moves_that_are_one),
    "moves with one long path": Bomb(L, _moves_with_one_long_path),
    "updates that are one": Bomb(R, _updates_that_are_one),
    "updates with one long text": Bomb(R, _updates_with_one_long_text),
    "deleted tags that are one": Bomb(R, lambda: _deleted_tags_that_are_one(b"t", MANY)),
    "deleted tags that are one long text": Bomb(R, lambda: _deleted_tags_that_are_one(LONG, SOME)),
    "tags that are one": Bomb(R, _tags_that_are_one),
    "snapshots that are one": Bomb(R, _snapshots_that_are_one),
    "snapshots with one list of metadata": Bomb(R, lambda: _snapshots_sharing({4: _many_items()})),
    "snapshots with one list of pruned logs": Bomb(
        R, lambda: _snapshots_sharing({5: Octets(bytes(12 * SOME), 12)})
    ),
    "snapshots with one long message": Bomb(R, lambda: _snapshots_sharing({3: text(LONG)})),
}
