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
# Elements of vectors visited, in multiples of the buffer: shared subtrees cost what copies would.
_VISITS = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """A vtable: the size of its tables, and where in them each slot is (0: absent)."""

    table_size: int
    fields: tuple[int, ...]

    def field(self, slot: int) -> int:
        return self.fields[slot] if slot < len(self.fields) else 0


class FlatBuffer:
    """The flatbuffer of one object, named by its key in errors."""

    __slots__ = ("_layouts", "_visits_left", "data", "key", "octets", "words")

    def __init__(self, data: bytes | memoryview, key: str) -> None:
        self.data = data
        self.key = key
        self.octets: npt.NDArray[np.uint8] = np.frombuffer(data, dtype=np.uint8)
        self.words: npt.NDArray[np.uint32] = np.frombuffer(data, "<u4", count=len(data) // 4)
        self._layouts: dict[int, Layout] = {}
        self._visits_left = _VISITS * len(data)

    def __len__(self) -> int:
        return len(self.data)

    def error(self, message: str) -> FormatError:
        return FormatError(message, key=self.key)

    def root(self) -> Table:
        if len(self.data) < 2 * OFFSET_SIZE:
            raise self.error(f"{len(self.data)} bytes are too few for a flatbuffer")
        return self.table(self.u32(0))

    def u32(self, at: int) -> int:
        value: int = _U32.unpack_from(self.data, at)[0]
        return value

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
        """Count bytes of vectors that are walked through; shared subtrees run out of budget."""
        self._visits_left -= size
        if self._visits_left < 0:
            raise self.error("its parts are shared or repeated too often")

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
        fields = struct.unpack_from(f"<{(size - _VTABLE_HEADER) // 2}H", self.data, at + 4)
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

    def struct(self, slot: int, size: int) -> bytes | None:
        at = self._field(slot, size, 1)
        return None if at is None else bytes(self.buffer.data[at : at + size])

    def text(self, slot: int) -> str | None:
        at = self.target(slot)
        return None if at is None else self.buffer.text(at)

    def blob(self, slot: int) -> bytes | None:
        at = self.target(slot)
        return None if at is None else self.buffer.blob(at)

    def table(self, slot: int) -> Table | None:
        at = self.target(slot)
        return None if at is None else self.buffer.table(at)

    def tables(self, slot: int) -> Iterator[Table]:
        """The tables of a vector, one by one; nothing where it is absent."""
        for at in self._targets(slot):
            yield self.buffer.table(at)

    def texts(self, slot: int) -> list[str]:
        return [self.buffer.text(at) for at in self._targets(slot)]

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
        if at is None:
            return None
        return at + self.buffer.u32(at)

    def need(self, value: T | None, name: str) -> T:
        """The value of a required field."""
        if value is None:
            raise self.buffer.error(f"the table at {self.at} lacks its {name}")
        return value

    def _targets(self, slot: int) -> Iterator[int]:
        at = self.target(slot)
        if at is None:
            return
        start, count = self.buffer.vector(at, OFFSET_SIZE)
        self.buffer.check(start, 0, OFFSET_SIZE, "a vector of offsets")
        self.buffer.spend(count * OFFSET_SIZE)
        for position in range(start, start + count * OFFSET_SIZE, OFFSET_SIZE):
            yield position + self.buffer.u32(position)

    def _field(self, slot: int, size: int, alignment: int) -> int | None:
        offset = self.layout.field(slot)
        if not offset:
            return None
        if offset + size > self.layout.table_size:
            raise self.buffer.error(f"slot {slot} of the table at {self.at} is cut")
        if (self.at + offset) % alignment:
            raise self.buffer.error(f"slot {slot} of the table at {self.at} is not aligned")
        return self.at + offset
