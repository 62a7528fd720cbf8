"""Commits whose times, parents, refs or metadata cannot be."""

from __future__ import annotations

from typing import cast

import pytest

from icechunk_stream.format.repo_info import decode_repo_info
from tests.hostile import documents as doc
from tests.hostile import raw
from tests.hostile.raw import Octets, Offsets, Table, text, u8, words
from tests.hostile.reading import KEY, LOG, MANIFEST, REPO, SNAPSHOT, seal
from tests.hostile.refusals import reason

LAST_TIME = 253_370_764_800_000_000


@pytest.mark.parametrize("at", [LAST_TIME + 1, 2**63, 2**64 - 1])
def test_times_that_no_calendar_has_are_refused(at: int) -> None:
    reason(SNAPSHOT, doc.snapshot(flushed_at=at))
    reason(REPO, doc.repo(doc.info(1, -1, at), slot_1=doc.refs()))
    reason(REPO, doc.repo(slot_5=doc.status(at)))
    tag = Table("TagCreated", {0: text("t")})
    reason(REPO, doc.repo(slot_7=Offsets([doc.update(5, tag, at)])))
    changed = Table("RepoStatusChanged", {0: doc.status(at)})
    reason(REPO, doc.repo(slot_7=Offsets([doc.update(16, changed)])))


@pytest.mark.parametrize("at", [0, 1, LAST_TIME])
def test_times_of_the_calendar_are_read(at: int) -> None:
    SNAPSHOT.read_document(doc.snapshot(flushed_at=at))


def test_a_snapshot_that_is_its_own_parent_is_refused() -> None:
    assert "parent" in reason(SNAPSHOT, doc.snapshot_v1(parent=1), 1)
    reason(REPO, doc.repo(doc.info(1, 0), slot_1=doc.refs()))


def test_an_ancestry_that_is_a_loop_is_refused() -> None:
    assert "loop" in reason(REPO, doc.repo(doc.info(1, 1), doc.info(2, 0)))
    loop = [doc.info(number + 1, (number + 1) % 7) for number in range(7)]
    assert "loop" in reason(REPO, doc.repo(*loop))


@pytest.mark.parametrize("parent", [2, 3, 2**31 - 1, -2, -(2**31)])
def test_parents_outside_of_the_list_are_refused(parent: int) -> None:
    assert "parent" in reason(REPO, doc.repo(doc.info(1, parent), doc.info(2, -1)))


@pytest.mark.parametrize("slot", ["slot_1", "slot_2"])
@pytest.mark.parametrize("row", [2, 3, 2**31, 2**32 - 1])
def test_refs_outside_of_the_list_are_refused(slot: str, row: int) -> None:
    reason(REPO, doc.repo(**{slot: doc.refs(main=row)}))


@pytest.mark.parametrize("version", [0, 1, 3, 255])
def test_repo_objects_of_other_spec_versions_are_refused(version: int) -> None:
    reason(REPO, doc.repo(slot_0=u8(version)))


def test_a_repo_object_in_an_envelope_of_spec_v1_is_refused() -> None:
    reason(REPO, doc.repo(), 1)


def test_an_ancestry_is_read_again_and_again() -> None:
    """What bounds shared parts must not wear out an object that stays open."""
    snapshots = [doc.info(number + 1, number - 1) for number in range(200)]
    repo = doc.repo(*snapshots, slot_1=doc.refs(tag=1), slot_2=doc.refs(main=199))
    info = decode_repo_info(seal(raw.payload(repo), 6), KEY)
    for _ in range(100):
        assert len(list(info.snapshots.ancestry(199))) == 200
        assert len(info.updates()) == 16


@pytest.mark.parametrize("value", [b"", b"\x01", b"\xc1", b"\xff" * 9, b"\x01\x68\x03"])
@pytest.mark.parametrize("spec_version", [1, 2])
def test_damaged_metadata_values_are_refused(value: bytes, spec_version: int) -> None:
    snapshot = doc.snapshot_v1() if spec_version == 1 else doc.snapshot()
    snapshot.fields[5] = Offsets([doc.metadata(value=value)])
    if (value, spec_version) == (b"\x01", 1):
        SNAPSHOT.read_document(snapshot, 1)
    else:
        reason(SNAPSHOT, snapshot, spec_version)


def test_changed_chunks_of_arrays_of_every_rank_are_read_and_put_in_order() -> None:
    updated = [
        doc.updated_chunks(1, [0, 2], [0, 1]),
        doc.updated_chunks(2),
        doc.updated_chunks(3, []),
        doc.updated_chunks(4, [2**32 - 1] * 3),
        doc.updated_chunks(5, [1, 0]),
    ]
    updated[1].fields[1] = Offsets([])
    data = seal(raw.payload(doc.log(updated)), 4)
    found = {
        int.from_bytes(node.raw, "big"): coordinates.tolist()
        for node, coordinates in LOG.decode(data, KEY).updated_chunks.items()
    }
    assert found == {1: [[0, 1], [0, 2]], 2: [], 3: [[]], 4: [[2**32 - 1] * 3], 5: [[1, 0]]}


def test_words_that_are_no_index_are_refused() -> None:
    ref = doc.native([0])
    ref.fields[0] = words(0)
    cast("Octets", ref.fields[0]).count = 5000
    reason(MANIFEST, doc.manifest(doc.array_refs(1, [ref])))
