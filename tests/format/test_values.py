"""Metadata values: MessagePack, the choice by spec version, and what may not be written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given

from icechunk_stream.errors import FormatError, InvalidInputError
from icechunk_stream.format.values import (
    check_json_nesting,
    decode_messagepack,
    decode_value,
    encode_messagepack,
    encode_value,
)
from tests.format.fuzz import KEY, refusals
from tests.format.json_strategies import values

DEEP = b"\x91" * 10_000 + b"\x00"


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


@given(value=values)
def test_values_survive_a_round_trip_in_both_versions(value: object) -> None:
    for version in (1, 2):
        assert decode_value(encode_value(value, version), version, KEY) == value


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (True, "c3"),
        (None, "c0"),
        (1, "01"),
        (-3, "fd"),
        (10**12, "cf000000e8d4a51000"),
        (1.5, "cb3ff8000000000000"),
        ({"b": [1], "a": "é"}, "82a161a2c3a9a1629101"),
        ((1, 2), "920102"),
    ],
)
def test_messagepack_is_compact_with_sorted_keys(value: object, encoded: str) -> None:
    assert encode_messagepack(value).hex() == encoded


def test_any_buffer_is_decoded() -> None:
    assert decode_value(memoryview(b"\x01"), 1, KEY) == 1
    assert decode_value(bytearray(b"\x01\x08\x01"), 2, KEY) == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (b"\xc1", "invalid opcode"),
        (b"\x00\x00", "trailing"),
        (b"\xdd\xff\xff\xff\xff", "truncated"),
        (b"\xdc\xff\xff" * 100, "truncated"),
        (b"\xdf\xff\xff\xff\xff", "truncated"),
        (b"\xdb\xff\xff\xff\xff", "truncated"),
        (b"\xa1\xff", "utf-8"),
        (b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", "nan"),
        (b"\xca\x7f\x80\x00\x00", "inf"),
        (b"\xc4\x01a", "b'a'"),
        (b"\x91\xd4\x05a", "Ext"),
        (b"\xd6\xff\x00\x00\x00\x00", "datetime"),
        (b"\x81\x01\x02", "not a string"),
        (b"\x81\x90\x02", "not|unhashable"),
        (DEEP, "nested"),
        (DEEP * 100, "nested"),
        (msgspec.msgpack.encode(nested(129)), "deeper than 128"),
        (b"\xdd\x00\x1e\x84\x80" + b"\xc0" * 2_000_000, "more than 1000000 values"),
        (b"\xdd\x00\x1e\x84\x80" + b"\x80" * 2_000_000, "more than 1000000 lists"),
        (b"\xdb\x02\x00\x00\x00" + b"a" * 2**25, "more than 16777216"),
    ],
)
def test_hostile_messagepack_is_refused_by_name(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=f"(?i){KEY}: invalid MessagePack: .*({reason})") as error:
        decode_messagepack(data, where=KEY)
    assert error.value.key == KEY


def test_damaged_messagepack_is_read_or_refused() -> None:
    value = {"a": [1, -1, 2**40, 1.5, None, True, "text" * 20], "b": {"c": {}, "d": [[]] * 20}}
    documents = [encode_messagepack(value), encode_messagepack(list(range(300)))]
    refused = refusals(lambda data: decode_messagepack(data, where=KEY), documents, 10_000)
    assert 2_000 < refused < 10_000


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "nan"),
        ([float("inf")], "inf"),
        ({"a": {"b": -float("inf")}}, "inf"),
        (b"bytes", "bytes"),
        ({1: 2}, "int 1"),
        ({"a": {None: 2}}, "NoneType None"),
        (2**64, "65 bits"),
        (-(2**63) - 1, "64 bits"),
        ([10**5000], "16610 bits"),
        (datetime(2020, 1, 1, tzinfo=UTC), "datetime"),
        ({"a", "b"}, "set"),
        ("\ud800", "surrogate"),
        ({"\ud800": 1}, "surrogate"),
        (nested(129), "too deeply"),
        (nested(100_000), "too deeply"),
        ("a" * 2**24, "store it as an array"),
    ],
)
def test_what_is_not_json_is_not_written(version: int, value: object, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=f"the property .*{reason}"):
        encode_value(value, version, "the property 'x'")


def test_a_value_too_large_to_be_read_is_not_written() -> None:
    with pytest.raises(InvalidInputError, match="more than 1000000 values; store it as an array"):
        encode_value([0, None] * 600_000, 1)


def test_a_value_that_holds_itself_is_not_written() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidInputError, match="too deeply"):
        encode_value(value, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_the_deepest_value_that_is_written_is_read(version: int) -> None:
    assert decode_value(encode_value(nested(128), version), version, KEY) == nested(128)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{}",
        b"no JSON",
        b"[" * 512 + b"]" * 512,
        b"[" + b"[]," * 100_000 + b"[]]",
        b'{"a":' * 512,
        b'"' + b"[" * 10_000_000 + b'"',
        b'["' + b"\\\\" * 400_001 + b'","' + b"[" * 2000 + b'"]',
        b'"' + b'\\"[' * 400_000,
        b'"' + b"\\" * 2**18 + b'",[' + b"[]," * 1000 + b'"' + b"[" * 2000,
    ],
)
def test_shallow_json_passes(document: bytes) -> None:
    check_json_nesting(document, where=KEY)


@pytest.mark.parametrize(
    "document",
    [
        b"[" * 513,
        b"[" * 513 + b"]" * 513,
        b'{"a":' * 100_000,
        b'"[["' + b"[" * 600,
        b'"\\\\"' + b"[" * 600,
        b'["' + b"\\\\" * 400_001 + b'"' + b"[" * 2000,
        b'"' + b"\\" * 2**18 + b'"' + b"[" * 513,
        b'"' + b"\\" * (2**18 - 1) + b'""' + b"[" * 513,
        b" " * (2**18 - 300) + b"[" * 600,
        b"]" * 1000 + b"[" * 1513,
    ],
)
def test_deep_json_is_refused(document: bytes) -> None:
    with pytest.raises(FormatError, match=f"{KEY}: a JSON document is nested deeper than 512"):
        check_json_nesting(document, where=KEY)


def test_huge_json_is_refused() -> None:
    with pytest.raises(FormatError, match=f"{KEY}: a JSON document of 200000000 bytes"):
        check_json_nesting(b"[" * 200_000_000, where=KEY)
