"""Manifest files built by hand, apart from any library: references that no writer makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import flatbuffers
import zstandard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAGIC = b"ICE\xf0\x9f\xa7\x8aCHUNK"
_WRITER = b"by-hand".ljust(24)
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True, slots=True)
class Ref:
    """One chunk reference; the payload that is set says its kind."""

    index: tuple[int, ...]
    inline: bytes | None = None
    chunk_id: bytes | None = None
    location: str | None = None
    offset: int = 0
    length: int = 0


def id_text(value: bytes) -> str:
    count = -(-len(value) * 8 // 5)
    bits = int.from_bytes(value, "big") << (count * 5 - len(value) * 8)
    return "".join(_ALPHABET[bits >> 5 * place & 31] for place in reversed(range(count)))


def id_bytes(text: str) -> bytes:
    bits = 0
    for letter in text:
        bits = bits * 32 + _ALPHABET.index(letter)
    length = len(text) * 5 // 8
    return (bits >> len(text) * 5 - length * 8).to_bytes(length, "big")


def manifest_file(
    manifest_id: str, arrays: Mapping[str, Sequence[Ref]], spec_version: int
) -> bytes:
    """The bytes of a manifest with these references, by node id."""
    builder = flatbuffers.Builder(1024)
    nodes = sorted((id_bytes(node), refs) for node, refs in arrays.items())
    tables = [_array(builder, node, refs) for node, refs in nodes]
    listed = _offsets(builder, tables)
    builder.StartObject(5)
    builder.PrependUOffsetTRelativeSlot(1, listed, 0)
    builder.PrependStructSlot(0, _fixed(builder, id_bytes(manifest_id)), 0)
    builder.PrependUint8Slot(3, 0, 1)
    builder.Finish(builder.EndObject(), file_identifier=b"Ichk")
    payload = zstandard.ZstdCompressor().compress(bytes(builder.Output()))
    return _MAGIC + _WRITER + bytes([spec_version, 2, 1]) + payload


def _array(builder: Any, node: bytes, refs: Sequence[Ref]) -> int:
    listed = _offsets(builder, [_ref(builder, ref) for ref in refs])
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(1, listed, 0)
    builder.PrependStructSlot(0, _fixed(builder, node), 0)
    return int(builder.EndObject())


def _ref(builder: Any, ref: Ref) -> int:
    builder.StartVector(4, len(ref.index), 4)
    for part in reversed(ref.index):
        builder.PrependUint32(part)
    index = builder.EndVector()
    inline = None if ref.inline is None else builder.CreateByteVector(ref.inline)
    location = None if ref.location is None else builder.CreateString(ref.location)
    builder.StartObject(10)
    for slot, child in ((0, index), (1, inline), (5, location)):
        if child is not None:
            builder.PrependUOffsetTRelativeSlot(slot, child, 0)
    builder.PrependUint64Slot(2, ref.offset, 0)
    builder.PrependUint64Slot(3, ref.length, 0)
    if ref.chunk_id is not None:
        builder.PrependStructSlot(4, _fixed(builder, ref.chunk_id), 0)
    return int(builder.EndObject())


def _offsets(builder: Any, tables: Sequence[int]) -> int:
    builder.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    return int(builder.EndVector())


def _fixed(builder: Any, value: bytes) -> int:
    """A struct of bytes, written in place."""
    builder.Prep(1, len(value))
    for byte in reversed(value):
        builder.PrependUint8(byte)
    return int(builder.Offset())
