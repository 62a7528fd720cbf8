"""A bounded reader of flatbuffers: every offset and length is checked before it is used.

flatc's generated readers trust their input; here a hostile buffer can only raise FormatError.
One table at a time lives here; whole vectors of tables are read by ``columns``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from icechunk_stream.errors import FormatError
from icechunk_stream.format.times import MAX_MICROS

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_SCALARS = {code: struct.Struct(f"<{code}") for code in "?BHIQi"}

OFFSET_SIZE = 4
_VTABLE_HEADER = 4
# No table of the schema has more; a vtable that claims thousands is read no further.
_MAX_SLOTS = 32
# Names, paths and messages are shorter by far.
_MAX_TEXT = 2**24
# What may be visited: shared parts cost what copies would, and a buffer has room for few of those.
_VISITS = 4
_ALWAYS_ALLOWED = 2**16
# Beside its bytes: what a part that is visited alone costs.
_PART = 24


@dataclass(frozen=True, slots=True)
class Layout:
    """A vtable: the size of its tables, and where in them each slot is (0: absent)."""

    table_size: int
    fields: tuple[int, ...]

    def field(self, slot: int) -> int:
        return self.fields[slot] if slot < len(self.fields) else 0


class FlatBuffer:
    """The flatbuffer of one object, named by its key in errors."""

    __slots__ = ("_layouts", "data", "key", "octets", "spent", "words")

    def __init__(self, data: bytes | memoryview, key: str) -> None:
        self.data = data
        self.key = key
        self.octets: npt.NDArray[np.uint8] = np.frombuffer(data, dtype=np.uint8)
        self.words: npt.NDArray[np.uint32] = np.frombuffer(data, "<u4", count=len(data) // 4)
        self.spent = 0
        self._layouts: dict[int, Layout] = {}

    def __len__(self) -> int:
        return len(self.data)

    def aligned(self, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
        """The buffer as one column of numbers; a position is divided by their size."""
        return np.frombuffer(self.data, dtype, count=len(self.data) // dtype.itemsize)

    def error(self, message: str) -> FormatError:
        return FormatError(message, key=self.key)

    def root(self) -> Table:
        if len(self.data) < 2 * OFFSET_SIZE:
            raise self.error(f"{len(self.data)} bytes are too few for a flatbuffer")
        return self.table(self.follow(0))

    def u32(self, at: int) -> int:
        value: int = _U32.unpack_from(self.data, at)[0]
        return value

    def follow(self, at: int) -> int:
        """Where the offset at a position points to."""
        offset = self.u32(at)
        if not offset:
            raise self.error(f"the offset at {at} points to itself")
        return at + offset

    def table(self, at: int) -> Table:
        self.check(at, OFFSET_SIZE, OFFSET_SIZE, "a table")
        layout = self.layout(at - _I32.unpack_from(self.data, at)[0])
        self.check(at, layout.table_size, OFFSET_SIZE, "a table")
        return Table(self, at, layout)

    def layout(self, at: int) -> Layout:
        """The vtable at a position; parsed and checked once."""
        known = self._layouts.get(at)
        if known is None:
            known = self._layouts[at] = self._parse_layout(at)
        return known

    def check(self, at: int, size: int, alignment: int, what: str) -> None:
        if at < 0 or at + size > len(self.data):
            raise self.error(f"{what} of {size} bytes at {at} is outside of {len(self.data)} bytes")
        if at % alignment:
            raise self.error(f"{what} at {at} is not aligned to {alignment}")

    def spend(self, size: int) -> None:
        """Count bytes that are visited; where parts are shared too often, they come to too many."""
        self.spent += size
        if self.spent > _VISITS * len(self.data) + _ALWAYS_ALLOWED:
            raise self.error("its parts are shared or repeated too often")

    def apart(self, *, again: bool) -> FlatBuffer:
        """The same buffer with its own count, which starts anew for parts that are read again."""
        # One is made for each record of a long history: copy.copy takes ten times as long.
        buffer = object.__new__(FlatBuffer)
        buffer.data, buffer.key = self.data, self.key
        buffer.octets, buffer.words = self.octets, self.words
        buffer.spent = 0 if again else self.spent
        buffer._layouts = self._layouts
        return buffer

    def vector(self, at: int, item_size: int) -> tuple[int, int]:
        """Where the items of the vector begin, and how many there are."""
        self.check(at, OFFSET_SIZE, OFFSET_SIZE, "a vector")
        count = self.u32(at)
        self.check(at + OFFSET_SIZE, count * item_size, 1, "a vector")
        return at + OFFSET_SIZE, count

    def text(self, at: int) -> str:
        start, size = self.vector(at, 1)
        try:
            return str(self.data[start : start + size], "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"the string at {at} is not UTF-8") from error

    def blob(self, at: int) -> bytes:
        start, size = self.vector(at, 1)
        return bytes(self.data[start : start + size])

    def _parse_layout(self, at: int) -> Layout:
        self.check(at, _VTABLE_HEADER, 2, "a vtable")
        size = _U16.unpack_from(self.data, at)[0]
        table_size = _U16.unpack_from(self.data, at + 2)[0]
        if size < _VTABLE_HEADER or size % 2 or table_size < OFFSET_SIZE:
            raise self.error(f"the vtable at {at} has the sizes {size} and {table_size}")
        self.check(at, size, 2, "a vtable")
        slots = min((size - _VTABLE_HEADER) // 2, _MAX_SLOTS)
        fields = struct.unpack_from(f"<{slots}H", self.data, at + _VTABLE_HEADER)
        if any(field >= table_size or 0 < field < OFFSET_SIZE for field in fields):
            raise self.error(f"the vtable at {at} names a field outside of its table")
        return Layout(table_size, fields)


class Table:
    """One table; absent fields are None or the schema's default."""

    __slots__ = ("at", "buffer", "layout")

    def __init__(self, buffer: FlatBuffer, at: int, layout: Layout) -> None:
        self.buffer = buffer
        self.at = at
        self.layout = layout

    def has(self, slot: int) -> bool:
        return self.layout.field(slot) != 0

    def scalar(self, slot: int, code: str, default: int = 0) -> int:
        """A number by its struct code."""
        packed = _SCALARS[code]
        at = self._field(slot, packed.size, packed.size)
        return default if at is None else int(packed.unpack_from(self.buffer.data, at)[0])

    def time(self, slot: int) -> int:
        """Microseconds since 1970, which a datetime can hold."""
        micros = self.scalar(slot, "Q")
        if micros > MAX_MICROS:
            raise self.buffer.error(f"the time of {micros} microseconds is beyond the year 9998")
        return micros

    def struct(self, slot: int, size: int) -> bytes | None:
        at = self._field(slot, size, 1)
        return None if at is None else bytes(self.buffer.data[at : at + size])

    def text(self, slot: int) -> str | None:
        at = self.target(slot)
        return None if at is None else self._text(at)

    def blob(self, slot: int, most: int | None = None) -> bytes | None:
        """A vector of bytes, of which there may be a limited number."""
        at = self.target(slot)
        if at is None:
            return None
        size = self.buffer.vector(at, 1)[1]
        if most is not None and size > most:
            raise self.buffer.error(f"{size} bytes in slot {slot}, where {most} are allowed")
        self.buffer.spend(_PART + size)
        return self.buffer.blob(at)

    def table(self, slot: int) -> Table | None:
        at = self.target(slot)
        return None if at is None else self._table(at)

    def tables(self, slot: int) -> Iterator[Table]:
        """The tables of a vector, one by one; nothing where it is absent."""
        for at in self._targets(slot):
            yield self._table(at)

    def texts(self, slot: int) -> Iterator[str]:
        """The strings of a vector, one by one; nothing where it is absent."""
        for at in self._targets(slot):
            yield self._text(at)

    def array(self, slot: int, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic] | None:
        """A vector of scalars or structs, as numpy sees the buffer."""
        at = self.target(slot)
        if at is None:
            return None
        start, count = self.buffer.vector(at, dtype.itemsize)
        self.buffer.spend(count * dtype.itemsize)
        return np.frombuffer(self.buffer.data, dtype, count, start)

    def target(self, slot: int) -> int | None:
        """Position of the vector, string or table that an offset field points to."""
        at = self._field(slot, OFFSET_SIZE, OFFSET_SIZE)
        return None if at is None else self.buffer.follow(at)

    def need(self, value: T | None, name: str) -> T:
        """The value of a required field."""
        if value is None:
            raise self.buffer.error(f"the table at {self.at} lacks its {name}")
        return value

    def _text(self, at: int) -> str:
        size = self.buffer.vector(at, 1)[1]
        if size > _MAX_TEXT:
            raise self.buffer.error(f"a string of {size} bytes, where {_MAX_TEXT} are allowed")
        self.buffer.spend(_PART + size)
        return self.buffer.text(at)

    def _table(self, at: int) -> Table:
        table = self.buffer.table(at)
        self.buffer.spend(_PART + table.layout.table_size)
        return table

    def _targets(self, slot: int) -> Iterator[int]:
        at = self.target(slot)
        if at is None:
            return
        start, count = self.buffer.vector(at, OFFSET_SIZE)
        self.buffer.check(start, 0, OFFSET_SIZE, "a vector of offsets")
        self.buffer.spend(count * OFFSET_SIZE)
        for position in range(start, start + count * OFFSET_SIZE, OFFSET_SIZE):
            yield self.buffer.follow(position)

    def _field(self, slot: int, size: int, alignment: int) -> int | None:
        offset = self.layout.field(slot)
        if not offset:
            return None
        if offset + size > self.layout.table_size:
            raise self.buffer.error(f"slot {slot} of the table at {self.at} is cut")
        if (self.at + offset) % alignment:
            raise self.buffer.error(f"slot {slot} of the table at {self.at} is not aligned")
        return self.at + offset
