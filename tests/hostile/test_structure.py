"""Flatbuffers whose offsets, vtables, lengths and texts are wrong, in every table of every kind."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.hostile import documents, raw
from tests.hostile.raw import Inline, Octets, Offsets, Table, tables_of
from tests.hostile.reading import KINDS, SAMPLES, Kind, Sample
from tests.hostile.refusals import reads_or_refuses, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hostile.raw import Flat, Part

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
each_sample = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)

# Vectors of spec v1 that stand beside those of spec v2, and are not looked at then.
UNREAD = {("ArrayNodeData", 0), ("Snapshot", 6)}


def refuses(sample: Sample, payload: bytes | bytearray) -> None:
    refusal(lambda: sample.kind.read_payload(payload, sample.spec_version))


def may_be_read(sample: Sample, payload: bytes | bytearray) -> None:
    reads_or_refuses(lambda: sample.kind.read_payload(payload, sample.spec_version))


def fields_of(sample: Sample) -> Iterator[tuple[Flat, Table, int]]:
    """Every field that is read, each time in a document of its own."""
    count = len(tables_of(sample.document()))
    for number in range(count):
        for slot in sorted(tables_of(sample.document())[number].fields):
            document = sample.document()
            table = tables_of(document)[number]
            if sample.spec_version == 1 or (table.kind, slot) not in UNREAD:
                yield raw.lay_out(document), table, slot


def parts_of(sample: Sample) -> Iterator[tuple[Flat, Part]]:
    """Every vector and string that is read, each time in a document of its own."""
    for flat, table, slot in fields_of(sample):
        part = table.fields[slot]
        if isinstance(part, Inline | Table):
            continue
        yield flat, part
        if isinstance(part, Offsets):
            for item in part.items:
                if isinstance(item, Octets):
                    yield raw.Flat(bytearray(flat.data), flat.positions, {}, {}), item


@each_sample
def test_the_samples_are_read(sample: Sample) -> None:
    sample.kind.read_document(sample.document(), sample.spec_version)


@each_kind
@pytest.mark.parametrize("size", range(9))
def test_payloads_too_small_for_a_table_are_refused(kind: Kind, size: int) -> None:
    refuses(Sample(kind, 2, documents.every_log), bytes(size))


@each_sample
def test_root_offsets_that_lead_nowhere_are_refused(sample: Sample) -> None:
    flat = raw.lay_out(sample.document())
    size = len(flat.data)
    root = _root(flat)
    wrong = [0, 1, 2, 3, 4, root + 1, root + 2, size - 4, size - 1, size, size + 4]
    for offset in [*wrong, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1]:
        refuses(sample, raw.Flat(bytearray(flat.data), {}, {}, {}).put("I", 0, offset).data)


def _root(flat: Flat) -> int:
    return int(struct.unpack_from("<I", flat.data)[0])


@each_sample
def test_a_buffer_that_begins_with_its_size_is_refused(sample: Sample) -> None:
    payload = raw.payload(sample.document())
    refuses(sample, struct.pack("<I", len(payload)) + payload)


@each_sample
def test_cut_payloads_are_harmless_or_refused(sample: Sample) -> None:
    payload = raw.payload(sample.document())
    for size in range(len(payload)):
        may_be_read(sample, payload[:size])


@each_sample
@pytest.mark.parametrize("offset", ["before", "after", "odd", "itself", "lowest", "highest"])
def test_vtables_that_are_elsewhere_are_refused(sample: Sample, offset: str) -> None:
    for number in range(len(tables_of(sample.document()))):
        document = sample.document()
        flat, table = raw.lay_out(document), tables_of(document)[number]
        at, size = flat.position(table), len(flat.data)
        wrong = {
            "before": at + 4,
            "after": at - size,
            "odd": at - flat.vtable(table) + 1,
            "itself": 0,
            "lowest": -(2**31),
            "highest": 2**31 - 1,
        }
        refuses(sample, flat.put("i", at, wrong[offset]).data)


@each_sample
@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 7, 65533, 65534, 65535])
def test_false_sizes_of_vtables_are_refused(sample: Sample, size: int) -> None:
    for flat, vtable in _vtables(sample):
        refuses(sample, flat.put("H", vtable, size).data)


@each_sample
@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_tables_smaller_than_their_offset_are_refused(sample: Sample, size: int) -> None:
    for flat, vtable in _vtables(sample):
        refuses(sample, flat.put("H", vtable + 2, size).data)


@each_sample
def test_tables_that_reach_past_the_end_are_refused(sample: Sample) -> None:
    for flat, vtable in _vtables(sample):
        refuses(sample, flat.put("H", vtable + 2, 65535).data)


def _vtables(sample: Sample) -> Iterator[tuple[Flat, int]]:
    for number in range(len(tables_of(sample.document()))):
        document = sample.document()
        flat = raw.lay_out(document)
        yield flat, flat.vtable(tables_of(document)[number])


@each_sample
@pytest.mark.parametrize("place", ["in the vtable's offset", "after the table", "65535"])
def test_fields_outside_of_their_table_are_refused(sample: Sample, place: str) -> None:
    for flat, table, slot in fields_of(sample):
        vtable = flat.vtable(table)
        size = struct.unpack_from("<H", flat.data, vtable + 2)[0]
        offsets = {"in the vtable's offset": 2, "after the table": size, "65535": 65535}
        refuses(sample, flat.put("H", vtable + 4 + 2 * slot, offsets[place]).data)


@each_sample
def test_fields_cut_by_the_end_of_their_table_are_refused(sample: Sample) -> None:
    for flat, table, slot in fields_of(sample):
        vtable = flat.vtable(table)
        size = struct.unpack_from("<H", flat.data, vtable + 2)[0]
        part = table.fields[slot]
        if not isinstance(part, Inline) or len(part.data) > 1:
            refuses(sample, flat.put("H", vtable + 4 + 2 * slot, size - 1).data)


@each_sample
def test_misaligned_numbers_and_offsets_are_refused(sample: Sample) -> None:
    for flat, table, slot in fields_of(sample):
        part = table.fields[slot]
        alignment = part.alignment if isinstance(part, Inline) else 4
        place = flat.vtable(table) + 4 + 2 * slot
        offset = struct.unpack_from("<H", flat.data, place)[0]
        if alignment > 1:
            refuses(sample, flat.put("H", place, offset - alignment // 2).data)


@each_sample
@pytest.mark.parametrize("offset", ["itself", "odd", "end", "past the end", "2^31", "2^32 - 4"])
def test_offsets_that_lead_nowhere_are_refused(sample: Sample, offset: str) -> None:
    for flat, place in _offsets(sample):
        known = struct.unpack_from("<I", flat.data, place)[0]
        wrong = {
            "itself": 0,
            "odd": known + 2,
            "end": len(flat.data) - place,
            "past the end": len(flat.data) - place + 400,
            "2^31": 2**31,
            "2^32 - 4": 2**32 - 4,
        }
        refuses(sample, flat.put("I", place, wrong[offset]).data)


def _offsets(sample: Sample) -> Iterator[tuple[Flat, int]]:
    """The place of every offset in a field or vector."""
    for flat, table, slot in fields_of(sample):
        part = table.fields[slot]
        if isinstance(part, Inline):
            continue
        yield flat, flat.place(table, slot)
        if isinstance(part, Offsets):
            for number in range(len(part.items)):
                fresh = raw.Flat(bytearray(flat.data), {}, {}, {})
                known = flat.positions[id(part)] + 4 + 4 * number
                yield fresh, known


@each_sample
@pytest.mark.parametrize("count", [2**32 - 1, 2**31, 2**30, 2**29 + 1, "whole buffer"])
def test_vectors_longer_than_the_buffer_are_refused(sample: Sample, count: int | str) -> None:
    for flat, part in parts_of(sample):
        length = len(flat.data) if isinstance(count, str) else count
        refuses(sample, flat.put("I", flat.position(part), length).data)


@each_sample
def test_vectors_of_other_lengths_are_harmless_or_refused(sample: Sample) -> None:
    for flat, part in parts_of(sample):
        at = flat.position(part)
        known = struct.unpack_from("<I", flat.data, at)[0]
        for count in {0, known - 1, known + 1, known + 2, 2 * known} - {known, -1}:
            fresh = raw.Flat(bytearray(flat.data), {}, {}, {})
            may_be_read(sample, fresh.put("I", at, count).data)


@each_sample
@pytest.mark.parametrize(
    "raw_text",
    [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80"],
    ids=["ff", "cut", "surrogate", "overlong nul", "too high"],
)
def test_texts_that_are_not_utf8_are_refused(sample: Sample, raw_text: bytes) -> None:
    for document, part in _texts(sample):
        part.data, part.count = b"/" + raw_text + b"\0", 1 + len(raw_text)
        refuses(sample, raw.payload(document))


def _texts(sample: Sample) -> Iterator[tuple[Table, Octets]]:
    total = len(list(_texts_in(sample.document())))
    for number in range(total):
        document = sample.document()
        yield document, list(_texts_in(document))[number]


def _texts_in(document: Table) -> Iterator[Octets]:
    for table in tables_of(document):
        for part in table.fields.values():
            items = part.items if isinstance(part, Offsets) else [part]
            yield from (item for item in items if isinstance(item, Octets) and _is_text(item))


def _is_text(part: Octets) -> bool:
    return part.count is not None and part.data.endswith(b"\0")


REQUIRED = [
    pytest.param(sample, kind, slot, id=f"{name}: {kind}.{slot}")
    for name, sample in SAMPLES.items()
    for kind in dict.fromkeys(table.kind for table in tables_of(sample.document()))
    for slot in sorted(documents.REQUIRED.get(kind, ()))
]


@pytest.mark.parametrize(("sample", "kind", "slot"), REQUIRED)
def test_a_missing_required_field_is_refused(sample: Sample, kind: str, slot: int) -> None:
    tables = [table for table in tables_of(sample.document()) if table.kind == kind]
    for number in range(len(tables)):
        document = sample.document()
        table = [each for each in tables_of(document) if each.kind == kind][number]
        del table.fields[slot]
        refuses(sample, raw.payload(document))


def test_every_required_field_of_the_format_is_in_a_sample() -> None:
    tried = {table.kind for sample in SAMPLES.values() for table in tables_of(sample.document())}
    assert documents.REQUIRED.keys() <= tried
