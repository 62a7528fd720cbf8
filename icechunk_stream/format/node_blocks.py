"""Where the nodes of a decoded snapshot have their bytes, found by column.

All parts of a node mostly lie side by side, so that it can be copied as one block, whose offsets
all point inside of it. Out of it lead only the ways from its tables to their vtables, and those to
names of dimensions, which the reference writes once for all arrays.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.format.columns import linked_groups, nested_groups, table_groups
from icechunk_stream.format.flat import OFFSET_SIZE
from icechunk_stream.format.ids import ID12
from icechunk_stream.format.json_nesting import MAX_JSON_SIZE
from icechunk_stream.format.nodes import (
    DIMENSION_V1,
    INDEX_RANGE,
    ArrayDataSlot,
    NodeSlot,
    NodeType,
)
from icechunk_stream.format.texts import text_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from icechunk_stream.format.columns import Positions, TableGroup
    from icechunk_stream.format.flat import FlatBuffer, Layout
    from icechunk_stream.format.node_rows import Nodes

    Mask = npt.NDArray[np.bool_]
    Vectors = tuple[Positions, Positions]

# Components that would have to be resolved, and a path that is not absolute or ends in a slash.
_NOT_CANONICAL = r"^[^/]|^$|//|/\.\.?/|/\.\.?$|[^/]/$"
_NO_PLACE = 2**62
# What ends a string.
_NUL = 1


@dataclass(frozen=True, slots=True, eq=False)
class NodeBlocks:
    """One row for each node: its block, and whether nothing but the node is in it.

    Tables and manifests of all nodes follow, each with the row of the node that it belongs to, and
    tables with the number of their vtable, which has no field that is not known. Names are those
    outside of the blocks, one row for each offset that points to one.
    """

    buffer: FlatBuffer
    starts: Positions
    ends: Positions
    whole: Mask
    vtables: list[bytes]
    tables: Positions
    table_rows: Positions
    table_vtables: Positions
    names: Positions
    name_fields: Positions
    name_rows: Positions
    manifests: npt.NDArray[np.void]
    manifest_rows: Positions


def node_blocks(nodes: Nodes, spec_version: int) -> NodeBlocks:
    """The blocks of all nodes; whole are those that a snapshot of the spec may have as they are."""
    survey = _Survey(nodes, spec_version)
    survey.read_nodes(nodes.vector_at)
    survey.read_groups()
    survey.read_arrays()
    return survey.finish()


class _Survey:
    """Parts of nodes as they are found: where each begins and ends, and whose it is."""

    def __init__(self, nodes: Nodes, spec_version: int) -> None:
        count = len(nodes)
        self.buffer = nodes.buffer.apart(again=True)
        self.has_shape_v2 = spec_version != 1
        self.whole = np.ones(count, np.bool_)
        self.data = np.zeros(count, np.intp)
        self.types = np.zeros(count, np.uint8)
        self.paths = np.zeros(count, np.intp)
        self.tables = _Parts()
        self.vectors = _Parts()
        self.names = _Parts()
        self.name_fields: list[Positions] = []
        self.vtables: dict[bytes, int] = {}
        self.table_vtables: list[Positions] = []
        self.manifests: list[npt.NDArray[np.void]] = []
        self.manifest_rows: list[Positions] = []

    def read_nodes(self, vector_at: int) -> None:
        for group in table_groups(self.buffer, vector_at):
            rows = _numbers(group)
            self._add_tables(group, rows, len(NodeSlot))
            self.paths[rows] = self._needed(group, NodeSlot.PATH, rows, 1, _NUL)[0] - OFFSET_SIZE
            if (self._needed(group, NodeSlot.USER_DATA, rows, 1)[1] > MAX_JSON_SIZE).any():
                raise self.buffer.error(f"a zarr.json of more than {MAX_JSON_SIZE} bytes")
            data = group.offsets(NodeSlot.DATA)
            if data is None or not group.has(NodeSlot.ID):
                raise self.buffer.error("a node lacks its node_data or its id")
            self.data[rows] = data
            types = group.scalars(NodeSlot.DATA_TYPE, "u1")
            if types is not None:
                self.types[rows] = types
        if not np.isin(self.types, (NodeType.ARRAY, NodeType.GROUP)).all():
            raise self.buffer.error("a node has an unknown type")
        _check_paths(self.buffer, self.paths)

    def read_groups(self) -> None:
        for group, rows in self._data_of(NodeType.GROUP):
            self._add_tables(group, rows, 0)

    def read_arrays(self) -> None:
        for group, rows in self._data_of(NodeType.ARRAY):
            self._add_tables(group, rows, len(ArrayDataSlot))
            shapes = self._vectors(group, ArrayDataSlot.SHAPE, rows, DIMENSION_V1.itemsize)
            if shapes is None or group.has(ArrayDataSlot.SHAPE_V2) != self.has_shape_v2:
                self.whole[rows] = False
            self._read_shapes(group, rows)
            self._read_names(group, rows)
            self._read_manifests(group, rows)

    def finish(self) -> NodeBlocks:
        tables, names = self.tables.joined(), self.names.joined()
        parts = _all_of([tables, self.vectors.joined()])
        starts = np.full(len(self.whole), _NO_PLACE, np.intp)
        ends = np.zeros(len(self.whole), np.intp)
        np.minimum.at(starts, parts.rows, parts.starts)
        np.maximum.at(ends, parts.rows, parts.ends)
        self.whole[_overlapping(starts, ends)] = False
        inside = (starts[names.rows] <= names.starts) & (names.ends <= ends[names.rows])
        outer, fields = names.where(~inside), _joined(self.name_fields, np.intp)[~inside]
        # Copying changes these words: of all parts, only the table that has them may.
        cover = _cover(_all_of([parts, names.where(inside)]), len(self.buffer))
        for words, rows in ((tables.starts, tables.rows), (fields, outer.rows)):
            self.whole[rows[cover[words >> 2] != 1]] = False
        return NodeBlocks(
            buffer=self.buffer,
            starts=starts,
            ends=ends,
            whole=self.whole,
            vtables=list(self.vtables),
            tables=tables.starts,
            table_rows=tables.rows,
            table_vtables=_joined(self.table_vtables, np.intp),
            names=outer.starts,
            name_fields=fields,
            name_rows=outer.rows,
            manifests=_joined(self.manifests, ID12),
            manifest_rows=_joined(self.manifest_rows, np.intp),
        )

    def _data_of(self, kind: NodeType) -> Iterator[tuple[TableGroup, Positions]]:
        rows = np.flatnonzero(self.types == kind)
        for group in linked_groups(self.buffer, self.data[rows]):
            yield group, rows[group.rows]

    def _read_shapes(self, group: TableGroup, rows: Positions) -> None:
        for inner, owners in self._inner(group, ArrayDataSlot.SHAPE_V2, rows):
            self._add_tables(inner, owners, 2)
            # Aligned, or refused.
            inner.scalars(0, "<u8")

    def _read_names(self, group: TableGroup, rows: Positions) -> None:
        for inner, owners in self._inner(group, ArrayDataSlot.DIMENSION_NAMES, rows):
            self._add_tables(inner, owners, 1)
            fields = inner.offsets(0)
            if fields is not None:
                self.name_fields.append(fields)
                self._vectors(inner, 0, owners, 1, _NUL, self.names)

    def _read_manifests(self, group: TableGroup, rows: Positions) -> None:
        if not group.has(ArrayDataSlot.MANIFESTS):
            raise self.buffer.error("an array lacks its manifests")
        for inner, owners in self._inner(group, ArrayDataSlot.MANIFESTS, rows):
            self._add_tables(inner, owners, 2)
            self._needed(inner, 1, owners, INDEX_RANGE.itemsize)
            ids = inner.structs(0, ID12)
            if ids is None:
                raise self.buffer.error("a manifest of an array lacks its id")
            self.manifests.append(ids)
            self.manifest_rows.append(owners)

    def _inner(
        self, group: TableGroup, slot: int, rows: Positions
    ) -> Iterator[tuple[TableGroup, Positions]]:
        """The tables of each table's vector, and the node of each."""
        vectors = self._vectors(group, slot, rows, OFFSET_SIZE)
        if vectors is None:
            return
        owners = np.repeat(rows, vectors[1])
        for inner in nested_groups(self.buffer, *vectors):
            yield inner, owners[inner.rows]

    def _needed(
        self, group: TableGroup, slot: int, rows: Positions, size: int, after: int = 0
    ) -> Vectors:
        vectors = self._vectors(group, slot, rows, size, after)
        if vectors is None:
            raise self.buffer.error(f"a part of a node lacks its slot {slot}")
        return vectors

    def _vectors(
        self,
        group: TableGroup,
        slot: int,
        rows: Positions,
        size: int,
        after: int = 0,
        parts: _Parts | None = None,
    ) -> Vectors | None:
        """Vectors of a field, and as many octets after each that belong to it."""
        vectors = group.vectors(slot, size)
        if vectors is not None:
            starts, counts = vectors
            self.buffer.spend(int(counts.sum()) * size)
            ends = np.minimum(starts + counts * size + after, len(self.buffer))
            (parts or self.vectors).add(starts - OFFSET_SIZE, ends, rows)
        return vectors

    def _add_tables(self, group: TableGroup, rows: Positions, slots: int) -> None:
        """Tables of which so many slots are known: another one might lead out of the block."""
        vtable = _vtable(group.layout, slots)
        number = self.vtables.setdefault(vtable, len(self.vtables))
        self.tables.add(group.at, group.at + group.layout.table_size, rows)
        self.table_vtables.append(np.full(len(rows), number, np.intp))


@dataclass(frozen=True, slots=True)
class _Places:
    starts: Positions
    ends: Positions
    rows: Positions

    def where(self, mask: Mask) -> _Places:
        return _Places(self.starts[mask], self.ends[mask], self.rows[mask])


class _Parts:
    """Places of parts, gathered piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[_Places] = []

    def add(self, starts: Positions, ends: Positions, rows: Positions) -> None:
        self._pieces.append(_Places(starts, ends, rows))

    def joined(self) -> _Places:
        return _all_of(self._pieces)


def _all_of(pieces: Sequence[_Places]) -> _Places:
    return _Places(
        _joined([piece.starts for piece in pieces], np.intp),
        _joined([piece.ends for piece in pieces], np.intp),
        _joined([piece.rows for piece in pieces], np.intp),
    )


def _numbers(group: TableGroup) -> Positions:
    rows = group.rows
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def _vtable(layout: Layout, slots: int) -> bytes:
    fields = layout.fields[:slots]
    return struct.pack(f"<{2 + len(fields)}H", 4 + 2 * len(fields), layout.table_size, *fields)


def _joined(pieces: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *pieces])


def _overlapping(starts: Positions, ends: Positions) -> Positions:
    """Rows whose place is shared with another row's."""
    order = np.argsort(starts, kind="stable")
    low, reached = starts[order], np.maximum.accumulate(ends[order])
    into_next = ends[order][:-1] > low[1:]
    after_start = low[1:] < reached[:-1]
    return np.concatenate([order[:-1][into_next], order[1:][after_start]])


def _cover(parts: _Places, size: int) -> npt.NDArray[np.int32]:
    """How many parts each word of the buffer is in."""
    cover = np.zeros(-(-size // OFFSET_SIZE) + 1, np.int32)
    # With a number of another type it is twenty times slower.
    np.add.at(cover, parts.starts >> 2, np.int32(1))
    np.add.at(cover, (parts.ends + OFFSET_SIZE - 1) >> 2, np.int32(-1))
    return np.cumsum(cover, out=cover)


def _check_paths(buffer: FlatBuffer, at: Positions) -> None:
    paths = text_column(buffer, at).cast(pa.large_string())
    if pc.any(pc.match_substring_regex(paths, _NOT_CANONICAL)).as_py():
        raise buffer.error("a node has a path that would have to be resolved")
