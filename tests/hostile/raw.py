"""Flatbuffers laid out by hand, so that every part of one can be wrong.

A document is a tree (or, where a part is used twice, a graph) of ``Table``, ``Octets`` and
``Offsets``. ``lay_out`` gives its bytes and where each part is, for tests that then damage them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WORD = 4
_HEADER = 8


@dataclass(eq=False, slots=True)
class Inline:
    """A number or struct that stands in its table."""

    data: bytes
    alignment: int = 1


@dataclass(eq=False, slots=True)
class Octets:
    """A vector of numbers or structs, or a string; ``count`` is what its length will claim."""

    data: bytes
    item_size: int = 1
    alignment: int = WORD
    count: int | None = None


@dataclass(eq=False, slots=True)
class Offsets:
    """A vector of tables or strings."""

    items: Sequence[Table | Octets]
    count: int | None = None


@dataclass(eq=False, slots=True)
class Table:
    """A table of a kind that the format names, with its fields by slot."""

    kind: str
    fields: dict[int, Field] = field(default_factory=dict)


Part: TypeAlias = Table | Octets | Offsets
Field: TypeAlias = Inline | Part


def u8(value: int) -> Inline:
    return Inline(struct.pack("<B", value))


def u16(value: int) -> Inline:
    return Inline(struct.pack("<H", value), 2)


def u32(value: int) -> Inline:
    return Inline(struct.pack("<I", value), 4)


def i32(value: int) -> Inline:
    return Inline(struct.pack("<i", value), 4)


def u64(value: int) -> Inline:
    return Inline(struct.pack("<Q", value), 8)


def text(value: str | bytes) -> Octets:
    raw = value.encode() if isinstance(value, str) else value
    return Octets(raw + b"\0", count=len(raw))


def words(*values: int) -> Octets:
    return Octets(struct.pack(f"<{len(values)}I", *values), WORD)


@dataclass(slots=True)
class Flat:
    """The bytes of a document, and the position of each of its parts by identity."""

    data: bytearray
    positions: dict[int, int]
    places: dict[tuple[int, int], int]
    vtables: dict[int, int]

    def position(self, part: Part) -> int:
        return self.positions[id(part)]

    def place(self, table: Table, slot: int) -> int:
        """Where a field of a table is."""
        return self.places[id(table), slot]

    def vtable(self, table: Table) -> int:
        return self.vtables[id(table)]

    def put(self, code: str, at: int, value: int) -> Flat:
        struct.pack_into(f"<{code}", self.data, at, value)
        return self


def lay_out(root: Table) -> Flat:
    """Bytes of a document: parts stand before the parts that they point to."""
    parts = _in_order(root)
    layout = Flat(bytearray(_HEADER), {}, {}, {})
    layout.data[WORD:_HEADER] = b"Ichk"
    shared: dict[bytes, int] = {}
    for part in parts:
        _reserve(layout, part, shared)
    for part in parts:
        _link(layout, part)
    return layout.put("I", 0, layout.position(root))


def payload(root: Table) -> bytes:
    return bytes(lay_out(root).data)


def tables_of(root: Table) -> list[Table]:
    """Every table of a document once, the root first."""
    return [part for part in _in_order(root) if isinstance(part, Table)]


def _in_order(root: Table) -> list[Part]:
    seen: set[int] = set()
    order: list[Part] = []

    def visit(part: Part) -> None:
        if id(part) in seen:
            return
        seen.add(id(part))
        for child in reversed(list(_children(part))):
            visit(child)
        order.append(part)

    visit(root)
    return order[::-1]


def _children(part: Part) -> Iterable[Part]:
    match part:
        case Table(_, fields):
            return [value for value in fields.values() if not isinstance(value, Inline)]
        case Offsets(items):
            return {id(item): item for item in items}.values()
        case Octets():
            return ()


def _reserve(layout: Flat, part: Part, shared: dict[bytes, int]) -> None:
    match part:
        case Table():
            _reserve_table(layout, part, shared)
        case Octets(data, item_size, alignment, count):
            claimed = len(data) // item_size if count is None else count
            layout.positions[id(part)] = _append(
                layout, WORD, alignment, struct.pack("<I", claimed)
            )
            layout.data += data
        case Offsets(items, count):
            length = struct.pack("<I", len(items) if count is None else count)
            layout.positions[id(part)] = _append(layout, 0, WORD, length)
            layout.data += bytes(WORD * len(items))


def _reserve_table(layout: Flat, table: Table, shared: dict[bytes, int]) -> None:
    offsets, body = _body(table)
    slots = range(max(table.fields, default=-1) + 1)
    vtable = struct.pack(
        f"<{2 + len(slots)}H",
        WORD + 2 * len(slots),
        len(body),
        *(offsets.get(slot, 0) for slot in slots),
    )
    if vtable not in shared:
        shared[vtable] = _append(layout, 0, 2, vtable)
    at = _append(layout, 0, 8, body)
    layout.put("i", at, at - shared[vtable])
    layout.positions[id(table)] = at
    layout.vtables[id(table)] = shared[vtable]
    for slot, offset in offsets.items():
        layout.places[id(table), slot] = at + offset


def _body(table: Table) -> tuple[dict[int, int], bytearray]:
    """Where each field goes in the table, and the table with its inline fields."""
    offsets: dict[int, int] = {}
    body = bytearray(WORD)
    for slot, value in sorted(table.fields.items()):
        data, alignment = (
            (value.data, value.alignment) if isinstance(value, Inline) else (bytes(WORD), WORD)
        )
        body += bytes(-len(body) % alignment)
        offsets[slot] = len(body)
        body += data
    return offsets, body


def _append(layout: Flat, before: int, alignment: int, data: bytes | bytearray) -> int:
    """Append so that what stands ``before`` bytes further on is aligned."""
    layout.data += bytes(-(len(layout.data) + before) % max(alignment, 2))
    at = len(layout.data)
    layout.data += data
    return at


def _link(layout: Flat, part: Part) -> None:
    match part:
        case Table(_, fields):
            for slot, value in fields.items():
                if not isinstance(value, Inline):
                    place = layout.place(part, slot)
                    layout.put("I", place, layout.position(value) - place)
        case Offsets(items) if items:
            first = layout.position(part) + WORD
            places = np.arange(first, first + WORD * len(items), WORD)
            targets = np.array([layout.positions[id(item)] for item in items])
            layout.data[first : first + WORD * len(items)] = (
                (targets - places).astype("<u4").tobytes()
            )
        case _:
            pass
