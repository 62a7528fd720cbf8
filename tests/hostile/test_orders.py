"""Lists that are out of order or hold something twice, and unions of unknown kinds."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.hostile import documents as doc
from tests.hostile.raw import Octets, Offsets, Table, text, u8, u32
from tests.hostile.reading import LOG, MANIFEST, REPO, SNAPSHOT, Kind
from tests.hostile.refusals import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


OUT_OF_ORDER: dict[str, tuple[Kind, Callable[[], Table], Callable[[], Table]]] = {
    "paths": (
        SNAPSHOT,
        lambda: doc.snapshot(doc.group("/a"), doc.group("/b")),
        lambda: doc.snapshot(doc.group("/b"), doc.group("/a")),
    ),
    "paths by bytes": (
        SNAPSHOT,
        lambda: doc.snapshot(doc.group("/a"), doc.group("/a-b"), doc.group("/a/b")),
        lambda: doc.snapshot(doc.group("/a"), doc.group("/a/b"), doc.group("/a-b")),
    ),
    "long paths": (
        SNAPSHOT,
        lambda: doc.snapshot(doc.group("/a" + 40 * "b" + "c"), doc.group("/a" + 40 * "b" + "d")),
        lambda: doc.snapshot(doc.group("/a" + 40 * "b" + "d"), doc.group("/a" + 40 * "b" + "c")),
    ),
    "arrays": (
        MANIFEST,
        lambda: doc.manifest(doc.array_refs(1, []), doc.array_refs(2, [])),
        lambda: doc.manifest(doc.array_refs(2, []), doc.array_refs(1, [])),
    ),
    "arrays with high ids": (
        MANIFEST,
        lambda: doc.manifest(doc.array_refs(1, []), doc.array_refs(2**63, [])),
        lambda: doc.manifest(doc.array_refs(2**63, []), doc.array_refs(1, [])),
    ),
    "indices": (
        MANIFEST,
        lambda: doc.manifest(doc.array_refs(1, [doc.native([0, 1]), doc.native([1, 0])])),
        lambda: doc.manifest(doc.array_refs(1, [doc.native([1, 0]), doc.native([0, 1])])),
    ),
    "indices too large for one number": (
        MANIFEST,
        lambda: doc.manifest(doc.array_refs(1, [_corner(0, 2**31), _corner(1, 0)])),
        lambda: doc.manifest(doc.array_refs(1, [_corner(1, 0), _corner(0, 2**31)])),
    ),
    "indices of several kinds": (
        MANIFEST,
        lambda: doc.manifest(doc.array_refs(1, [doc.native([0]), doc.inline([1])])),
        lambda: doc.manifest(doc.array_refs(1, [doc.native([1]), doc.inline([0])])),
    ),
    "changed arrays": (
        LOG,
        lambda: doc.log([doc.updated_chunks(1, [0]), doc.updated_chunks(2, [0])]),
        lambda: doc.log([doc.updated_chunks(2, [0]), doc.updated_chunks(1, [0])]),
    ),
    **{
        f"node ids in slot {slot}": (
            LOG,
            lambda slot=slot: doc.log(ids={slot: doc.ids8(1, 2**63)}),  # type: ignore[misc]
            lambda slot=slot: doc.log(ids={slot: doc.ids8(2**63, 1)}),  # type: ignore[misc]
        )
        for slot in range(1, 7)
    },
    "tags": (
        REPO,
        lambda: doc.repo(slot_1=doc.refs(a=0, b=0)),
        lambda: doc.repo(slot_1=doc.refs(b=0, a=0)),
    ),
    "branches": (
        REPO,
        lambda: doc.repo(slot_2=doc.refs(main=0, other=0)),
        lambda: doc.repo(slot_2=doc.refs(other=0, main=0)),
    ),
    "deleted tags": (
        REPO,
        lambda: doc.repo(slot_3=Offsets([text("a"), text("\ud7ff"), text("\U0001f9ca")])),
        lambda: doc.repo(slot_3=Offsets([text("a"), text("\U0001f9ca"), text("\ud7ff")])),
    ),
    "snapshots": (
        REPO,
        lambda: doc.repo(doc.info(1, 1), doc.info(2, -1)),
        lambda: doc.repo(doc.info(2, 1), doc.info(1, -1)),
    ),
    "snapshots with high ids": (
        REPO,
        lambda: doc.repo(doc.info(1, 1), doc.info(2**95, -1)),
        lambda: doc.repo(doc.info(2**95, 1), doc.info(1, -1)),
    ),
}


def _corner(*index: int) -> Table:
    return doc.native([2**32 - 1, *index])


@pytest.mark.parametrize("name", OUT_OF_ORDER)
def test_lists_that_are_searched_have_to_be_in_order(name: str) -> None:
    kind, ordered, unordered = OUT_OF_ORDER[name]
    kind.read_document(ordered())
    assert "order" in reason(kind, unordered())


REPEATED: dict[str, tuple[Kind, Callable[[], Table]]] = {
    "paths": (SNAPSHOT, lambda: doc.snapshot(doc.group("/a"), doc.group("/a", node=10))),
    "arrays": (MANIFEST, lambda: doc.manifest(doc.array_refs(1, []), doc.array_refs(1, []))),
    "indices": (
        MANIFEST,
        lambda: doc.manifest(doc.array_refs(1, [doc.native([3]), doc.inline([3])])),
    ),
    "indices of a scalar": (
        MANIFEST,
        lambda: doc.manifest(doc.array_refs(1, [doc.native([]), doc.native([])])),
    ),
    "changed arrays": (
        LOG,
        lambda: doc.log([doc.updated_chunks(1, [0]), doc.updated_chunks(1, [0])]),
    ),
    "changed chunks": (LOG, lambda: doc.log([doc.updated_chunks(1, [0], [0])])),
    "changed chunks of a scalar": (LOG, lambda: doc.log([doc.updated_chunks(1, [], [])])),
    "moved nodes": (LOG, lambda: doc.log((), [doc.move(), doc.move("/c", "/d")])),
    "new groups": (LOG, lambda: doc.log(ids={1: doc.ids8(1, 1)})),
    "tags": (REPO, lambda: doc.repo(slot_1=_two_refs("t"))),
    "branches": (REPO, lambda: doc.repo(slot_2=_two_refs("main"))),
    "deleted tags": (REPO, lambda: doc.repo(slot_3=Offsets([text("t"), text("t")]))),
    "snapshots": (REPO, lambda: doc.repo(doc.info(1, -1), doc.info(1, -1))),
    "metadata": (REPO, lambda: doc.repo(slot_6=Offsets([doc.metadata(), doc.metadata()]))),
    "manifests of a snapshot": (SNAPSHOT, lambda: _with_files([1, 1])),
}


def _two_refs(name: str) -> Offsets:
    return Offsets([Table("Ref", {0: text(name), 1: u32(row)}) for row in (0, 1)])


def _with_files(ids: Sequence[int]) -> Table:
    snapshot = doc.snapshot()
    files = [Table("ManifestFileInfoV2", {0: doc.id12(id)}) for id in ids]
    snapshot.fields[7] = Offsets(files)
    return snapshot


@pytest.mark.parametrize("name", REPEATED)
def test_nothing_is_there_twice(name: str) -> None:
    kind, document = REPEATED[name]
    reason(kind, document())


def test_a_manifest_listed_twice_is_refused_in_spec_v1() -> None:
    snapshot = doc.snapshot_v1()
    file = struct.pack("<12s4xQI4x", bytes(12), 1, 1)
    snapshot.fields[6] = Octets(2 * file, 32, 8)
    assert "twice" in reason(SNAPSHOT, snapshot, 1)


@pytest.mark.parametrize("tag", [0, 3, 4, 127, 255])
def test_nodes_of_unknown_types_are_refused(tag: int) -> None:
    node = doc.group("/a")
    node.fields[3] = u8(tag)
    assert f"type {tag}" in reason(SNAPSHOT, doc.snapshot(node))


@pytest.mark.parametrize("tag", [0, 17, 18, 127, 255])
def test_updates_of_unknown_types_are_refused(tag: int) -> None:
    entry = doc.update(tag, Table("Unknown", {0: text("x")}))
    assert f"type {tag}" in reason(REPO, doc.repo(slot_7=Offsets([entry])))


def test_a_group_that_claims_to_be_an_array_is_refused() -> None:
    node = doc.group("/a")
    node.fields[3] = u8(1)
    reason(SNAPSHOT, doc.snapshot(node))


@pytest.mark.parametrize("tag", [5, 6, 7, 8, 9, 10, 11, 12, 16])
def test_updates_without_their_fields_are_refused(tag: int) -> None:
    reason(REPO, doc.repo(slot_7=Offsets([doc.update(tag, Table("Empty"))])))
