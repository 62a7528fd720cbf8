"""The nodes of a decoded snapshot as columns; a node becomes an object when it is asked for."""

from __future__ import annotations

from bisect import bisect_left
from operator import methodcaller
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.format.columns import table_groups
from icechunk_stream.format.ids import ID8
from icechunk_stream.format.nodes import NodeSlot, decode_node
from icechunk_stream.format.texts import byte_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from icechunk_stream.format.columns import Positions
    from icechunk_stream.format.flat import FlatBuffer
    from icechunk_stream.format.ids import NodeId
    from icechunk_stream.format.nodes import Node

# Decoded nodes that are remembered: those that are asked for again and again are few.
_MOST_DECODED = 4096
_AS_BYTES = methodcaller("as_py")


class Nodes:
    """Nodes by path: rows of columns that point into the snapshot's buffer."""

    __slots__ = ("_counted", "_decoded", "_found", "at", "buffer", "ids", "paths", "vector_at")

    def __init__(
        self,
        buffer: FlatBuffer,
        vector_at: int,
        at: Positions,
        ids: npt.NDArray[np.void],
        paths: pa.Array,
    ) -> None:
        self.buffer = buffer
        self.vector_at = vector_at
        self.at = at
        self.ids = ids
        self.paths = paths
        self._counted = np.zeros(len(at), np.bool_)
        self._decoded: dict[int, Node] = {}
        self._found: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.at)

    def __iter__(self) -> Iterator[Node]:
        """All nodes in the order of their paths' bytes."""
        return (self.node(row) for row in range(len(self)))

    def get(self, path: str) -> Node | None:
        row = self._found.get(path)
        if row is None:
            row = self.row(path)
            if row is None:
                return None
            if len(self._found) >= _MOST_DECODED:
                self._found = {}
            self._found[path] = row
        return self.node(row)

    def below(self, path: str) -> Iterator[Node]:
        """The node at the path, if any, and all nodes under it."""
        node = self.get(path)
        if node is not None:
            yield node
        for row in self._below(path):
            yield self.node(row)

    def children(self, path: str) -> Iterator[Node]:
        """The nodes directly below the path; no other one is decoded."""
        rows = self._below(path)
        paths = self.paths[rows.start : rows.stop].cast(pa.large_binary())
        depth = 1 if path == "/" else path.count("/") + 1
        direct = pc.count_substring(paths, "/").to_numpy() == depth
        return (self.node(rows.start + int(row)) for row in np.flatnonzero(direct))

    def row(self, path: str) -> int | None:
        """The row of a path."""
        wanted = _sought(path)
        row = self.place(wanted)
        found = row < len(self) and self.paths[row].as_py() == wanted
        return row if found else None

    def place(self, path: bytes) -> int:
        """The first row whose path is not before this one."""
        return bisect_left(self.paths, path, key=_AS_BYTES)

    def rows_of(self, ids: Iterable[NodeId]) -> dict[NodeId, int]:
        """The rows of those ids that are here."""
        wanted = list(ids)
        if not (wanted and len(self)):
            return {}
        keys = self.ids.view("S8")
        order = np.argsort(keys, kind="stable")
        sought = np.array([id.raw for id in wanted], "S8")
        rows = order[np.searchsorted(keys, sought, sorter=order).clip(max=len(self) - 1)]
        found = keys[rows] == sought
        return {id: int(row) for id, row, here in zip(wanted, rows, found, strict=True) if here}

    def node(self, row: int) -> Node:
        node = self._decoded.get(row)
        if node is None:
            node = self._decode(row)
            if len(self._decoded) >= _MOST_DECODED:
                self._decoded = {}
            self._decoded[row] = node
        return node

    def _decode(self, row: int) -> Node:
        """Decode a node; what it visits has counted already where it was only forgotten."""
        again = bool(self._counted[row])
        buffer = self.buffer.apart(again=again)
        try:
            node = decode_node(buffer.table(int(self.at[row])))
        finally:
            if not again:
                self.buffer.spent = buffer.spent
        self._counted[row] = True
        return node

    def _below(self, path: str) -> range:
        """Rows under a path, without its own."""
        prefix = _sought(path if path == "/" else path + "/")
        first = self.place(prefix + b"\0") if path == "/" else self.place(prefix)
        return range(first, self.place(prefix[:-1] + b"0"))


def read_nodes(buffer: FlatBuffer, vector_at: int) -> Nodes:
    """The vector of nodes, whose paths have to be in order."""
    count = buffer.vector(vector_at, 4)[1]
    at, paths_at = np.zeros((2, count), np.intp)
    ids = np.zeros(count, ID8)
    for group in table_groups(buffer, vector_at):
        vectors, found = group.vectors(NodeSlot.PATH, 1), group.structs(NodeSlot.ID, ID8)
        if vectors is None or found is None:
            raise buffer.error("a node lacks its path or its id")
        at[group.rows], ids[group.rows] = group.at, found
        paths_at[group.rows] = vectors[0] - 4
        buffer.spend(int(vectors[1].sum()))
    paths = byte_column(buffer, paths_at)
    if not _is_ascending(paths):
        raise buffer.error("its nodes are not in ascending order of their paths, or repeat")
    return Nodes(buffer, vector_at, at, ids, paths)


def _is_ascending(paths: pa.Array) -> bool:
    """Whether every path is after the one before it, by its bytes."""
    if len(paths) < 2:  # noqa: PLR2004
        return True
    return cast("bool", pc.all(pc.less(paths[:-1], paths[1:])).as_py())


def _sought(path: str) -> bytes:
    """Bytes to look for; those of a path with lone surrogates are the bytes of no node."""
    return path.encode("utf-8", "surrogatepass")
