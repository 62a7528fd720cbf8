"""Chunk references of one array: columns in the order of their indices, and single payloads."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import zstandard

from icechunk_stream.config.redact import redact_location
from icechunk_stream.format.ids import ChunkId
from icechunk_stream.format.texts import byte_column, text_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.format.flat import FlatBuffer
    from icechunk_stream.format.keys import KeySpace

MAX_LOCATION = 1024
# Locations may be copied, row by row, to this many times the manifest that they stand in.
_COPIED = 4


class RefKind(IntEnum):
    """Where a chunk's bytes are; the numbers are those of the public ``ChunkType``."""

    NATIVE = 1
    VIRTUAL = 2
    INLINE = 3


@dataclass(frozen=True, slots=True)
class InlineChunk:
    """The chunk's bytes stand in the manifest."""

    data: bytes


@dataclass(frozen=True, slots=True)
class NativeChunk:
    """The chunk is a range of a chunk object of the repository."""

    id: ChunkId
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class ETag:
    """The object that a virtual chunk points into had this etag."""

    value: str


@dataclass(frozen=True, slots=True)
class LastModified:
    """The object that a virtual chunk points into was not modified after this second."""

    seconds: int


Checksum = ETag | LastModified


@dataclass(frozen=True, slots=True, repr=False)
class VirtualChunk:
    """The chunk is a range of an object outside of the repository."""

    location: str
    offset: int
    length: int
    checksum: Checksum | None = None

    def __repr__(self) -> str:
        """The location without what a signed URL would give away."""
        where = f"{redact_location(self.location)!r}, {self.offset}, {self.length}"
        return f"VirtualChunk({where}, {self.checksum})"


ChunkPayload = InlineChunk | NativeChunk | VirtualChunk


def kind_of(payload: ChunkPayload) -> RefKind:
    """Where the bytes of a chunk are."""
    match payload:
        case InlineChunk():
            return RefKind.INLINE
        case NativeChunk():
            return RefKind.NATIVE
        case VirtualChunk():
            return RefKind.VIRTUAL


@dataclass(frozen=True, slots=True, eq=False)
class RefColumns:
    """References of one array; row ``i`` of every column belongs to the ``i``-th index.

    ``where`` is the position in ``source`` of an inline chunk's bytes or of a virtual one's
    location, which is a zstd frame where ``compressed`` says so. A column that no row needs is
    None.
    """

    source: FlatBuffer
    dictionary: zstandard.ZstdCompressionDict | None
    space: KeySpace
    lowest: tuple[int, ...]
    keys: npt.NDArray[np.generic]
    kinds: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    chunk_ids: npt.NDArray[np.void] | None
    where: npt.NDArray[np.uint32] | None
    compressed: npt.NDArray[np.bool_] | None
    etags: npt.NDArray[np.uint32] | None
    modified: npt.NDArray[np.uint32] | None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Memory held by the columns, without the buffer that some point into."""
        needed = (self.keys, self.kinds, self.offsets, self.lengths)
        optional = (self.chunk_ids, self.where, self.compressed, self.etags, self.modified)
        present = [column for column in optional if column is not None]
        return sum(column.nbytes for column in (*needed, *present))

    def indices(self, rows: slice | npt.NDArray[np.intp] | None = None) -> npt.NDArray[np.uint32]:
        """Chunk grid coordinates, one row each."""
        return self.space.unpack(self.keys if rows is None else self.keys[rows])

    def find(self, index: Sequence[int]) -> int | None:
        """Row of an index, if it is among them."""
        key = self.space.pack_one(index)
        if key is None or not len(self.keys):
            return None
        if isinstance(key, int):
            # Without gaps before it, a key is as far from the first one as its row is.
            row: int = key - self.keys.item(0)
            if 0 <= row < len(self.keys) and self.keys.item(row) == key:
                return row
        # numpy's search would let go of the interpreter, which a busy client's threads then take.
        row = bisect_left(self.keys, key)
        return row if row < len(self.keys) and self.keys[row] == key else None

    def kind(self, row: int) -> RefKind:
        """Where the bytes of one row are."""
        if not self.lengths.item(row):
            raise self.source.error(f"the chunk {self._index(row)} has length 0")
        return RefKind(self.kinds.item(row))

    def payload(self, row: int) -> ChunkPayload:
        """What one row refers to."""
        kind, length = self.kind(row), self.lengths.item(row)
        match kind:
            case RefKind.INLINE:
                return InlineChunk(self.inline(row))
            case RefKind.NATIVE:
                assert self.chunk_ids is not None
                id = ChunkId(self.chunk_ids[row].tobytes())
                return NativeChunk(id, self.offsets.item(row), length)
            case RefKind.VIRTUAL:
                offset = self.offsets.item(row)
                return VirtualChunk(self._location(row), offset, length, self.checksum(row))

    def inline(self, row: int) -> bytes:
        """Bytes of an inline row."""
        return self.source.blob(self._where(row))

    def checksum(self, row: int) -> Checksum | None:
        """Checksum of a virtual row; an etag is meant where both are set."""
        if self.etags is not None and self.etags[row]:
            return ETag(self.source.text(int(self.etags[row])))
        if self.modified is not None and self.modified[row]:
            return LastModified(int(self.modified[row]))
        return None

    def locations(self, rows: npt.NDArray[np.intp]) -> pa.Array:
        """Locations of virtual rows as an Arrow column, a dictionary where that saves much."""
        assert self.where is not None
        if self._stored_bytes(rows) <= _COPIED * len(self.source):
            return self._all_locations(rows)
        _, first, numbers = np.unique(self.where[rows], return_index=True, return_inverse=True)
        if self._stored_bytes(rows[first]) > len(self.source):
            raise self.source.error("its locations overlap")
        shared = self._all_locations(rows[first])
        if not pa.types.is_dictionary(shared.type):
            shared = shared.cast(pa.large_string()).dictionary_encode()
        indices = shared.indices.take(pa.array(numbers))
        return pa.DictionaryArray.from_arrays(indices, shared.dictionary)

    def _stored_bytes(self, rows: npt.NDArray[np.intp]) -> int:
        assert self.where is not None
        return int(self.source.words[self.where[rows] >> 2].sum(dtype=np.int64))

    def _all_locations(self, rows: npt.NDArray[np.intp]) -> pa.Array:
        assert self.where is not None
        packed = None if self.compressed is None else self.compressed[rows]
        if packed is None or not packed.any():
            return text_column(self.source, self.where[rows])
        if packed.all():
            return self._unpacked(rows)
        locations = np.empty(len(rows), dtype=object)
        locations[packed] = self._unpacked(rows[packed]).to_pylist()
        locations[~packed] = text_column(self.source, self.where[rows[~packed]]).to_pylist()
        return pa.array(locations, pa.string_view())

    def _unpacked(self, rows: npt.NDArray[np.intp]) -> pa.Array:
        """Compressed locations; each distinct one is unpacked once."""
        assert self.where is not None
        frames = byte_column(self.source, self.where[rows]).cast(pa.large_binary())
        encoded = frames.dictionary_encode()
        unpacker = self._unpacker()
        texts = [self._unpack(unpacker, frame) for frame in encoded.dictionary.to_pylist()]
        return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(texts, pa.string()))

    def _location(self, row: int) -> str:
        at = self._where(row)
        if self.compressed is not None and self.compressed[row]:
            return self._unpack(self._unpacker(), self.source.blob(at))
        return self.source.text(at)

    def _unpacker(self) -> zstandard.ZstdDecompressor:
        if self.dictionary is None:
            raise self.source.error("a compressed location, but no dictionary for it")
        return zstandard.ZstdDecompressor(dict_data=self.dictionary)

    def _unpack(self, unpacker: zstandard.ZstdDecompressor, frame: bytes) -> str:
        try:
            if zstandard.frame_content_size(frame) > MAX_LOCATION:
                raise self.source.error(f"a compressed location of more than {MAX_LOCATION} bytes")
            return unpacker.decompress(frame, max_output_size=MAX_LOCATION).decode("utf-8")
        except (zstandard.ZstdError, UnicodeDecodeError) as error:
            raise self.source.error(f"a compressed location is damaged ({error})") from error

    def _where(self, row: int) -> int:
        assert self.where is not None
        return int(self.where[row])

    def _index(self, row: int) -> list[int]:
        index: list[int] = self.indices(slice(row, row + 1))[0].tolist()
        return index
