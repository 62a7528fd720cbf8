"""Manifests written from columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format.chunk_refs import (
    ETag,
    InlineChunk,
    LastModified,
    NativeChunk,
    RefKind,
    VirtualChunk,
)
from icechunk_stream.format.header import FileType, open_envelope
from icechunk_stream.format.ids import ID12, ChunkId, ManifestId, NodeId
from icechunk_stream.format.manifest import decode_manifest
from icechunk_stream.format.manifest_encode import encode_manifest
from icechunk_stream.format.ref_tables import RefTable
from tests.format.encodable import ENCODINGS, KEY, manifest_ids, node_ids, ref_table, references
from tests.hostile.reading import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icechunk_stream.format.chunk_refs import ChunkPayload, RefColumns

    Refs = Mapping[tuple[int, ...], ChunkPayload]

ID = ManifestId(b"manifest-id.")
NODE = NodeId(b"node-id.")
CHUNK = ChunkId(b"chunk-object")


def plain(columns: RefColumns) -> dict[tuple[int, ...], ChunkPayload]:
    """Decoded references by index, in their order."""
    indices = [tuple(index) for index in columns.indices().tolist()]
    return {index: columns.payload(row) for row, index in enumerate(indices)}


def encoded(table: RefTable) -> bytes:
    return encode_manifest(ID, {NODE: table}, 2)


def decoded(data: bytes) -> RefColumns:
    return decode_manifest(data, KEY).arrays[NODE]


def payload(data: bytes) -> bytes:
    return bytes(open_envelope(data, FileType.MANIFEST, KEY).payload)


def virtual(locations: pa.Array) -> RefTable:
    count = len(locations)
    return RefTable(
        indices=np.arange(count, dtype=np.uint32)[:, None],
        kinds=np.full(count, RefKind.VIRTUAL, np.uint8),
        offsets=np.arange(count, dtype=np.uint64),
        lengths=np.full(count, 7, np.uint64),
        locations=locations,
    )


@given(
    id=manifest_ids,
    arrays=st.dictionaries(node_ids, references(), max_size=3),
    encoding=st.sampled_from(ENCODINGS),
    spec_version=st.sampled_from((1, 2)),
)
def test_references_of_every_kind_survive_a_round_trip(
    id: ManifestId, arrays: dict[NodeId, Refs], encoding: str, spec_version: int
) -> None:
    tables = {node: ref_table(refs, encoding) for node, refs in arrays.items()}
    data = encode_manifest(id, tables, spec_version)
    manifest = decode_manifest(data, KEY)
    assert manifest.id == id
    found = {node: plain(columns) for node, columns in manifest.arrays.items()}
    assert found == arrays
    assert list(found) == sorted(arrays)
    assert all(list(refs) == sorted(refs) for refs in found.values())


@given(refs=references(), encoding=st.sampled_from(ENCODINGS))
def test_decoded_columns_are_encoded_to_the_same_bytes(refs: Refs, encoding: str) -> None:
    data = encoded(ref_table(refs, encoding))
    assert encoded(RefTable.of(decoded(data))) == data


@given(refs=references(), data=st.data())
def test_some_decoded_rows_are_taken_along(refs: Refs, data: st.DataObject) -> None:
    columns = decoded(encoded(ref_table(refs)))
    rows = data.draw(st.lists(st.integers(0, len(refs) - 1), unique=True, min_size=1))
    found = plain(decoded(encoded(RefTable.of(columns, np.array(rows, np.intp)))))
    chosen = [index for row, index in enumerate(sorted(refs)) if row in rows]
    assert found == {index: refs[index] for index in chosen}


@given(refs=references())
def test_an_index_is_found_at_its_row_and_its_absent_neighbours_are_not(refs: Refs) -> None:
    columns, rows = decoded(encoded(ref_table(refs))), sorted(refs)
    asked = {tuple(max(0, at + step) for at in index) for index in refs for step in (-1, 0, 1)}
    found = {index: columns.find(index) for index in asked}
    assert found == {index: rows.index(index) if index in refs else None for index in asked}


def test_compressed_locations_of_the_reference_become_plain() -> None:
    compressed = 0
    for name, data in MANIFEST.corpus().items():
        before = decode_manifest(data, name)
        tables = {node: RefTable.of(columns) for node, columns in before.arrays.items()}
        after = decode_manifest(encode_manifest(before.id, tables, 2), name)
        for node, columns in before.arrays.items():
            assert plain(after.arrays[node]) == plain(columns)
            assert after.arrays[node].compressed is None
            compressed += columns.compressed is not None
    assert compressed


def test_more_references_than_a_block_are_written_in_order() -> None:
    count = 40_000
    order = np.random.default_rng(7).permutation(count)
    indices = np.stack(np.unravel_index(order, (200, 200)), axis=1).astype(np.uint32)
    kinds = (order % 3 + 1).astype(np.uint8)
    texts = [
        f"s3://b/{at % 5}" if kind == RefKind.VIRTUAL else None
        for at, kind in zip(order, kinds, strict=True)
    ]
    octets = [
        b"x" * (at % 90 + 1) if kind == RefKind.INLINE else None
        for at, kind in zip(order, kinds, strict=True)
    ]
    table = RefTable(
        indices=indices,
        kinds=kinds,
        offsets=order.astype(np.uint64),
        lengths=np.ones(count, np.uint64),
        chunk_ids=np.frombuffer(b"".join(int(at).to_bytes(12, "big") for at in order), ID12),
        inline=pa.array(octets),
        locations=pa.array(texts),
    )
    columns = decoded(encoded(table))
    assert columns.indices().tolist() == [[at // 200, at % 200] for at in range(count)]
    for at in (*range(9), *range(16380, 16390), *range(39_990, count)):
        expected: ChunkPayload = (
            NativeChunk(ChunkId(at.to_bytes(12, "big")), at, 1),
            VirtualChunk(f"s3://b/{at % 5}", at, 1),
            InlineChunk(b"x" * (at % 90 + 1)),
        )[at % 3]
        assert columns.payload(at) == expected


@pytest.mark.parametrize("encoding", ["plain", "dictionary", "view"])
def test_equal_locations_are_written_once(encoding: str) -> None:
    repeated: Refs = {(at,): VirtualChunk(f"s3://bucket/{at // 50}", at, 1) for at in range(1000)}
    stored = payload(encoded(ref_table(repeated, encoding)))
    assert [stored.count(b"s3://bucket/%d\0" % file) for file in range(20)] == [1] * 20


def test_values_of_a_dictionary_that_no_row_has_are_left_out() -> None:
    values = pa.array(["s3://used", "s3://unused", "s3://too"])
    locations = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2], pa.int8()), values)
    data = encoded(virtual(locations))
    assert b"unused" not in payload(data)
    found = [
        columns.location
        for columns in plain(decoded(data)).values()
        if isinstance(columns, VirtualChunk)
    ]
    assert found == ["s3://too", "s3://used", "s3://too"]


def test_locations_are_stored_as_terminated_strings_and_declared_plain() -> None:
    stored = payload(encoded(virtual(pa.array(["s3://a", "s3://abc"]))))
    assert stored[4:8] == b"Ichk"
    assert b"\x06\0\0\0s3://a\0\0" in stored
    assert b"\x08\0\0\0s3://abc\0" in stored
    root = int.from_bytes(stored[:4], "little")
    vtable = root - int.from_bytes(stored[root : root + 4], "little", signed=True)
    algorithm = int.from_bytes(stored[vtable + 4 + 2 * 3 : vtable + 6 + 2 * 3], "little")
    assert algorithm
    assert stored[root + algorithm] == 0


def test_an_etag_and_a_time_may_both_stand_on_one_reference() -> None:
    table = replace(
        virtual(pa.array(["s3://a", "s3://b"])),
        etags=pa.array(['"tag"', None]),
        modified=np.array([5, 6], np.uint32),
    )
    columns = decoded(encoded(table))
    assert [columns.checksum(0), columns.checksum(1)] == [ETag('"tag"'), LastModified(6)]
    assert columns.modified is not None
    assert columns.modified.tolist() == [5, 6]


def test_an_array_without_references_is_written() -> None:
    empty = RefTable(
        indices=np.zeros((0, 2), np.uint32),
        kinds=np.zeros(0, np.uint8),
        offsets=np.zeros(0, np.uint64),
        lengths=np.zeros(0, np.uint64),
    )
    assert len(decoded(encoded(empty))) == 0
    assert decode_manifest(encode_manifest(ID, {}, 1), KEY).arrays == {}


NATIVE = {(0, 1): NativeChunk(CHUNK, 0, 5), (0, 2): NativeChunk(CHUNK, 5, 5)}
MIXED = {(0,): InlineChunk(b"abc"), (1,): VirtualChunk("s3://a", 0, 1)}


@pytest.mark.parametrize(
    ("refs", "change", "said"),
    [
        (NATIVE, {"indices": np.zeros((2, 2), np.uint32)}, r"\[0, 0\] is there twice"),
        (NATIVE, {"indices": np.zeros((2, 2), np.int64)}, "2 of uint32 are expected"),
        (NATIVE, {"indices": np.zeros(2, np.uint32)}, "indices of the shape"),
        (NATIVE, {"indices": np.zeros((2, 65), np.uint32)}, "indices of the shape"),
        (NATIVE, {"kinds": np.array([1], np.uint8)}, "kinds: 1 rows"),
        (NATIVE, {"kinds": np.array([1, 4], np.uint8)}, "not native, virtual or inline"),
        (NATIVE, {"chunk_ids": None}, "without chunk ids"),
        (NATIVE, {"offsets": np.full(2, 2**64 - 5, np.uint64)}, "more than 64 bits"),
        (NATIVE, {"etags": pa.array(["a", None])}, "a row of another kind"),
        (NATIVE, {"modified": np.array([1, 0], np.uint32)}, "is not virtual"),
        (MIXED, {"inline": None}, "the inline bytes are missing"),
        (MIXED, {"locations": pa.array([None, None], pa.string())}, "have a null"),
        (MIXED, {"locations": pa.array(["s3://a", "s3://a"])}, "a row of another kind"),
        (MIXED, {"locations": pa.array([None, 5])}, "one of strings is expected"),
        (MIXED, {"inline": pa.array(["a", None])}, "one of bytes is expected"),
        (MIXED, {"locations": pa.array([None])}, "1 rows, 2 are expected"),
        (MIXED, {"locations": pa.array([None, "s" * 8193])}, "more than 8192 bytes"),
        (MIXED, {"etags": pa.array([None, "s" * 8193])}, "more than 8192 bytes"),
    ],
)
def test_columns_that_no_reader_could_use_are_refused(
    refs: Refs, change: dict[str, object], said: str
) -> None:
    table = replace(ref_table(refs), **change)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=said) as refused:
        encoded(table)
    assert str(NODE) in refused.value.message


def test_locations_that_are_not_utf8_are_refused() -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        encoded(virtual(broken))


def test_null_among_the_values_of_a_dictionary_is_refused() -> None:
    indices, values = pa.array([0, 1]), pa.array(["s3://a", None])
    with pytest.raises(InvalidInputError, match="null"):
        encoded(virtual(pa.DictionaryArray.from_arrays(indices, values)))


@pytest.mark.parametrize("number", [-1, 2])
def test_numbers_that_a_dictionary_does_not_have_are_refused(number: int) -> None:
    indices, values = pa.array([0, number]), pa.array(["s3://a", "s3://b"])
    unchecked = pa.DictionaryArray.from_arrays(indices, values, safe=False)
    with pytest.raises(InvalidInputError, match="dictionary does not have"):
        encoded(virtual(unchecked))


@pytest.mark.parametrize("spec_version", [0, 3])
def test_unknown_spec_versions_are_not_written(spec_version: int) -> None:
    with pytest.raises(InvalidInputError, match="spec version"):
        encode_manifest(ID, {}, spec_version)


@pytest.mark.parametrize("level", [-1, 23])
def test_impossible_compression_levels_are_refused(level: int) -> None:
    with pytest.raises(InvalidInputError, match="compression level"):
        encode_manifest(ID, {}, 2, level)
