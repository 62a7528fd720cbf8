"""FlexBuffers of every form, by another writer than ours, and of no valid form at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from flatbuffers import flexbuffers
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import FormatError, InvalidInputError
from icechunk_stream.format.flexbuffers import decode_flexbuffer, encode_flexbuffer
from icechunk_stream.format.flexbuffers_types import TYPE_SHIFT, FlexType
from tests.format.fuzz import KEY, refusals

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.format.json_value import Json

# The Python package of FlatBuffers writes no other keys, and no larger floats.
ascii_keys = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)
simple = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(-1e38, 1e38)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(ascii_keys, inner),
    max_leaves=30,
)


def decode(data: bytes) -> Json:
    return decode_flexbuffer(data, where=KEY)


def built(build: Callable[[Any], object]) -> bytes:
    builder = flexbuffers.Builder()
    build(builder)
    return bytes(builder.Finish())


def vector(add: Callable[[Any], object]) -> bytes:
    def build(builder: Any) -> None:
        with builder.Vector():
            add(builder)
            add(builder)

    return built(build)


@given(value=simple)
def test_documents_of_another_writer_are_read(value: Json) -> None:
    assert decode(bytes(flexbuffers.Dumps(value))) == value


@given(value=simple)
def test_our_documents_are_read_by_another_reader(value: Json) -> None:
    assert flexbuffers.Loads(encode_flexbuffer(value)) == value


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("000001", None),
        ("016801", True),
        ("010801", 1),
        ("fd0401", -3),
        ("0000c03f0e04", 1.5),
        ("9a9999999999b93f0f08", 0.1),
        ("00002801", []),
        ("00000100002401", {}),
        ("010002002c01065101", [1, 2, 300]),
        ("ffffffffffffffff0b08", 2**64 - 1),
        ("0161000162000206041414042801", ["a", "b"]),
        ("020100029001", [True, False]),
        ("0000803f00002040084a01", [1.0, 2.5]),
        ("0301fe03080408062801", [1, -2, 3]),
    ],
)
def test_known_bytes(encoded: str, value: Json) -> None:
    assert decode(bytes.fromhex(encoded)) == value
    assert encode_flexbuffer(value).hex() == encoded


@pytest.mark.parametrize("value", [0, 1, -1, 200, -200, 70_000, 2**40, -(2**40)])
def test_integers_behind_offsets_are_read(value: int) -> None:
    assert decode(built(lambda builder: builder.IndirectInt(value))) == value
    assert decode(vector(lambda builder: builder.IndirectInt(value))) == [value, value]


def test_other_values_behind_offsets_are_read() -> None:
    assert decode(vector(lambda builder: builder.IndirectUInt(2**64 - 1))) == [2**64 - 1] * 2
    assert decode(vector(lambda builder: builder.IndirectFloat(0.1))) == [0.1, 0.1]
    assert decode(vector(lambda builder: builder.Key("a key"))) == ["a key", "a key"]


@pytest.mark.parametrize("values", [[1, -2], [1, 2, 3], [-70_000, 1, 2, 3], list(range(-20, 300))])
def test_typed_vectors_are_read(values: list[int]) -> None:
    size = len(values)
    assert decode(built(lambda builder: builder.TypedVectorFromElements(values))) == values
    if size < 5:
        fixed = built(lambda builder: builder.FixedTypedVectorFromElements(values))
        assert decode(fixed) == values
        floats = [value + 0.5 for value in values]
        fixed = built(lambda builder: builder.FixedTypedVectorFromElements(floats))
        assert decode(fixed) == floats


def test_vectors_of_keys_and_strings_are_read() -> None:
    def keys(builder: Any) -> None:
        with builder.TypedVector():
            builder.Key("one")
            builder.Key("two")

    encoded = bytearray(built(keys))
    assert decode(bytes(encoded)) == ["one", "two"]
    strings = bytearray(b"\x01a\x00\x02bc\x00") + bytes([2, 7, 5, 2, 15 << TYPE_SHIFT, 1])
    assert decode(bytes(strings)) == ["a", "bc"]


def test_what_stands_before_a_document_is_skipped() -> None:
    assert decode(b"\xff" * 64 + encode_flexbuffer({"a": [1, 2]})) == {"a": [1, 2]}


def test_a_key_with_a_nul_is_not_written() -> None:
    with pytest.raises(InvalidInputError, match="'a\\\\x00b' has a NUL"):
        encode_flexbuffer({"a\0b": 1})


def nested(levels: int) -> bytes:
    """Vectors of one vector each."""
    out = bytearray([0])
    for level in range(levels - 1):
        out += bytes([1, 1 if level == 0 else 3, FlexType.VECTOR << TYPE_SHIFT])
    return bytes(out + bytes([2 if levels > 1 else 0, FlexType.VECTOR << TYPE_SHIFT, 1]))


def laughing(levels: int, fan: int) -> bytes:
    """Vectors whose elements are all the same vector, again and again."""
    out, target, width = bytearray(4), 4, 2
    for _ in range(levels):
        out += bytes(-len(out) % 4) + fan.to_bytes(4, "little")
        start = len(out)
        for index in range(fan):
            out += (start + 4 * index - target).to_bytes(4, "little")
        out += bytes([FlexType.VECTOR << TYPE_SHIFT | width]) * fan
        target = start
    out += bytes(-len(out) % 4)
    out += (len(out) - target).to_bytes(4, "little")
    return bytes(out + bytes([FlexType.VECTOR << TYPE_SHIFT | width, 4]))


def overlapping(strings: int) -> bytes:
    """Strings of 30,000 bytes that begin 2 bytes apart."""
    out = bytearray(b"\x30\x75" * 30_000)
    out += strings.to_bytes(4, "little")
    start = len(out)
    for index in range(strings):
        out += (len(out) - 2 * index - 2).to_bytes(4, "little")
    out += bytes([FlexType.STRING << TYPE_SHIFT | 1]) * strings
    out += bytes(-len(out) % 4)
    out += (len(out) - start).to_bytes(4, "little")
    return bytes(out + bytes([FlexType.VECTOR << TYPE_SHIFT | 2, 4]))


@pytest.mark.parametrize("levels", [1, 2, 127, 128])
def test_deep_documents_are_read(levels: int) -> None:
    expected: list[Json] = []
    for _ in range(levels - 1):
        expected = [expected]
    assert decode(nested(levels)) == expected
    assert encode_flexbuffer(expected) == nested(levels)


def test_the_depth_is_the_callers_choice() -> None:
    assert decode_flexbuffer(nested(300), where=KEY, max_depth=300)
    with pytest.raises(FormatError, match="deeper than 299"):
        decode_flexbuffer(nested(300), where=KEY, max_depth=299)


def test_a_shared_part_is_read_as_often_as_the_document_has_room_for() -> None:
    assert decode(laughing(2, 3)) == [[[]] * 3] * 3


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes are too few"),
        (b"\x00\x01", "2 bytes are too few"),
        (b"\x00\x00\x00", "the root is 0 bytes wide"),
        (b"\x00\x00\x03", "the root is 3 bytes wide"),
        (b"\x00\x08\xff", "the root is 255 bytes wide"),
        (b"\x00\x08\x08", "outside"),
        (b"\x00\xff\x01", "type 63 is unknown"),
        (b"\x00" + bytes([27 << 2]) + b"\x01", "type 27 is unknown"),
        (b"\x05" + bytes([FlexType.STRING << 2]) + b"\x01", "outside"),
        (b"\x00\x00" + bytes([FlexType.FLOAT << 2 | 1]) + b"\x02", "a float is 2 bytes wide"),
        (b"\x00\x00\xc0\x7f" + bytes([FlexType.FLOAT << 2 | 2]) + b"\x04", "not finite"),
        (b"\x00\x00\x80\xff" + bytes([FlexType.FLOAT << 2 | 2]) + b"\x04", "not finite"),
        (b"\x03abc" + b"\x03" + bytes([FlexType.BLOB << 2]) + b"\x01", "blob"),
        (b"\xffab\x00\x03" + bytes([FlexType.STRING << 2]) + b"\x01", "255 bytes at 1 are outside"),
        (b"\x02\xff\xfe\x00\x03" + bytes([FlexType.STRING << 2]) + b"\x01", "not UTF-8"),
        (b"abc\x03" + bytes([FlexType.KEY << 2]) + b"\x05", "5 bytes wide"),
        (b"abc\x03" + bytes([FlexType.KEY << 2]) + b"\x01", "a key does not end"),
        (b"\xff\xff\xff\xff\x00" + bytes([FlexType.VECTOR << 2 | 2]) + b"\x01", "outside"),
        (b"\xff" * 8 + b"\x00" + bytes([FlexType.VECTOR_INT << 2 | 3]) + b"\x01", "outside"),
        (b"\x01\x00\x28\x02\x28\x01", "more values than it has room for"),
        (bytes.fromhex("00020100002401"), "outside|keys"),
        (bytes.fromhex("00000300002401"), "the keys of a map are 3 bytes wide"),
        (bytes.fromhex("01000100002401"), "more or fewer keys"),
        (encode_flexbuffer({"a_": 1, "a": 2}).replace(b"a_", b"a\0"), "a map has a key twice"),
        (nested(129), "deeper than 128"),
        (nested(10_000), "deeper than 128"),
        (laughing(20, 100), "more values than it has room for"),
        (laughing(4, 10_000), "more values than it has room for"),
        (overlapping(10_000), "its strings overlap"),
        (encode_flexbuffer([0, None] * 600_000), "more values than it has room for"),
    ],
)
def test_hostile_bytes_are_refused_by_name(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=f"{KEY}: invalid FlexBuffer: .*({reason})") as error:
        decode(data)
    assert error.value.key == KEY


def test_every_prefix_is_read_or_refused() -> None:
    encoded = encode_flexbuffer({"a": [1, 2.5, None, "text"], "b": {"c": list(range(300))}})
    for size in range(len(encoded)):
        try:
            decode(encoded[:size])
        except FormatError as error:
            assert error.key == KEY  # noqa: PT017 - many prefixes are valid documents


def test_damaged_documents_are_read_or_refused() -> None:
    documents = [
        encode_flexbuffer({"a": [1, -1, 2**40, 1.5, None, True], "b": {"c": "x", "d": [[]] * 9}}),
        encode_flexbuffer([list(range(300)), [True] * 5, [1.5, 2.5], [[1, 2], ["a", "é"]]]),
        vector(lambda builder: builder.IndirectInt(70_000)),
        vector(lambda builder: builder.Key("key")),
        nested(100),
        laughing(3, 4),
    ]
    refused = refusals(decode, documents, 15_000)
    assert 3_000 < refused < 15_000
