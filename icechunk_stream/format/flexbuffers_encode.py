"""A FlexBuffers encoder that writes what the reference library's writer would, byte for byte."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format.flexbuffers_types import TYPE_SHIFT, WIDTHS, FlexType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from icechunk_stream.format.json_value import Json

_INLINE = {FlexType.NULL, FlexType.INT, FlexType.UINT, FlexType.FLOAT, FlexType.BOOL}
_TYPED = {
    FlexType.INT: FlexType.VECTOR_INT,
    FlexType.UINT: FlexType.VECTOR_UINT,
    FlexType.FLOAT: FlexType.VECTOR_FLOAT,
    FlexType.BOOL: FlexType.VECTOR_BOOL,
}
_FIXED = {
    (kind, size): FlexType(FlexType.VECTOR_INT2 + 3 * (size - 2) + kind - FlexType.INT)
    for size in (2, 3, 4)
    for kind in (FlexType.INT, FlexType.UINT, FlexType.FLOAT)
}


@dataclass(frozen=True, slots=True)
class _Stored:
    """A value that waits for its container: inline bytes' worth, or where it was written.

    ``width`` is what an inline value needs, or what the stored one is made of.
    """

    kind: FlexType
    width: int
    number: int | float = 0
    address: int = 0


class Signed(int):
    """An integer of a signed setting: its type says so even where it is not negative."""

    __slots__ = ()


def encode_flexbuffer(value: Json) -> bytes:
    """The bytes of a plain JSON value, whose dicts are written in their own order."""
    writer = _Writer()
    try:
        root = writer.store(value)
    except RecursionError:
        raise InvalidInputError("the value is nested too deeply; flatten it") from None
    return writer.finish(root)


class _Writer:
    def __init__(self) -> None:
        self._out = bytearray()
        self._keys: dict[str, _Stored] = {}

    def store(self, value: Json) -> _Stored:
        match value:
            case str():
                return self._string(value)
            case list():
                return self._vector([self.store(item) for item in value])
            case dict():
                return self._map(value)
            case _:
                return _inline(value)

    def finish(self, root: _Stored) -> bytes:
        width = self._width_in_vector(root, 0)
        self._align(width)
        self._put(root, width)
        self._out += bytes((_packed(root, width), width))
        return bytes(self._out)

    def _string(self, text: str) -> _Stored:
        data = text.encode()
        width = _uint_width(len(data))
        self._align(width)
        self._out += len(data).to_bytes(width, "little")
        address = len(self._out)
        self._out += data + b"\0"
        return _Stored(FlexType.STRING, width, address=address)

    def _key(self, key: str) -> _Stored:
        """Keys that are equal are written once."""
        if "\0" in key:
            raise InvalidInputError(f"the key {key!r} has a NUL, which this format cannot hold")
        stored = self._keys.get(key)
        if stored is None:
            stored = _Stored(FlexType.KEY, 1, address=len(self._out))
            self._keys[key] = stored
            self._out += key.encode() + b"\0"
        return stored

    def _map(self, entries: Mapping[str, Json]) -> _Stored:
        stored = {key: (self._key(key), self.store(value)) for key, value in entries.items()}
        ordered = [stored[key] for key in sorted(stored)]
        keys = self._write(FlexType.VECTOR_KEY, [key for key, _ in ordered], [])
        prefix = [keys, _Stored(FlexType.UINT, 1, keys.width)]
        return self._write(FlexType.MAP, [value for _, value in ordered], prefix)

    def _vector(self, values: list[_Stored]) -> _Stored:
        kinds = {value.kind for value in values}
        kind = kinds.pop() if len(kinds) == 1 else FlexType.NULL
        fixed = _FIXED.get((kind, len(values)))
        if fixed is not None:
            return self._write(fixed, values, None)
        return self._write(_TYPED.get(kind, FlexType.VECTOR), values, [])

    def _write(
        self, kind: FlexType, values: Sequence[_Stored], prefix: Sequence[_Stored] | None
    ) -> _Stored:
        """Write a vector: what comes before its size, the size, the values, their types."""
        head = [] if prefix is None else [*prefix, _size_of(values)]
        slots = [*head, *values]
        width = max(self._width_in_vector(slot, index) for index, slot in enumerate(slots))
        self._align(width)
        address = len(self._out) + len(head) * width
        for slot in slots:
            self._put(slot, width)
        if kind in {FlexType.VECTOR, FlexType.MAP}:
            self._out += bytes(_packed(value, width) for value in values)
        return _Stored(kind, width, address=address)

    def _put(self, value: _Stored, width: int) -> None:
        if value.kind is FlexType.FLOAT:
            self._out += struct.pack("<f" if width == WIDTHS[2] else "<d", value.number)
            return
        number = int(value.number) if value.kind in _INLINE else len(self._out) - value.address
        self._out += number.to_bytes(width, "little", signed=number < 0)

    def _width_in_vector(self, value: _Stored, index: int) -> int:
        """The width that the value needs as element ``index`` of a vector written next."""
        if value.kind in _INLINE:
            return value.width
        for width in WIDTHS:
            start = len(self._out) + _padding(len(self._out), width)
            if _uint_width(start + index * width - value.address) <= width:
                return width
        raise AssertionError("an offset of more than 64 bits")

    def _align(self, width: int) -> None:
        self._out += bytes(_padding(len(self._out), width))


def _inline(value: float | None) -> _Stored:
    match value:
        case None:
            return _Stored(FlexType.NULL, 1)
        case bool():
            return _Stored(FlexType.BOOL, 1, int(value))
        case int():
            signed = value < 0 or isinstance(value, Signed)
            kind = FlexType.INT if signed else FlexType.UINT
            return _Stored(kind, _int_width(value) if signed else _uint_width(value), value)
        case float():
            return _Stored(FlexType.FLOAT, _float_width(value), value)
        case _:
            assert_never(value)


def _size_of(values: Sequence[_Stored]) -> _Stored:
    return _Stored(FlexType.UINT, _uint_width(len(values)), len(values))


def _padding(size: int, width: int) -> int:
    return -size % width


def _packed(value: _Stored, parent_width: int) -> int:
    width = max(value.width, parent_width) if value.kind in _INLINE else value.width
    return value.kind << TYPE_SHIFT | WIDTHS.index(width)


def _int_width(value: int) -> int:
    # The sign takes a bit too.
    return _uint_width((value if value >= 0 else ~value) << 1)


def _uint_width(value: int) -> int:
    return next(width for width in WIDTHS if value < 1 << (8 * width))


def _float_width(value: float) -> int:
    try:
        short: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return WIDTHS[3]
    return WIDTHS[2] if short == value else WIDTHS[3]
