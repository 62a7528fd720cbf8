"""Folders that an array's chunks seem to lie in: ``array/c``, ``array/c/0`` and so on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.store.keys import CHUNKS_NAME, index_in

if TYPE_CHECKING:
    from icechunk_stream.reading import SnapshotReader


@dataclass(frozen=True, slots=True)
class ChunkFolder:
    """The chunks of an array whose indices begin with ``leading``."""

    array: ArrayNode
    leading: tuple[int, ...]


def chunk_folder(reader: SnapshotReader, path: str) -> ChunkFolder | None:
    """The folder of chunks that an absolute path names, if it names one."""
    parts = path[1:].split("/")
    for depth in range(len(parts) - 1, -1, -1):
        node = reader.node("/" + "/".join(parts[:depth]))
        if isinstance(node, ArrayNode) and parts[depth] == CHUNKS_NAME:
            return _folder(node, parts[depth + 1 :])
    return None


def _folder(array: ArrayNode, given: list[str]) -> ChunkFolder | None:
    if len(given) > len(array.shape):
        return None
    leading: list[int] = []
    for part in given:
        number = index_in(part)
        if number is None:
            return None
        leading.append(number)
    return ChunkFolder(array, tuple(leading))
