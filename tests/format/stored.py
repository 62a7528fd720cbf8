"""What the reference library stored, taken out of its files by the plain flatbuffers package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zstandard
from flatbuffers import encode, number_types
from flatbuffers.table import Table

if TYPE_CHECKING:
    from pathlib import Path

_HEADER_SIZE = 39
_SNAPSHOT_METADATA = 5
_REPO_CONFIG = 9


def stored_metadata(root: Path, snapshot_id: str) -> dict[str, bytes]:
    """The encoded metadata items of a snapshot."""
    table = _root(root / "snapshots" / snapshot_id)
    return {_text(item, 0): _bytes(item, 1) for item in _tables(table, _SNAPSHOT_METADATA)}


def stored_config(root: Path) -> bytes:
    """The encoded configuration of a repository of spec version 2."""
    return _bytes(_root(root / "repo"), _REPO_CONFIG)


def _root(path: Path) -> Table:
    packed = path.read_bytes()[_HEADER_SIZE:]
    data = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    return Table(data, encode.Get(number_types.UOffsetTFlags.packer_type, data, 0))


def _field(table: Table, slot: int) -> int:
    offset: int = table.Offset(4 + 2 * slot)
    assert offset, f"field {slot} is absent"
    return offset


def _bytes(table: Table, slot: int) -> bytes:
    offset = _field(table, slot)
    start = table.Vector(offset)
    return bytes(table.Bytes[start : start + table.VectorLen(offset)])


def _text(table: Table, slot: int) -> str:
    text: bytes = table.String(table.Pos + _field(table, slot))
    return text.decode()


def _tables(table: Table, slot: int) -> list[Table]:
    offset = _field(table, slot)
    start = table.Vector(offset)
    return [
        Table(table.Bytes, table.Indirect(start + 4 * index))
        for index in range(table.VectorLen(offset))
    ]
