"""References of one array, decoded from the tables of a manifest to columns."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.format.chunk_refs import RefColumns, RefKind
from icechunk_stream.format.columns import TableGroup, table_groups, zeros
from icechunk_stream.format.ids import ID12
from icechunk_stream.format.keys import KeySpace, ascending

if TYPE_CHECKING:
    import numpy.typing as npt
    import zstandard

    from icechunk_stream.format.flat import FlatBuffer

MAX_RANK = 64
# No store has longer keys: 1024 bytes, or three times that percent-encoded.
MAX_STORED_TEXT = 2**13
_MAX_U64 = np.uint64(2**64 - 1)


class RefSlot(IntEnum):
    """Slots of ``ChunkRef``."""

    INDEX = 0
    INLINE = 1
    OFFSET = 2
    LENGTH = 3
    CHUNK_ID = 4
    LOCATION = 5
    CHECKSUM_ETAG = 6
    CHECKSUM_LAST_MODIFIED = 7
    COMPRESSED_LOCATION = 8


def decode_refs(
    buffer: FlatBuffer, at: int, dictionary: zstandard.ZstdCompressionDict | None
) -> RefColumns:
    """The references of the vector at a position."""
    draft = _Draft(buffer, buffer.vector(at, 4)[1])
    for group in table_groups(buffer, at):
        draft.fill(group)
    return draft.finish(dictionary)


class _Draft:
    """Columns while they are filled, group by group."""

    def __init__(self, buffer: FlatBuffer, count: int) -> None:
        self.buffer = buffer
        self.count = count
        self.indices: npt.NDArray[np.uint32] | None = None
        self.kinds: npt.NDArray[np.uint8] = zeros(count, np.uint8)
        self.offsets: npt.NDArray[np.uint64] = zeros(count, np.uint64)
        self.lengths: npt.NDArray[np.uint64] = zeros(count, np.uint64)
        self.chunk_ids: npt.NDArray[np.void] | None = None
        self.where: npt.NDArray[np.uint32] | None = None
        self.compressed: npt.NDArray[np.bool_] | None = None
        self.etags: npt.NDArray[np.uint32] | None = None
        self.modified: npt.NDArray[np.uint32] | None = None

    def fill(self, group: TableGroup) -> None:
        self._fill_indices(group)
        kind = _kind(group)
        self.kinds[group.rows] = kind
        match kind:
            case RefKind.NATIVE:
                if self.chunk_ids is None:
                    self.chunk_ids = zeros(self.count, ID12)
                self.chunk_ids[group.rows] = group.structs(RefSlot.CHUNK_ID, ID12)
                self._fill_range(group)
            case RefKind.VIRTUAL:
                self._fill_location(group)
                self._fill_range(group)
                self._fill_checksum(group)
            case RefKind.INLINE:
                self.lengths[group.rows] = self._fill_where(group, RefSlot.INLINE)

    def finish(self, dictionary: zstandard.ZstdCompressionDict | None) -> RefColumns:
        indices = np.zeros((0, 0), np.uint32) if self.indices is None else self.indices
        space = KeySpace.within([int(top) + 1 for top in indices.max(0)] if self.count else [])
        keys = space.pack(indices)
        if not ascending(keys):
            raise self.buffer.error("its chunk indices are not in ascending order, or repeat")
        if self.count and self._ends_too_far():
            raise self.buffer.error("a chunk's offset and length add up to more than 64 bits")
        return RefColumns(
            source=self.buffer,
            dictionary=dictionary,
            space=space,
            lowest=tuple(indices.min(0).tolist()) if self.count else (),
            keys=keys,
            kinds=self.kinds,
            offsets=self.offsets,
            lengths=self.lengths,
            chunk_ids=self.chunk_ids,
            where=self.where,
            compressed=self.compressed,
            etags=self.etags,
            modified=self.modified,
        )

    def _ends_too_far(self) -> bool:
        furthest = int(self.offsets.max()) + int(self.lengths.max())
        return furthest > int(_MAX_U64) and bool((self.offsets > _MAX_U64 - self.lengths).any())

    def _fill_indices(self, group: TableGroup) -> None:
        vectors = group.vectors(RefSlot.INDEX, 4)
        if vectors is None:
            raise self.buffer.error("a chunk reference lacks its index")
        starts, counts = vectors
        if self.indices is None:
            rank = int(counts[0])
            if rank > MAX_RANK:
                raise self.buffer.error(f"a chunk index of {rank} dimensions")
            self.buffer.spend(4 * rank * self.count)
            self.indices = zeros(self.count * rank, np.uint32).reshape(self.count, rank)
        if (counts != self.indices.shape[1]).any():
            raise self.buffer.error("chunk indices of one array differ in their rank")
        words = starts >> 2
        for axis in range(self.indices.shape[1]):
            self.indices[group.rows, axis] = self.buffer.words[words + axis]

    def _fill_range(self, group: TableGroup) -> None:
        offsets = group.scalars(RefSlot.OFFSET, "<u8")
        lengths = group.scalars(RefSlot.LENGTH, "<u8")
        if offsets is not None:
            self.offsets[group.rows] = offsets
        if lengths is not None:
            self.lengths[group.rows] = lengths

    def _fill_where(self, group: TableGroup, slot: RefSlot) -> npt.NDArray[np.intp]:
        """Remember where a byte vector or string of every row is; return their lengths."""
        vectors = group.vectors(slot, 1)
        assert vectors is not None
        if self.where is None:
            self.where = zeros(self.count, np.uint32)
        self.where[group.rows] = vectors[0] - 4
        return vectors[1]

    def _fill_location(self, group: TableGroup) -> None:
        if not group.has(RefSlot.COMPRESSED_LOCATION):
            self._check_lengths(self._fill_where(group, RefSlot.LOCATION))
            return
        self._check_lengths(self._fill_where(group, RefSlot.COMPRESSED_LOCATION))
        if self.compressed is None:
            self.compressed = zeros(self.count, np.bool_)
        self.compressed[group.rows] = True

    def _fill_checksum(self, group: TableGroup) -> None:
        etags = group.vectors(RefSlot.CHECKSUM_ETAG, 1)
        if etags is not None:
            if self.etags is None:
                self.etags = zeros(self.count, np.uint32)
            self._check_lengths(etags[1])
            self.etags[group.rows] = etags[0] - 4
        modified = group.scalars(RefSlot.CHECKSUM_LAST_MODIFIED, "<u4")
        if modified is not None:
            if self.modified is None:
                self.modified = zeros(self.count, np.uint32)
            self.modified[group.rows] = modified

    def _check_lengths(self, lengths: npt.NDArray[np.intp]) -> None:
        """Writers share locations and etags, so that only their own length is a measure."""
        if int(lengths.max()) > MAX_STORED_TEXT:
            raise self.buffer.error(f"a location or etag of more than {MAX_STORED_TEXT} bytes")


def _kind(group: TableGroup) -> RefKind:
    """The kind is in which fields are there, and so in the vtable."""
    virtual = group.has(RefSlot.LOCATION) or group.has(RefSlot.COMPRESSED_LOCATION)
    present = {
        RefKind.NATIVE: group.has(RefSlot.CHUNK_ID),
        RefKind.VIRTUAL: virtual,
        RefKind.INLINE: group.has(RefSlot.INLINE),
    }
    kinds = [kind for kind, there in present.items() if there]
    if len(kinds) != 1:
        names = ", ".join(kind.name.lower() for kind in kinds) or "no"
        raise group.buffer.error(f"a chunk reference with {names} payload, one is expected")
    return kinds[0]
