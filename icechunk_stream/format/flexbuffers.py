"""A FlexBuffers decoder that trusts nothing: every offset and length is checked before use."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from icechunk_stream.errors import FormatError
from icechunk_stream.format.flexbuffers_encode import encode_flexbuffer
from icechunk_stream.format.flexbuffers_types import TYPE_SHIFT, WIDTH_BITS, WIDTHS, FlexType
from icechunk_stream.format.json_value import MAX_DEPTH, MAX_ITEMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icechunk_stream.format.json_value import Json

__all__ = ["decode_flexbuffer", "encode_flexbuffer"]

Bytes: TypeAlias = "bytes | bytearray | memoryview"

_SIGNED = {1: "b", 2: "h", 4: "i", 8: "q"}
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
_FLOATING = {4: "f", 8: "d"}
_FORMATS = {
    FlexType.INT: _SIGNED,
    FlexType.UINT: _UNSIGNED,
    FlexType.FLOAT: _FLOATING,
    FlexType.BOOL: _UNSIGNED,
}
_INDIRECT = {
    FlexType.INDIRECT_INT: FlexType.INT,
    FlexType.INDIRECT_UINT: FlexType.UINT,
    FlexType.INDIRECT_FLOAT: FlexType.FLOAT,
}
_NUMBER_VECTORS = {
    FlexType.VECTOR_INT: FlexType.INT,
    FlexType.VECTOR_UINT: FlexType.UINT,
    FlexType.VECTOR_FLOAT: FlexType.FLOAT,
    FlexType.VECTOR_BOOL: FlexType.BOOL,
}
_TEXT_VECTORS = {
    FlexType.VECTOR_KEY: FlexType.KEY,
    FlexType.VECTOR_STRING: FlexType.STRING,
}
_FIXED_VECTORS = {
    FlexType(FlexType.VECTOR_INT2 + 3 * (size - 2) + kind - FlexType.INT): (kind, size)
    for size in (2, 3, 4)
    for kind in (FlexType.INT, FlexType.UINT, FlexType.FLOAT)
}
_KINDS = tuple(FlexType(code) if code in set(FlexType) else None for code in range(64))
_ROOT_TAIL = 2


class _Ref(NamedTuple):
    """A value, or the offset to it, at ``at``; ``width`` is what its place is wide."""

    at: int
    width: int
    packed: int
    depth: int


class _Pending(NamedTuple):
    """A value still to be decoded, and the place in its container that it goes to."""

    container: list[Json] | dict[str, Json]
    place: int | str
    ref: _Ref


def decode_flexbuffer(data: Bytes, *, where: str, max_depth: int = MAX_DEPTH) -> Json:
    """The JSON-like value in the bytes; raises ``FormatError`` that names ``where``."""
    reader = _Reader(bytes(data), where, max_depth)
    root: list[Json] = [None]
    reader.pending.append(_Pending(root, 0, reader.root()))
    while reader.pending:
        container, place, ref = reader.pending.pop()
        # The place is an index of a list or a key of a dict, as the container is.
        cast("dict[int | str, Json]", container)[place] = reader.value(ref)
    return root[0]


@dataclass(slots=True)
class _Budget:
    """What may still be visited: a document without shared parts never exceeds its own size."""

    items: int
    text: int


class _Reader:
    def __init__(self, data: bytes, where: str, max_depth: int) -> None:
        self._data = data
        self._where = where
        self._max_depth = max_depth
        self._budget = _Budget(min(len(data), MAX_ITEMS), len(data))
        self._texts: dict[tuple[int, int], str] = {}
        self.pending: list[_Pending] = []

    def root(self) -> _Ref:
        if len(self._data) <= _ROOT_TAIL:
            raise self._error(f"{len(self._data)} bytes are too few")
        packed, width = self._data[-_ROOT_TAIL:]
        if width not in WIDTHS:
            raise self._error(f"the root is {width} bytes wide")
        return _Ref(len(self._data) - _ROOT_TAIL - width, width, packed, 0)

    def value(self, ref: _Ref) -> Json:
        """The value of a reference; children of containers are left in ``pending``."""
        kind = self._kind(ref.packed)
        if kind is FlexType.NULL:
            return None
        if kind in _FORMATS:
            return self._number(ref.at, ref.width, kind)
        if kind in _INDIRECT:
            return self._number(self._target(ref), _own_width(ref), _INDIRECT[kind])
        if kind is FlexType.KEY:
            return self._key(self._target(ref))
        if kind is FlexType.STRING:
            return self._string(self._target(ref), _own_width(ref))
        return self._container(ref, kind)

    def _container(self, ref: _Ref, kind: FlexType) -> Json:
        if kind is FlexType.BLOB:
            raise self._error("it holds a blob, which is not JSON")
        if ref.depth >= self._max_depth:
            raise self._error(f"it is nested deeper than {self._max_depth} levels")
        at, width = self._target(ref), _own_width(ref)
        if kind is FlexType.MAP:
            return self._map(at, width, ref.depth)
        if kind is FlexType.VECTOR:
            return self._vector(at, width, ref.depth)
        if kind in _TEXT_VECTORS:
            return self._text_vector(at, width, _TEXT_VECTORS[kind], ref.depth)
        return self._number_vector(at, width, kind)

    def _map(self, at: int, width: int, depth: int) -> Json:
        size = self._size(at, width)
        keys = self._keys(at, width, size)
        packed = self._packed(at, width, size)
        values: dict[str, Json] = dict.fromkeys(keys)
        if len(values) < size:
            raise self._error("a map has a key twice")
        for index, key in enumerate(keys):
            ref = _Ref(at + index * width, width, packed[index], depth + 1)
            self.pending.append(_Pending(values, key, ref))
        return values

    def _keys(self, at: int, width: int, size: int) -> list[str]:
        offset_at = at - 3 * width
        keys_at = offset_at - self._uint(offset_at, width)
        keys_width = self._uint(at - 2 * width, width)
        if keys_width not in WIDTHS:
            raise self._error(f"the keys of a map are {keys_width} bytes wide")
        if self._uint(keys_at - keys_width, keys_width) != size:
            raise self._error("a map has more or fewer keys than values")
        places = range(keys_at, keys_at + size * keys_width, keys_width)
        return [self._key(place - self._uint(place, keys_width)) for place in places]

    def _vector(self, at: int, width: int, depth: int) -> Json:
        size = self._size(at, width)
        packed = self._packed(at, width, size)
        values: list[Json] = [None] * size
        for index in range(size):
            ref = _Ref(at + index * width, width, packed[index], depth + 1)
            self.pending.append(_Pending(values, index, ref))
        return values

    def _text_vector(self, at: int, width: int, kind: FlexType, depth: int) -> Json:
        size = self._size(at, width)
        values: list[Json] = [None] * size
        for index in range(size):
            ref = _Ref(at + index * width, width, kind << TYPE_SHIFT, depth + 1)
            self.pending.append(_Pending(values, index, ref))
        return values

    def _number_vector(self, at: int, width: int, kind: FlexType) -> Json:
        if kind in _FIXED_VECTORS:
            element, size = _FIXED_VECTORS[kind]
            self._spend(size)
        else:
            element, size = _NUMBER_VECTORS[kind], self._size(at, width)
        return list(self._numbers(at, width, element, size))

    def _number(self, at: int, width: int, kind: FlexType) -> Json:
        return self._numbers(at, width, kind, 1)[0]

    def _numbers(self, at: int, width: int, kind: FlexType, size: int) -> Sequence[Json]:
        code = _FORMATS[kind].get(width)
        if code is None:
            raise self._error(f"a float is {width} bytes wide")
        self._need(at, size * width)
        numbers = struct.unpack_from(f"<{size}{code}", self._data, at)
        if kind is FlexType.BOOL:
            return [bool(number) for number in numbers]
        if kind is FlexType.FLOAT and not all(map(isfinite, numbers)):
            raise self._error("it holds a number that is not finite, which is not JSON")
        return numbers

    def _string(self, at: int, width: int) -> str:
        return self._text(at, self._uint(at - width, width))

    def _key(self, at: int) -> str:
        self._need(at, 1)
        end = self._data.find(b"\0", at)
        if end < 0:
            raise self._error("a key does not end")
        return self._text(at, end - at)

    def _text(self, at: int, size: int) -> str:
        """Each stretch is decoded and paid for once: writers share keys, never parts of them."""
        text = self._texts.get((at, size))
        if text is None:
            self._need(at, size)
            self._budget.text -= size
            if self._budget.text < 0:
                raise self._error("its strings overlap")
            text = self._decoded(at, size)
            self._texts[at, size] = text
        return text

    def _decoded(self, at: int, size: int) -> str:
        try:
            return self._data[at : at + size].decode()
        except UnicodeDecodeError:
            raise self._error("a string is not UTF-8") from None

    def _size(self, at: int, width: int) -> int:
        size = self._uint(at - width, width)
        self._need(at, size * width)
        self._spend(size)
        return size

    def _packed(self, at: int, width: int, size: int) -> bytes:
        start = at + size * width
        self._need(start, size)
        return self._data[start : start + size]

    def _spend(self, items: int) -> None:
        self._budget.items -= items
        if self._budget.items < 0:
            raise self._error("it holds more values than it has room for")

    def _kind(self, packed: int) -> FlexType:
        kind = _KINDS[packed >> TYPE_SHIFT]
        if kind is None:
            raise self._error(f"the value type {packed >> TYPE_SHIFT} is unknown")
        return kind

    def _target(self, ref: _Ref) -> int:
        return ref.at - self._uint(ref.at, ref.width)

    def _uint(self, at: int, width: int) -> int:
        self._need(at, width)
        return int.from_bytes(self._data[at : at + width], "little")

    def _need(self, at: int, size: int) -> None:
        if at < 0 or at + size > len(self._data):
            raise self._error(f"{size} bytes at {at} are outside of its {len(self._data)}")

    def _error(self, message: str) -> FormatError:
        return FormatError(f"invalid FlexBuffer: {message}", key=self._where)


def _own_width(ref: _Ref) -> int:
    return 1 << (ref.packed & WIDTH_BITS)
