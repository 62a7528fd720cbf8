"""Nodes of a snapshot: groups, and arrays with their grid and their manifests."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.format.columns import table_groups
from icechunk_stream.format.ids import ID12, NODE_ID_SIZE, ManifestId, NodeId
from icechunk_stream.format.json_nesting import MAX_JSON_SIZE, check_json_nesting
from icechunk_stream.format.paths import is_canonical
from icechunk_stream.format.refs_decode import MAX_RANK

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.format.flat import FlatBuffer, Table

MAX_NUM_CHUNKS = 2**32 - 1
# Numbers of boxes that are kept as a list, too, which is quicker to search.
_MOST_LISTED = 2**16
DIMENSION_V1 = np.dtype([("array_length", "<u8"), ("chunk_length", "<u8")])
INDEX_RANGE = np.dtype([("from", "<u4"), ("to", "<u4")])


class NodeSlot(IntEnum):
    """Slots of ``NodeSnapshot``."""

    ID = 0
    PATH = 1
    USER_DATA = 2
    DATA_TYPE = 3
    DATA = 4


class ArrayDataSlot(IntEnum):
    """Slots of ``ArrayNodeData``."""

    SHAPE = 0
    DIMENSION_NAMES = 1
    MANIFESTS = 2
    SHAPE_V2 = 3


class NodeType(IntEnum):
    """Tags of the union ``NodeData``."""

    ARRAY = 1
    GROUP = 2


@dataclass(frozen=True, slots=True)
class Dimension:
    """Length of an array along an axis, and into how many chunks it is cut."""

    array_length: int
    num_chunks: int


@dataclass(frozen=True, slots=True)
class _Parted:
    """Boxes that lie apart along one axis, in its order: one of them at most holds an index."""

    axis: int
    starts: list[int]
    numbers: list[int]
    boxes: list[list[list[int]]]

    @classmethod
    def along_some_axis(cls, extents: npt.NDArray[np.uint32]) -> _Parted | None:
        for axis in range(extents.shape[1]):
            order = np.argsort(extents[:, axis, 0], kind="stable")
            starts, ends = extents[order, axis].T
            if (ends[:-1] <= starts[1:]).all():
                return cls(axis, starts.tolist(), order.tolist(), extents[order].tolist())
        return None

    def covering(self, index: Sequence[int]) -> list[int]:
        at = bisect_right(self.starts, index[self.axis]) - 1
        return [self.numbers[at]] if at >= 0 and _is_inside(index, self.boxes[at]) else []


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRefs:
    """The manifests of an array, and the box of chunk indices that each one covers.

    ``extents`` has the axes (manifest, dimension, from or to). Boxes overlap only where release
    1.x wrote under another splitting than before; a chunk is in one manifest also there.
    """

    ids: npt.NDArray[np.void]
    extents: npt.NDArray[np.uint32]
    _parted: _Parted | None = field(default=None, init=False, repr=False)
    _is_known: bool = field(default=False, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    def id(self, number: int) -> ManifestId:
        return ManifestId(self.ids[number].tobytes())

    def covering(self, index: Sequence[int]) -> list[int]:
        """Numbers of the manifests whose boxes hold the index."""
        if len(self.ids) == 1:
            return [0] if _is_inside(index, self.extents[0].tolist()) else []
        if not self._is_known and self.extents.size <= _MOST_LISTED:
            object.__setattr__(self, "_parted", _Parted.along_some_axis(self.extents))
            object.__setattr__(self, "_is_known", True)
        if self._parted is not None:
            return self._parted.covering(index)
        at = np.asarray(index, np.int64)
        hits = ((self.extents[:, :, 0] <= at) & (at < self.extents[:, :, 1])).all(axis=1)
        numbers: list[int] = np.flatnonzero(hits).tolist()
        return numbers


def _is_inside(index: Sequence[int], box: list[list[int]]) -> bool:
    return all(low <= at < high for at, (low, high) in zip(index, box, strict=True))


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A group; ``user_data`` is its zarr.json."""

    id: NodeId
    path: str
    user_data: bytes


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """An array; ``user_data`` is its zarr.json."""

    id: NodeId
    path: str
    user_data: bytes
    shape: tuple[Dimension, ...]
    dimension_names: tuple[str | None, ...] | None
    manifests: ManifestRefs = field(compare=False)

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along every axis."""
        return tuple(dimension.num_chunks for dimension in self.shape)

    def has_chunk(self, index: Sequence[int]) -> bool:
        """Whether the grid has a place for a chunk."""
        if len(index) != len(self.shape):
            return False
        return all(0 <= at < axis.num_chunks for at, axis in zip(index, self.shape, strict=True))


Node = GroupNode | ArrayNode


def decode_node(table: Table) -> Node:
    id = NodeId(table.need(table.struct(NodeSlot.ID, NODE_ID_SIZE), "id"))
    path = table.need(table.text(NodeSlot.PATH), "path")
    if not is_canonical(path):
        raise table.buffer.error(f"a node has the path {path!r}")
    user_data = table.need(table.blob(NodeSlot.USER_DATA, MAX_JSON_SIZE), "user_data")
    check_json_nesting(user_data, where=table.buffer.key)
    data = table.need(table.table(NodeSlot.DATA), "node_data")
    tag = table.scalar(NodeSlot.DATA_TYPE, "B")
    if tag == NodeType.GROUP:
        return GroupNode(id, path, user_data)
    if tag != NodeType.ARRAY:
        raise table.buffer.error(f"the node {path} has the unknown type {tag}")
    shape = _shape(data, path)
    if len(shape) > MAX_RANK:
        raise table.buffer.error(f"the array {path} has more than {MAX_RANK} dimensions")
    names = _dimension_names(data)
    return ArrayNode(id, path, user_data, shape, names, _manifests(data, path, len(shape)))


def _shape(data: Table, path: str) -> tuple[Dimension, ...]:
    if data.has(ArrayDataSlot.SHAPE_V2):
        return tuple(
            Dimension(dimension.scalar(0, "Q"), dimension.scalar(1, "I"))
            for dimension in islice(data.tables(ArrayDataSlot.SHAPE_V2), MAX_RANK + 1)
        )
    lengths = data.need(data.array(ArrayDataSlot.SHAPE, DIMENSION_V1), "shape")
    return tuple(
        Dimension(length, _num_chunks(data, path, length, chunk))
        for length, chunk in lengths[: MAX_RANK + 1].tolist()
    )


def _num_chunks(data: Table, path: str, length: int, chunk: int) -> int:
    if length == 0:
        return 0
    if chunk == 0:
        raise data.buffer.error(f"the array {path} has chunks of length 0")
    number: int = -(-length // chunk)
    if number > MAX_NUM_CHUNKS:
        raise data.buffer.error(f"the array {path} has {number} chunks along one dimension")
    return number


def _dimension_names(data: Table) -> tuple[str | None, ...] | None:
    if not data.has(ArrayDataSlot.DIMENSION_NAMES):
        return None
    return tuple(name.text(0) or None for name in data.tables(ArrayDataSlot.DIMENSION_NAMES))


def _manifests(data: Table, path: str, rank: int) -> ManifestRefs:
    at = data.need(data.target(ArrayDataSlot.MANIFESTS), "manifests")
    buffer = data.buffer
    count = buffer.vector(at, 4)[1]
    buffer.spend(count * rank * INDEX_RANGE.itemsize)
    ids = np.zeros(count, ID12)
    extents = np.zeros((count, rank, 2), np.uint32)
    for group in table_groups(buffer, at):
        found = group.structs(0, ID12)
        ranges = group.vectors(1, INDEX_RANGE.itemsize)
        if found is None or ranges is None:
            raise buffer.error(f"a manifest of {path} lacks its id or its extents")
        starts, counts = ranges
        if (counts != rank).any():
            raise buffer.error(f"extents of {path} have not its {rank} dimensions")
        ids[group.rows] = found
        words = starts >> 2
        for axis in range(rank):
            extents[group.rows, axis, 0] = buffer.words[words + 2 * axis]
            extents[group.rows, axis, 1] = buffer.words[words + 2 * axis + 1]
    _check_extents(buffer, path, extents)
    return ManifestRefs(ids, extents)


def _check_extents(buffer: FlatBuffer, path: str, extents: npt.NDArray[np.uint32]) -> None:
    if (extents[:, :, 0] >= extents[:, :, 1]).any():
        raise buffer.error(f"extents of {path} are empty or inverted")
