"""Metadata values: MessagePack in objects of spec version 1, FlexBuffers from 2 on."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, TypeAlias, cast

import msgspec

from icechunk_stream.errors import FormatError, InvalidInputError
from icechunk_stream.format.flexbuffers import decode_flexbuffer, encode_flexbuffer
from icechunk_stream.format.json_nesting import check_json_nesting
from icechunk_stream.format.json_value import MAX_DEPTH, MAX_ITEMS, Json, plain_json

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Json",
    "check_json_nesting",
    "decode_messagepack",
    "decode_value",
    "encode_messagepack",
    "encode_value",
]

Bytes: TypeAlias = "bytes | bytearray | memoryview"

MAX_VALUE_SIZE = 16 * 2**20
_FIRST_FLEXBUFFERS_VERSION = 2
# All but the bytes that begin an array or a map, which may become an object of 64 bytes.
_CONTAINERS = (*range(0x80, 0xA0), *range(0xDC, 0xE0))
_NO_CONTAINER = bytes(set(range(256)) - set(_CONTAINERS))


def decode_value(data: Bytes, spec_version: int, where: str) -> Json:
    """A metadata value of an object that was written with the spec version."""
    if spec_version < _FIRST_FLEXBUFFERS_VERSION:
        return decode_messagepack(data, where=where)
    if len(data) > MAX_VALUE_SIZE:
        raise FormatError(f"a value of {len(data)} bytes is too large", key=where)
    return decode_flexbuffer(data, where=where)


def encode_value(value: object, spec_version: int, where: str = "a metadata value") -> bytes:
    """The bytes of a JSON-like value; raises ``InvalidInputError`` if it is not one."""
    plain = plain_json(value, where)
    if spec_version < _FIRST_FLEXBUFFERS_VERSION:
        encoded = msgspec.msgpack.encode(plain)
    else:
        encoded = encode_flexbuffer(plain)
    _check_readable(encoded, spec_version, where)
    return encoded


def encode_messagepack(value: object, where: str = "a metadata value") -> bytes:
    """The compact MessagePack bytes of a JSON-like value."""
    return encode_value(value, _FIRST_FLEXBUFFERS_VERSION - 1, where)


def _check_readable(encoded: bytes, spec_version: int, where: str) -> None:
    """Refuse to write what is too large to be read back; small values always can be."""
    if len(encoded) <= MAX_ITEMS:
        return
    try:
        decode_value(encoded, spec_version, where)
    except FormatError as error:
        raise InvalidInputError(f"{error}; store it as an array instead") from None


def decode_messagepack(data: Bytes, *, where: str, max_depth: int = MAX_DEPTH) -> Json:
    """The JSON-like value in the bytes; raises ``FormatError`` that names ``where``."""
    raw = bytes(data)
    _check_size(raw, where)
    try:
        value: object = msgspec.msgpack.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _invalid(str(error), where) from None
    except (RecursionError, OverflowError):
        raise _invalid("it is nested too deeply", where) from None
    return _checked_json(value, max_depth, where)


def _check_size(raw: bytes, where: str) -> None:
    if len(raw) > MAX_VALUE_SIZE:
        raise _invalid(f"{len(raw)} bytes are more than {MAX_VALUE_SIZE}", where)
    if len(raw) > MAX_ITEMS and len(raw.translate(None, _NO_CONTAINER)) > MAX_ITEMS:
        raise _invalid(f"it may hold more than {MAX_ITEMS} lists and maps", where)


def _checked_json(value: object, max_depth: int, where: str) -> Json:
    """The value itself, if JSON can hold it; walked by levels, so that depth costs no stack."""
    level: list[object] = [value]
    depth = visited = 0
    while level:
        visited += len(level)
        if visited > MAX_ITEMS:
            raise _invalid(f"it holds more than {MAX_ITEMS} values", where)
        if depth >= max_depth and any(isinstance(item, list | dict) for item in level):
            raise _invalid(f"it is nested deeper than {max_depth} levels", where)
        level = [child for item in level for child in _children(item, where)]
        depth += 1
    return cast("Json", value)


def _children(item: object, where: str) -> Iterable[object]:
    match item:
        case None | bool() | int() | str():
            return ()
        case float() if isfinite(item):
            return ()
        case list():
            return item
        case dict():
            if not all(isinstance(key, str) for key in item):
                raise _invalid("a key of a map is not a string", where)
            return item.values()
        case _:
            raise _invalid(f"it holds {item!r:.40}, which is not JSON", where)


def _invalid(reason: str, where: str) -> FormatError:
    return FormatError(f"invalid MessagePack: {reason}", key=where)
