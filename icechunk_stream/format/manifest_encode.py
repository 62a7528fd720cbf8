"""Manifests written from columns: no Python object is made for a reference."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format.chunk_refs import RefKind
from icechunk_stream.format.header import DEFAULT_LEVEL, FileType
from icechunk_stream.format.heaps import present_rows, share
from icechunk_stream.format.keys import KeySpace, ascending
from icechunk_stream.format.manifest import MAX_ARRAYS, ArraySlot, ManifestSlot
from icechunk_stream.format.records import (
    ID8_CODE,
    ID12_CODE,
    OFFSET,
    Records,
    Writer,
    invalid,
    owning_layout,
    shape,
)
from icechunk_stream.format.refs_decode import MAX_STORED_TEXT, RefSlot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from icechunk_stream.format.heaps import Shared
    from icechunk_stream.format.ids import ManifestId, NodeId
    from icechunk_stream.format.records import Block, Shape
    from icechunk_stream.format.ref_tables import RefTable

    Rows = slice | npt.NDArray[np.intp]

# Written although it is what an absent dictionary implies: the schema's default is 1.
_PLAIN_LOCATIONS = 0

_MANIFEST = shape(
    (ManifestSlot.ID, ID12_CODE),
    (ManifestSlot.ARRAYS, OFFSET),
    (ManifestSlot.COMPRESSION_ALGORITHM, "B"),
)
_ARRAY = shape((ArraySlot.NODE_ID, ID8_CODE), (ArraySlot.REFS, OFFSET))
_INDEX = (RefSlot.INDEX, OFFSET)
_RANGE = ((RefSlot.OFFSET, "Q"), (RefSlot.LENGTH, "Q"))
_INLINE = shape(_INDEX, (RefSlot.INLINE, OFFSET))
_NATIVE = shape(_INDEX, *_RANGE, (RefSlot.CHUNK_ID, ID12_CODE))
_VIRTUAL = (_INDEX, *_RANGE, (RefSlot.LOCATION, OFFSET))
_ETAG = (RefSlot.CHECKSUM_ETAG, OFFSET)
_MODIFIED = (RefSlot.CHECKSUM_LAST_MODIFIED, "I")

# A variant is a kind, plus these where a virtual reference has a checksum.
_HAS_ETAG = 4
_HAS_MODIFIED = 8


def encode_manifest(
    id: ManifestId,
    arrays: Mapping[NodeId, RefTable],
    spec_version: int,
    level: int = DEFAULT_LEVEL,
) -> bytes:
    """A manifest object; references are sorted by index, arrays by node id."""
    if len(arrays) > MAX_ARRAYS:
        raise invalid(f"a manifest of {len(arrays)} arrays, {MAX_ARRAYS} are possible: split it")
    writer = Writer()
    root = writer.table(_MANIFEST, id.raw, 0, _PLAIN_LOCATIONS)
    vector = writer.offsets(len(arrays))
    writer.attach(root, _MANIFEST, ManifestSlot.ARRAYS, vector)
    for number, node in enumerate(sorted(arrays), start=1):
        table = writer.table(_ARRAY, node.raw, 0)
        writer.link(vector + 4 * number, table)
        writer.attach(table, _ARRAY, ArraySlot.REFS, _write_refs(writer, node, arrays[node]))
    return writer.seal(root, FileType.MANIFEST, spec_version, level)


def _write_refs(writer: Writer, node: NodeId, table: RefTable) -> int:
    try:
        table.check()
        refs = _Refs(table)
    except InvalidInputError as error:
        raise invalid(f"array {node}: {error.message}") from error
    heaps = [column.heap for column in (refs.inline, refs.locations, refs.etags) if column]
    vector = writer.records(list(refs.groups()), sum(heap.size for heap in heaps))
    for heap in heaps:
        heap.write(writer)
    return vector


class _Refs:
    """References of one array, in order, with their strings and bytes laid out in one heap."""

    def __init__(self, table: RefTable) -> None:
        self.table = table
        self.order = _order(table)
        self.inline = _shared(table.inline, "the inline bytes", text=False)
        self.locations = _shared(table.locations, "the locations", text=True)
        self.etags = _shared(table.etags, "the etags", text=True)
        self.locations_at = 0 if self.inline is None else self.inline.heap.size
        self.etags_at = self.locations_at
        self.etags_at += 0 if self.locations is None else self.locations.heap.size

    def groups(self) -> Iterator[Records]:
        """One group of records for each variant: kind and checksums decide on the vtable."""
        variants = _variants(self.table)
        ordered = variants if self.order is None else variants[self.order]
        present = np.flatnonzero(np.bincount(variants, minlength=1)).tolist()
        for variant in present:
            places = None if len(present) == 1 else np.flatnonzero(ordered == variant)
            yield self._group(variant, places)

    def _group(self, variant: int, places: npt.NDArray[np.intp] | None) -> Records:
        count = len(self.table) if places is None else len(places)
        rows = places if self.order is None else self.order
        if places is not None and self.order is not None:
            rows = self.order[places]
        of, fill = self._variant(variant)
        rank = self.table.rank
        layout = owning_layout(of, RefSlot.INDEX, rank, rank)
        return Records(layout, count, partial(self._fill, fill, rows), places)

    def _variant(self, variant: int) -> tuple[Shape, Callable[[Block, Rows], None]]:
        match variant:
            case RefKind.NATIVE:
                return _NATIVE, self._fill_native
            case RefKind.INLINE:
                return _INLINE, self._fill_inline
            case _:
                return _virtual_shape(variant), self._fill_virtual

    def _fill(
        self,
        fill: Callable[[Block, Rows], None],
        chosen: npt.NDArray[np.intp] | None,
        block: Block,
        rows: slice,
    ) -> None:
        selected = rows if chosen is None else chosen[rows]
        block.set_items(self.table.indices[selected])
        fill(block, selected)

    def _fill_native(self, block: Block, rows: Rows) -> None:
        assert self.table.chunk_ids is not None
        self._fill_range(block, rows)
        block.set(RefSlot.CHUNK_ID, self.table.chunk_ids[rows])

    def _fill_inline(self, block: Block, rows: Rows) -> None:
        assert self.inline is not None
        block.link(RefSlot.INLINE, self.inline.starts(rows))

    def _fill_virtual(self, block: Block, rows: Rows) -> None:
        assert self.locations is not None
        self._fill_range(block, rows)
        block.link(RefSlot.LOCATION, self.locations_at + self.locations.starts(rows))
        if block.has(RefSlot.CHECKSUM_ETAG):
            assert self.etags is not None
            block.link(RefSlot.CHECKSUM_ETAG, self.etags_at + self.etags.starts(rows))
        if block.has(RefSlot.CHECKSUM_LAST_MODIFIED):
            assert self.table.modified is not None
            block.set(RefSlot.CHECKSUM_LAST_MODIFIED, self.table.modified[rows])

    def _fill_range(self, block: Block, rows: Rows) -> None:
        block.set(RefSlot.OFFSET, self.table.offsets[rows])
        block.set(RefSlot.LENGTH, self.table.lengths[rows])


def _order(table: RefTable) -> npt.NDArray[np.intp] | None:
    """Rows in the order of their indices; None where they already are."""
    if not len(table):
        return None
    keys = KeySpace.within([int(top) + 1 for top in table.indices.max(axis=0)]).pack(table.indices)
    if ascending(keys):
        return None
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    if not ascending(ordered):
        repeated = order[np.flatnonzero(ordered[1:] == ordered[:-1])[0]]
        raise invalid(f"the chunk index {table.indices[repeated].tolist()} is there twice")
    return order


def _shared(column: pa.Array | None, what: str, *, text: bool) -> Shared | None:
    if column is None:
        return None
    shared = share(column, what, text=text)
    if text and shared.heap.longest > MAX_STORED_TEXT:
        raise invalid(f"{what}: one has more than {MAX_STORED_TEXT} bytes")
    return shared


def _variants(table: RefTable) -> npt.NDArray[np.uint8]:
    if table.etags is None and table.modified is None:
        return table.kinds
    variants = table.kinds.copy()
    if table.etags is not None:
        variants[present_rows(table.etags)] += _HAS_ETAG
    if table.modified is not None:
        variants[table.modified != 0] += _HAS_MODIFIED
    return variants


def _virtual_shape(variant: int) -> Shape:
    etag = (_ETAG,) if variant & _HAS_ETAG else ()
    modified = (_MODIFIED,) if variant & _HAS_MODIFIED else ()
    return shape(*_VIRTUAL, *etag, *modified)
