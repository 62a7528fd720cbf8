"""A session: one snapshot of a repository, opened for reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from icechunk_stream.format.chunk_refs import InlineChunk, NativeChunk, RefKind, VirtualChunk
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.in_thread import in_thread, iterate_in_thread
from icechunk_stream.info import ChunkType, SessionMode
from icechunk_stream.reading import SnapshotReader
from icechunk_stream.store import IcechunkStore
from icechunk_stream.store.keys import normal_path
from icechunk_stream.store.listing import resolved
from icechunk_stream.virtual.containers import Containers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from icechunk_stream.assets import Assets
    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.credentials import Authorization
    from icechunk_stream.format.chunk_refs import ChunkPayload
    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.format.nodes import Node

_MAX_INDEX = 2**32 - 1


class Session:
    """A snapshot of a repository; ``store`` is what zarr and xarray open."""

    def __init__(
        self,
        assets: Assets,
        config: RepositoryConfig,
        authorization: Authorization,
        snapshot_id: SnapshotId,
    ) -> None:
        self._assets = assets
        self._config = config
        self._authorization = authorization
        self._snapshot_id = snapshot_id
        self._reader: SnapshotReader | None = None

    def __reduce__(self) -> tuple[object, ...]:
        state = (self._assets, self._config, self._authorization, self._snapshot_id)
        return (Session, state)

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, Session):
            return NotImplemented
        same_place = self._assets.storage == value._assets.storage
        return same_place and self._snapshot_id == value._snapshot_id

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Session({self._assets.storage!r}, read-only, snapshot {self._snapshot_id})"

    @property
    def reader(self) -> SnapshotReader:
        """The snapshot's nodes and references; opened when first asked for."""
        if self._reader is None:
            containers = (self._config.virtual_chunk_containers or {}).values()
            snapshot = self._assets.snapshot(self._snapshot_id)
            holders = Containers(containers, self._authorization)
            self._reader = SnapshotReader(self._assets, snapshot, holders)
        return self._reader

    @property
    def store(self) -> IcechunkStore:
        """The zarr store of this session."""
        return IcechunkStore(self)

    @property
    def read_only(self) -> bool:
        return True

    @property
    def mode(self) -> SessionMode:
        return SessionMode.readonly

    @property
    def snapshot_id(self) -> str:
        """The snapshot that the session reads."""
        return str(self._snapshot_id)

    @property
    def branch(self) -> str | None:
        """The branch that a writable session commits to; None for a read-only one."""
        return None

    @property
    def has_uncommitted_changes(self) -> bool:
        return False

    @property
    def config(self) -> RepositoryConfig:
        return self._config

    def get_node_id(self, path: str) -> str:
        """The id that a group or array keeps for its whole life."""
        node = self._node(path)
        if node is None:
            raise NodeNotFoundError(f"no node is at {path}")
        return str(node.id)

    def chunk_type(self, array_path: str, chunk_coordinates: Sequence[int]) -> ChunkType:
        """Where the bytes of a chunk are; ``uninitialized`` where it was never written."""
        if any(not 0 <= at <= _MAX_INDEX for at in chunk_coordinates):
            message = f"invalid chunk coordinates {list(chunk_coordinates)}: they count from 0 up"
            raise InvalidInputError(message, ErrorKind.INVALID_CHUNK_INDEX)
        node = self._array(array_path)
        return _chunk_type(self.reader.payload(node, tuple(chunk_coordinates)))

    async def chunk_coordinates(
        self, array_path: str, batch_size: int = 1000
    ) -> AsyncIterator[tuple[int, ...]]:
        """Grid coordinates of every chunk of an array that was written."""
        if batch_size < 1:
            message = f"invalid batch size {batch_size}: at least 1 is needed"
            raise InvalidInputError(message, ErrorKind.INVALID_CHUNK_INDEX)
        node = self._array(array_path)
        async for batch in iterate_in_thread(_coordinates(self.reader, node, batch_size)):
            for index in batch:
                yield tuple(index)

    def all_virtual_chunk_locations(self) -> list[str]:
        """Absolute locations of all virtual chunks."""
        locations: list[str] = []
        for node in self.reader.snapshot.nodes:
            if isinstance(node, ArrayNode):
                locations.extend(_virtual_locations(self.reader, node))
        return locations

    get_node_id_async = in_thread(get_node_id)
    chunk_type_async = in_thread(chunk_type)
    all_virtual_chunk_locations_async = in_thread(all_virtual_chunk_locations)

    def _node(self, path: str) -> Node | None:
        return self.reader.node(_absolute(path))

    def _array(self, path: str) -> ArrayNode:
        return self.reader.array(_absolute(path))


def _absolute(path: str) -> str:
    normal = normal_path(path) if path.startswith("/") else None
    if normal is None:
        message = f"invalid path {path!r}: write it from the root, as in /group/array, without .."
        raise InvalidInputError(message, ErrorKind.INVALID_PATH)
    return normal


def _chunk_type(payload: ChunkPayload | None) -> ChunkType:
    match payload:
        case None:
            return ChunkType.uninitialized
        case InlineChunk():
            return ChunkType.inline
        case NativeChunk():
            return ChunkType.native
        case VirtualChunk():
            return ChunkType.virtual


def _coordinates(
    reader: SnapshotReader, node: ArrayNode, batch_size: int
) -> Iterator[list[list[int]]]:
    for columns in reader.all_columns(node):
        for first in range(0, len(columns), batch_size):
            batch: list[list[int]] = columns.indices(slice(first, first + batch_size)).tolist()
            yield batch


def _virtual_locations(reader: SnapshotReader, node: ArrayNode) -> Iterator[str]:
    for columns in reader.all_columns(node):
        rows = np.flatnonzero(columns.kinds == RefKind.VIRTUAL)
        if len(rows):
            yield from resolved(columns.locations(rows), reader.containers.resolve).tolist()
