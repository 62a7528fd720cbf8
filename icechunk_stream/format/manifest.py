"""Manifests: which bytes every chunk of an array is, decoded to columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import zstandard

from icechunk_stream.format.chunk_refs import RefColumns
from icechunk_stream.format.columns import table_groups
from icechunk_stream.format.flat import OFFSET_SIZE, FlatBuffer, Table
from icechunk_stream.format.header import FileType, open_envelope
from icechunk_stream.format.ids import ID8, OBJECT_ID_SIZE, ManifestId, NodeId, find_row
from icechunk_stream.format.refs_decode import decode_refs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

MAX_DICTIONARY = 2**20
# Arrays cost more than references: a manifest of many arrays has few references for each.
MAX_ARRAYS = 2**14
_ZSTD_DICTIONARY = 1
# Columns of a reference, decoded.
_REF_BYTES = 41


class ManifestSlot(IntEnum):
    """Slots of ``Manifest``."""

    ID = 0
    ARRAYS = 1
    LOCATION_DICTIONARY = 2
    COMPRESSION_ALGORITHM = 3


class ArraySlot(IntEnum):
    """Slots of ``ArrayManifest``."""

    NODE_ID = 0
    REFS = 1


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """References of one or several arrays."""

    id: ManifestId
    arrays: Arrays
    compression_algorithm: int
    dictionary_size: int | None
    spec_version: int
    written_by: str
    payload_size: int

    @property
    def nbytes(self) -> int:
        """Memory that is held once all arrays are decoded."""
        return self.payload_size + self.arrays.counts * _REF_BYTES

    def __len__(self) -> int:
        return self.arrays.counts


def decode_manifest(data: bytes, key: str) -> Manifest:
    """Read a manifest object; locations and inline bytes stay in its buffer until asked for."""
    envelope = open_envelope(data, FileType.MANIFEST, key)
    root = FlatBuffer(envelope.payload, key).root()
    algorithm = root.scalar(ManifestSlot.COMPRESSION_ALGORITHM, "B", _ZSTD_DICTIONARY)
    raw = root.blob(ManifestSlot.LOCATION_DICTIONARY, MAX_DICTIONARY)
    arrays = Arrays(root, _dictionary(root, algorithm, raw))
    if len(arrays) == 1:
        # What is damaged is better known at once.
        list(arrays.values())
    return Manifest(
        id=ManifestId(root.need(root.struct(ManifestSlot.ID, OBJECT_ID_SIZE), "id")),
        arrays=arrays,
        compression_algorithm=algorithm,
        dictionary_size=None if raw is None else len(raw),
        spec_version=envelope.spec_version,
        written_by=envelope.written_by,
        payload_size=len(envelope.payload),
    )


def _dictionary(
    root: Table, algorithm: int, raw: bytes | None
) -> zstandard.ZstdCompressionDict | None:
    if raw is None or algorithm != _ZSTD_DICTIONARY:
        return None
    dictionary = zstandard.ZstdCompressionDict(raw)
    try:
        zstandard.ZstdDecompressor(dict_data=dictionary)
    except zstandard.ZstdError as error:
        raise root.buffer.error(f"its location dictionary is damaged ({error})") from error
    return dictionary


class Arrays(Mapping[NodeId, RefColumns]):
    """Columns by array, decoded when they are asked for: readers want one array of many."""

    def __init__(self, root: Table, dictionary: zstandard.ZstdCompressionDict | None) -> None:
        at = root.need(root.target(ManifestSlot.ARRAYS), "arrays")
        buffer = root.buffer
        if buffer.vector(at, OFFSET_SIZE)[1] > MAX_ARRAYS:
            raise buffer.error(f"it holds more than {MAX_ARRAYS} arrays")
        self._buffer = buffer
        self._dictionary = dictionary
        self._nodes, self._refs_at, self.counts = _places(buffer, at)
        self._decoded: dict[NodeId, RefColumns] = {}

    def __getitem__(self, node: NodeId) -> RefColumns:
        columns = self._decoded.get(node)
        if columns is None:
            row = find_row(self._nodes, node)
            if row is None:
                raise KeyError(node)
            at = int(self._refs_at[row])
            # Each thread counts what it visits; what is shared between arrays counts for all.
            buffer = self._buffer.apart(again=False)
            columns = decode_refs(buffer, at, self._dictionary)
            self._buffer.spent = buffer.spent
            self._decoded[node] = columns
        return columns

    def __contains__(self, node: object) -> bool:
        return isinstance(node, NodeId) and find_row(self._nodes, node) is not None

    def __iter__(self) -> Iterator[NodeId]:
        return (NodeId(node.tobytes()) for node in self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def _places(
    buffer: FlatBuffer, arrays_at: int
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.intp], int]:
    """The nodes of arrays, where the references of each are, and how many there are of all."""
    count = buffer.vector(arrays_at, OFFSET_SIZE)[1]
    nodes = np.zeros(count, ID8)
    refs_at = np.zeros(count, np.intp)
    refs = 0
    for group in table_groups(buffer, arrays_at):
        found, vectors = group.structs(ArraySlot.NODE_ID, ID8), group.vectors(ArraySlot.REFS, 4)
        if found is None or vectors is None:
            raise buffer.error("an array lacks its node_id or its refs")
        nodes[group.rows] = found
        refs_at[group.rows] = vectors[0] - OFFSET_SIZE
        refs += int(vectors[1].sum())
    numbers = nodes.view(">u8")
    if (numbers[1:] <= numbers[:-1]).any():
        raise buffer.error("its arrays are not in ascending order of their node ids")
    return nodes, refs_at, refs
