"""One snapshot opened for reading: its nodes, the references of its chunks, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from icechunk_stream.assets import snapshot_key
from icechunk_stream.errors import (
    ErrorKind,
    FormatError,
    InvalidInputError,
    NodeNotFoundError,
)
from icechunk_stream.format.chunk_refs import InlineChunk, NativeChunk, VirtualChunk
from icechunk_stream.format.nodes import ArrayNode, Node
from icechunk_stream.manifests.lookup import check_box, columns_of
from icechunk_stream.virtual.fetch import fetch_virtual

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from icechunk_stream.assets import Assets
    from icechunk_stream.format.chunk_refs import ChunkPayload, RefColumns, RefKind
    from icechunk_stream.format.manifest import Manifest
    from icechunk_stream.format.ref_view import RefView
    from icechunk_stream.format.snapshot import ManifestFile, Snapshot
    from icechunk_stream.storage import BytesLike
    from icechunk_stream.virtual.containers import Containers


# Release 1.x makes extents overlap, a few at a time; more of them are there to be fetched in vain.
_MOST_COVERING = 64


class NodesByPath(Protocol):
    """Groups and arrays in the order of their paths' bytes."""

    def __iter__(self) -> Iterator[Node]: ...

    def get(self, path: str) -> Node | None: ...

    def below(self, path: str) -> Iterable[Node]:
        """The node at the path, if any, and all nodes under it."""

    def children(self, path: str) -> Iterable[Node]:
        """The nodes directly below the path: a folder that only a deeper node implies is none."""


def children(nodes: NodesByPath, path: str) -> list[Node]:
    """The nodes directly below a path."""
    return list(nodes.children(path))


@dataclass(frozen=True, slots=True)
class Far:
    """Only the storage has the answer."""


class SnapshotReader:
    """Everything that a snapshot holds, by path and chunk index. Safe to share between threads."""

    def __init__(self, assets: Assets, snapshot: Snapshot, containers: Containers) -> None:
        self.assets = assets
        self.snapshot = snapshot
        self.containers = containers
        self._checked: set[tuple[bytes, int]] = set()

    @property
    def nodes(self) -> NodesByPath:
        return self.snapshot.nodes

    def node(self, path: str) -> Node | None:
        return self.nodes.get(path)

    def array(self, path: str) -> ArrayNode:
        """The array at a path, or the error that says what is there instead."""
        node = self.node(path)
        if node is None:
            raise NodeNotFoundError(f"no array is at {path}")
        if not isinstance(node, ArrayNode):
            raise InvalidInputError(f"{path} is a group, not an array", ErrorKind.NOT_AN_ARRAY)
        return node

    def payload(self, node: ArrayNode, index: Sequence[int]) -> ChunkPayload | None:
        """What a chunk is, or None where it was never written."""
        for number in self._covering(node, index):
            found = _find(self.columns(node, number), index)
            if found is not None:
                return found
        return None

    def kind(self, node: ArrayNode, index: Sequence[int]) -> RefKind | None:
        """Where the bytes of a chunk are; None where it was never written."""
        for number in self._covering(node, index):
            columns = self.columns(node, number)
            row = columns.find(index)
            if row is not None:
                return columns.kind(row)
        return None

    def near_payload(self, node: ArrayNode, index: Sequence[int]) -> ChunkPayload | Far | None:
        """``payload`` where memory has the answer."""
        for number in self._covering(node, index):
            columns = self._near_columns(node, number)
            if columns is None:
                return Far()
            found = _find(columns, index)
            if found is not None:
                return found
        return None

    def all_columns(self, node: ArrayNode) -> Iterator[RefView]:
        """References of an array, manifest by manifest."""
        return (self.columns(node, number) for number in range(len(node.manifests)))

    def columns(self, node: ArrayNode, number: int) -> RefColumns:
        """References of an array in one of its manifests."""
        near = self._near_columns(node, number)
        if near is not None:
            return near
        return self._of(self.assets.manifest(self.file(node, number)), node, number)

    def manifest_counts(
        self, node: ArrayNode, numbers: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.int64]:
        """How many references manifests of an array have, those of other arrays included."""
        counts = self.snapshot.manifest_files.counts(node.manifests.ids[numbers])
        for number in numbers[counts < 0].tolist():
            # It is not listed: the error says so.
            self.file(node, number)
        return counts

    def bytes(self, payload: ChunkPayload, start: int, end: int) -> BytesLike:
        """Bytes ``start`` to ``end`` of a chunk."""
        match payload:
            case InlineChunk(data):
                return data[start:end]
            case NativeChunk():
                return self.assets.chunk(payload, start, end)
            case VirtualChunk():
                return fetch_virtual(self.containers, payload, start, end)

    def _covering(self, node: ArrayNode, index: Sequence[int]) -> list[int]:
        if len(index) != len(node.shape) or not len(node.manifests):
            return []
        numbers = node.manifests.covering(index)
        if len(numbers) > _MOST_COVERING:
            message = f"{len(numbers)} manifests of {node.path} cover the chunk {tuple(index)}"
            raise FormatError(message, key=snapshot_key(self.snapshot.id))
        return numbers

    def _near_columns(self, node: ArrayNode, number: int) -> RefColumns | None:
        """References that were found to be right before, if memory still has them."""
        if (node.id.raw, number) not in self._checked:
            return None
        known = self.assets.cached_manifest(node.manifests.id(number))
        return None if known is None else columns_of(known, node)

    def file(self, node: ArrayNode, number: int) -> ManifestFile:
        """What the snapshot says of one of an array's manifests."""
        id = node.manifests.id(number)
        file = self.snapshot.manifest_files.get(id)
        if file is None:
            message = f"the array {node.path} uses the manifest {id}, which is not in its list"
            raise FormatError(
                message,
                ErrorKind.MANIFEST_INFO_NOT_FOUND,
                key=snapshot_key(self.snapshot.id),
            )
        return file

    def _of(self, manifest: Manifest, node: ArrayNode, number: int) -> RefColumns:
        columns = columns_of(manifest, node)
        checked = (node.id.raw, number)
        if checked not in self._checked:
            check_box(columns, node, number)
            self._checked.add(checked)
        return columns


def _find(columns: RefColumns, index: Sequence[int]) -> ChunkPayload | None:
    row = columns.find(index)
    return None if row is None else columns.payload(row)
