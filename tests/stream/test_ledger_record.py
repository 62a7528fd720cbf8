"""Bytes of ledgers: what is written is read back, and what is no ledger is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import icechunk_stream as ic
from icechunk_stream.errors import FormatError, InvalidInputError
from icechunk_stream.stream.frozen import FrozenMap
from icechunk_stream.stream.ledger import Counts, LedgerEntry, Timings
from icechunk_stream.stream.ledger_record import (
    MAX_OFFSETS,
    LedgerRecord,
    decode_record,
    encode_record,
)
from tests.stream.ledgers import ATTRIBUTES, ENTRY, PATH

# -- what could not be read back is not written ----------------------------------------------------

texts = st.text(st.characters(codec="utf-8"))
counts = st.integers(0, 2**63 - 1)
query_ids = texts.filter(lambda text: bool(text.strip()))
records = st.builds(
    LedgerRecord,
    st.builds(
        LedgerEntry,
        query_ids,
        counts,
        st.none() | texts,
        st.none() | st.lists(texts).map(tuple),
        st.builds(Counts, counts, counts, counts, counts, counts),
        st.builds(
            Timings, counts, st.dictionaries(texts, st.floats(0, 1e9), max_size=3).map(FrozenMap)
        ),
        st.dictionaries(query_ids, counts, max_size=3).map(FrozenMap),
    )
    | st.none(),
    st.none() | counts,
)


@given(records)
def test_every_record_is_read_back_as_it_was_written(record: LedgerRecord) -> None:
    encoded = encode_record(record, PATH)

    assert decode_record(encoded, PATH) == record
    assert json.loads(encoded)["node_type"] == "group"


def test_numpy_counts_are_stored_as_numbers() -> None:
    number: Any = np.int64(5)
    seconds: Any = FrozenMap({"write": np.float64(0.5)})
    entry = replace(ENTRY, counts=Counts(number), timings=Timings(0, seconds))

    found = decode_record(encode_record(LedgerRecord(entry), PATH), PATH).entry

    assert found is not None
    assert (found.counts.received, found.timings.seconds["write"]) == (5, 0.5)


def test_offsets_too_long_for_every_snapshot_are_left_out() -> None:
    longest, longer = ("x" * MAX_OFFSETS,), ("x" * MAX_OFFSETS, "y")
    found = [
        decode_record(encode_record(LedgerRecord(replace(ENTRY, offsets=offsets)), PATH), PATH)
        for offsets in (longest, longer)
    ]

    assert found == [
        LedgerRecord(replace(ENTRY, offsets=longest)),
        LedgerRecord(replace(ENTRY, offsets=None)),
    ]


@pytest.mark.parametrize(
    "entry",
    [
        replace(ENTRY, counts=Counts(received=-1)),
        replace(ENTRY, counts=Counts(received=2**70)),
        replace(ENTRY, timings=Timings(0, FrozenMap({"write": float("nan")}))),
        replace(ENTRY, query_id=" "),
        replace(ENTRY, query_id="\ud800"),
        replace(ENTRY, earlier=FrozenMap({"": 1})),
    ],
)
def test_an_entry_that_could_not_be_read_back_is_refused(entry: LedgerEntry) -> None:
    with pytest.raises(InvalidInputError, match=f"cannot be recorded in the ledger at {PATH}"):
        encode_record(LedgerRecord(entry), PATH)


# -- hostile documents -----------------------------------------------------------------------------


def document(**changes: Any) -> bytes:
    """The document of a ledger, with other attributes, or without those given as None."""
    attributes = {**ATTRIBUTES, **changes}
    kept = {name: value for name, value in attributes.items() if value is not ...}
    return msgspec.json.encode({"zarr_format": 3, "node_type": "group", "attributes": kept})


HOSTILE = {
    "no JSON": b"{",
    "no text": b"\xff",
    "nothing": b"",
    "a list": b"[]",
    "deep": b'{"attributes":' + b"[" * 100_000,
    "no attributes": b'{"zarr_format":3,"node_type":"group"}',
    "attributes of another kind": b'{"attributes":[]}',
    "empty attributes": b'{"attributes":{}}',
    "no version": document(version=...),
    "a version that is a text": document(version="1"),
    "no query": document(query_id=...),
    "an empty query": document(query_id=""),
    "a query that is a number": document(query_id=7),
    "a negative batch": document(batch_id=-1),
    "a huge batch": document(batch_id=2**63),
    "a batch that is a text": document(batch_id="7"),
    "a batch that is a fraction": document(batch_id=7.5),
    "a digest that is a list": document(digest=[]),
    "offsets that are a text": document(offsets="x"),
    "offsets that are numbers": document(offsets=[1]),
    "rows that are a list": document(rows=[]),
    "negative rows": document(rows={"in": -1}),
    "a stage that took a text": document(seconds={"write": "x"}),
    "a stage that took for ever": document(seconds={"write": 1e300}),
    "earlier queries in a list": document(earlier=["q"]),
    "an earlier query without a batch": document(earlier={"q": None}),
    "a wait that is a text": document(waiting_until="tomorrow"),
    "a negative wait": document(waiting_until=-1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_ledger_is_refused_by_name(name: str) -> None:
    with pytest.raises(FormatError, match=f"^{PATH}: ") as caught:
        decode_record(HOSTILE[name], PATH)

    assert caught.value.key == PATH


@pytest.mark.parametrize("version", [0, 2, 2**40])
def test_a_ledger_of_another_version_is_refused_by_its_version(version: int) -> None:
    newer = document(version=version, batch_id={"of": "another shape"})

    with pytest.raises(FormatError, match=f"the ledger has version {version}") as caught:
        decode_record(newer, PATH)
    assert caught.value.kind is ic.ErrorKind.UNSUPPORTED_SPEC_VERSION


def test_attributes_that_others_add_are_passed_over() -> None:
    assert decode_record(document(comment="mine", more={"a": [1]}), PATH) == LedgerRecord(ENTRY)


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_ledger_or_a_format_error(data: bytes) -> None:
    for content in (data, b'{"attributes":' + data + b"}"):
        with pytest.raises(FormatError, match=PATH):
            decode_record(content, PATH)
