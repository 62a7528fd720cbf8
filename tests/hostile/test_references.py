"""Chunk references whose payloads, ranges, indices or locations cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from icechunk_stream.format.chunk_refs import NativeChunk
from icechunk_stream.format.ids import NodeId
from icechunk_stream.format.manifest import decode_manifest
from tests.hostile import documents as doc
from tests.hostile import raw
from tests.hostile.raw import Field, Octets, text, u8, u64
from tests.hostile.reading import KEY, LOG, MANIFEST, seal
from tests.hostile.refusals import reason

if TYPE_CHECKING:
    from collections.abc import Callable


PAYLOADS: dict[str, Callable[[], Field]] = {
    "chunk_id": lambda: doc.id12(1),
    "location": lambda: text("s3://bucket/key"),
    "inline": lambda: Octets(b"data"),
}


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("chunk_id", "location"),
        ("chunk_id", "inline"),
        ("location", "inline"),
        ("chunk_id", "location", "inline"),
    ],
    ids=lambda names: " and ".join(names) or "none",
)
def test_references_with_other_than_one_payload_are_refused(names: tuple[str, ...]) -> None:
    fields = {name: PAYLOADS[name]() for name in names}
    refused = doc.ref([1], length=u64(4), **fields)
    assert "payload" in reason(MANIFEST, doc.manifest(doc.array_refs(1, [refused])))
    refs = [doc.native([0]), refused, doc.inline([2])]
    assert "payload" in reason(MANIFEST, doc.manifest(doc.array_refs(1, refs)))


@pytest.mark.parametrize(
    ("offset", "length"), [(2**64 - 1, 1), (1, 2**64 - 1), (2**64 - 1, 2**64 - 1), (2**63, 2**63)]
)
def test_ranges_that_end_past_64_bits_are_refused(offset: int, length: int) -> None:
    for others in ([], [doc.native([0])], [doc.inline([0])]):
        refs = [*others, doc.native([1], offset, length)]
        assert "64 bits" in reason(MANIFEST, doc.manifest(doc.array_refs(1, refs)))


def test_ranges_that_end_at_64_bits_are_read() -> None:
    refs = [doc.native([0], 2**64 - 2, 1), doc.native([1], 0, 2**64 - 1)]
    MANIFEST.read_document(doc.manifest(doc.array_refs(1, refs)))


@pytest.mark.parametrize("kind", ["native", "virtual", "inline"])
def test_chunks_of_length_0_are_refused(kind: str) -> None:
    empty = {
        "native": doc.native([0], 8, 0),
        "virtual": doc.ref([0], location=text("s3://b/k"), offset=u64(3)),
        "inline": doc.inline([0], b""),
    }
    assert "length 0" in reason(MANIFEST, doc.manifest(doc.array_refs(1, [empty[kind]])))


@pytest.mark.parametrize("ranks", [(1, 2), (2, 1), (0, 1), (2, 0)])
def test_indices_of_different_ranks_are_refused(ranks: tuple[int, int]) -> None:
    first, second = ([number] * rank for number, rank in enumerate(ranks))
    refs = [doc.native(first), doc.native(second)]
    assert "rank" in reason(MANIFEST, doc.manifest(doc.array_refs(1, refs)))
    reason(LOG, doc.log([doc.updated_chunks(1, first, second)]))
    reason(LOG, doc.log([doc.updated_chunks(1, [0]), doc.updated_chunks(2, first, second)]))


@pytest.mark.parametrize("rank", [1, 2, 3, 5, 64])
def test_references_at_the_far_corner_are_found(rank: int) -> None:
    corner = [2**32 - 1] * rank
    before = [2**32 - 1] * (rank - 1) + [2**32 - 2]
    zeros_last = [2**32 - 1] * (rank - 1) + [0]
    indices = sorted({tuple(zeros_last), tuple(before), tuple(corner)})
    refs = [doc.native(index, number) for number, index in enumerate(indices)]
    data = seal(raw.payload(doc.manifest(doc.array_refs(1, refs))), 2)
    columns = decode_manifest(data, KEY).arrays[NodeId((1).to_bytes(8, "big"))]
    for number, index in enumerate(indices):
        row = columns.find(index)
        assert row == number
        assert cast("NativeChunk", columns.payload(row)).offset == number
    assert columns.find([*indices[0][:-1], 1]) is None
    assert columns.find(corner[1:]) is None
    assert columns.find([2**32] * rank) is None
    assert columns.indices().tolist() == [list(index) for index in indices]


COMPRESSED: dict[str, dict[str, Field]] = {
    "no dictionary": {"algorithm": u8(1)},
    "another algorithm": {"algorithm": u8(0), "dictionary": Octets(b"dictionary")},
    "a damaged dictionary": {
        "algorithm": u8(1),
        "dictionary": Octets(b"\x37\xa4\x30\xec" + bytes(60)),
    },
    "a dictionary of 2 MB": {"algorithm": u8(1), "dictionary": Octets(bytes(2**21))},
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_locations_need_their_dictionary(name: str) -> None:
    frame = Octets(bytes.fromhex("28b52ffd2003190000") + b"abc")
    refs = doc.array_refs(1, [doc.ref([0], compressed=frame, length=u64(1))])
    reason(MANIFEST, doc.manifest(refs, **COMPRESSED[name]))


FRAMES = {
    "empty": b"",
    "no frame": b"s3://bucket/key",
    "cut": bytes.fromhex("28b52ffd2003190000") + b"ab",
    "1025 bytes": bytes.fromhex("28b52ffd6001030b200073"),
    "2^63 bytes": bytes.fromhex("28b52ffde00000000000000080190000") + b"abc",
    "not UTF-8": bytes.fromhex("28b52ffd2003190000") + b"a\xffc",
    "a location of 10 kB": bytes(10_000),
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a plain location"])
def test_damaged_frames_of_locations_are_refused(name: str, beside: bool) -> None:
    refs = [doc.ref([0], compressed=Octets(FRAMES[name]), length=u64(1))]
    if beside:
        refs.append(doc.virtual([1]))
    dictionary = Octets(b"s3://bucket/" * 4)
    manifest = doc.manifest(doc.array_refs(1, refs), algorithm=u8(1), dictionary=dictionary)
    reason(MANIFEST, manifest)


def test_a_location_of_10_kb_is_refused() -> None:
    assert "8192" in reason(
        MANIFEST, doc.manifest(doc.array_refs(1, [doc.virtual([0], "s3://b/" + 10_000 * "x")]))
    )
