"""The forward writer of flatbuffers."""

from __future__ import annotations

import numpy as np
import pytest

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format.flat import FlatBuffer
from icechunk_stream.format.header import FileType, open_envelope
from icechunk_stream.format.records import OFFSET, Records, Writer, layout, shape

KEY = "place/of/object"
WIDE = shape((2, "B"), (0, "Q"), (5, OFFSET), (1, "12s"))


def test_fields_stand_in_the_order_given_each_aligned_and_are_found_by_slot() -> None:
    assert WIDE.places == {2: 4, 0: 8, 5: 16, 1: 20}
    assert (WIDE.size, WIDE.alignment) == (32, 8)
    assert np.frombuffer(WIDE.vtable, "<u2").tolist() == [16, 32, 8, 20, 4, 0, 0, 16]
    writer = Writer()
    writer.text("an odd start")
    table = writer.table(WIDE, 7, 2**40, 0, b"twelve bytes")
    writer.attach(table, WIDE, 5, writer.text("é"))
    sealed = writer.seal(table, FileType.SNAPSHOT, 2, 3)
    root = FlatBuffer(open_envelope(sealed, FileType.SNAPSHOT, KEY).payload, KEY).root()
    assert root.at % 8 == 0
    assert root.scalar(2, "B") == 7
    assert root.scalar(0, "Q") == 2**40
    assert root.struct(1, 12) == b"twelve bytes"
    assert root.text(5) == "é"
    assert not root.has(3)


def test_tables_of_one_shape_share_a_vtable() -> None:
    writer = Writer()
    writer.table(WIDE, 7, 2**40, 0, b"twelve bytes")
    size = len(writer.data)
    writer.table(shape(*WIDE.fields), 7, 2**40, 0, b"twelve bytes")
    assert len(writer.data) - size == WIDE.size
    assert writer.tables == 2


@pytest.mark.parametrize("odd", range(8))
def test_items_of_a_vector_are_aligned_from_the_start_of_the_buffer(odd: int) -> None:
    writer = Writer()
    writer.data += bytes(odd)
    at = writer.vector(np.array([1, 2], np.uint64), alignment=8)
    assert (at + 4) % 8 == 0
    assert writer.data[at:].hex() == "020000000100000000000000" + "0200000000000000"


@pytest.mark.parametrize("value", [-1, 256])
def test_numbers_that_a_field_cannot_hold_are_refused(value: int) -> None:
    with pytest.raises(InvalidInputError, match="too large or negative"):
        Writer().table(shape((0, "B")), value)


def test_more_than_offsets_can_span_is_refused_before_memory_is_spent() -> None:
    many = np.broadcast_to(np.zeros(1, np.uint8), 2**31)
    writer = Writer()
    with pytest.raises(InvalidInputError, match="split it"):
        writer.vector(many)
    with pytest.raises(InvalidInputError, match="split it"):
        writer.records([Records(layout(WIDE), 2**26, lambda block, rows: None)])
    with pytest.raises(InvalidInputError, match="split it"):
        writer.records([Records(layout(WIDE), 1, lambda block, rows: None)], heap_size=2**31)
    assert len(writer.data) < 100
