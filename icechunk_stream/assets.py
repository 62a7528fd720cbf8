"""Where ids meet bytes: objects fetched, decoded, checked against their names, and cached."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icechunk_stream.cache import ByteCache
from icechunk_stream.errors import ErrorKind, FormatError, RepositoryNotFoundError
from icechunk_stream.format.manifest import Manifest, decode_manifest
from icechunk_stream.format.repo_info import RepoInfo, decode_repo_info
from icechunk_stream.format.snapshot import ManifestFile, Snapshot, decode_snapshot
from icechunk_stream.format.transaction_log import TransactionLog, decode_transaction_log
from icechunk_stream.storage import Fetched, Missing, NotModified, Span, Storage, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from icechunk_stream.config import CachingConfig
    from icechunk_stream.format.chunk_refs import NativeChunk
    from icechunk_stream.format.ids import ManifestId, NodeId, SnapshotId
    from icechunk_stream.format.ref_tables import RefTable
    from icechunk_stream.storage import BytesLike

REPO_KEY = "repo"
CONFIG_KEY = "config.yaml"

# The reference counts nodes, references and changes; these make bytes of them, as they take here.
_NODE_BYTES = 500
_REF_BYTES = 96
_CHANGE_BYTES = 32
# Objects of the last commits, which the next one reads again, and their references as columns.
_WRITTEN_BYTES = 64 * 2**20
_TABLE_BYTES = 64 * 2**20
# What the columns of a table take besides their rows.
_COLUMNS_BYTES = 2_000


def snapshot_key(id: SnapshotId) -> str:
    return f"snapshots/{id}"


def manifest_key(id: ManifestId) -> str:
    return f"manifests/{id}"


def transaction_log_key(id: SnapshotId) -> str:
    return f"transactions/{id}"


def chunk_key(chunk: NativeChunk) -> str:
    return f"chunks/{chunk.id}"


def backup_key(name: str) -> str:
    return f"overwritten/{name}"


@dataclass(frozen=True, slots=True, eq=False)
class HeldRepo:
    """A version of the ``repo`` object, and what it says."""

    version: Version
    info: RepoInfo


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Bytes that each kind of object may hold in memory."""

    snapshots: int
    manifests: int
    transaction_logs: int
    chunks: int

    @classmethod
    def of(cls, caching: CachingConfig) -> CacheLimits:
        return cls(
            snapshots=(caching.num_snapshot_nodes or 0) * _NODE_BYTES,
            manifests=(caching.num_chunk_refs or 0) * _REF_BYTES,
            transaction_logs=(caching.num_transaction_changes or 0) * _CHANGE_BYTES,
            chunks=caching.num_bytes_chunks or 0,
        )


class Assets:
    """Immutable objects of one repository by id, and its ``repo`` object."""

    def __init__(self, storage: Storage, limits: CacheLimits) -> None:
        self.storage = storage
        self.limits = limits
        self._snapshots: ByteCache[Snapshot] = ByteCache(
            limits.snapshots, lambda snapshot: snapshot.nbytes, keeps_newest=True
        )
        self._manifests: ByteCache[Manifest] = ByteCache(
            limits.manifests, lambda manifest: manifest.nbytes, keeps_newest=True
        )
        self._logs: ByteCache[TransactionLog] = ByteCache(
            limits.transaction_logs, lambda log: log.nbytes
        )
        self._chunks: ByteCache[BytesLike] = ByteCache(limits.chunks, len)
        self._written: ByteCache[bytes] = ByteCache(_WRITTEN_BYTES, len)
        self._tables: ByteCache[Mapping[NodeId, RefTable]] = ByteCache(_TABLE_BYTES, _size_of)
        self._repo: HeldRepo | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (Assets, (self.storage, self.limits))

    def snapshot(self, id: SnapshotId) -> Snapshot:
        return self._snapshots.get(id, lambda: self._fetch_snapshot(id))

    def manifest(self, file: ManifestFile) -> Manifest:
        return self._manifests.get(file.id, lambda: self.fetch_manifest(file.id))

    def cached_manifest(self, id: ManifestId) -> Manifest | None:
        """The manifest if no storage has to be asked for it."""
        return self._manifests.peek(id)

    def transaction_log(self, id: SnapshotId) -> TransactionLog:
        return self._logs.get(id, lambda: self._fetch_transaction_log(id))

    def repo_info(self) -> RepoInfo:
        """What the newest ``repo`` object says."""
        return self.repo().info

    def repo(self) -> HeldRepo:
        """The newest ``repo`` object: one request, and no body where it did not change."""
        known = self._repo
        match self.storage.read(REPO_KEY, None if known is None else known.version):
            case NotModified():
                assert known is not None
                return known
            case Fetched(data, version):
                return self.hold_repo(version, decode_repo_info(data, REPO_KEY))
            case Missing():
                raise RepositoryNotFoundError(f"{self.storage!r} has lost its {REPO_KEY} object")

    @property
    def last_repo(self) -> HeldRepo | None:
        """The ``repo`` object as it was read or written last, without asking for it."""
        return self._repo

    def hold_repo(self, version: Version, info: RepoInfo) -> HeldRepo:
        """Remember the ``repo`` object that was just read or written."""
        self._repo = HeldRepo(version, info)
        return self._repo

    def keep_written(self, key: str, data: bytes) -> None:
        """Remember an immutable object that was just written: it is likely read next."""
        self._written.get(key, lambda: data)

    def keep_tables(self, id: ManifestId, tables: Mapping[NodeId, RefTable]) -> None:
        """Remember the references of a manifest that was just written: they may merge."""
        self._tables.get(id, lambda: tables)

    def held_table(self, id: ManifestId, node: NodeId) -> RefTable | None:
        """An array's references in a manifest, if they are in memory as they were written."""
        tables = self._tables.peek(id)
        return None if tables is None else tables.get(node)

    def forget_snapshot(self, id: SnapshotId) -> None:
        """Let go of what a newer snapshot has taken the place of; it can be fetched again."""
        self._snapshots.drop(id)
        for key in (snapshot_key(id), transaction_log_key(id)):
            self._written.drop(key)

    def forget_manifests(self, ids: Iterable[ManifestId]) -> None:
        """Let go of manifests that newer ones have taken the place of."""
        for id in ids:
            self._manifests.drop(id)
            self._tables.drop(id)
            self._written.drop(manifest_key(id))

    def backup(self, name: str) -> RepoInfo | None:
        """An earlier ``repo`` object, if it still exists."""
        match self.storage.read(backup_key(name)):
            case Fetched(data, _):
                return decode_repo_info(data, backup_key(name))
            case _:
                return None

    def chunk(self, chunk: NativeChunk, start: int, end: int) -> BytesLike:
        """Bytes ``start`` to ``end`` of a chunk, which must be there in full."""
        if not self.limits.chunks:
            return self._fetch_chunk(chunk, start, end)
        whole = self._chunks.get(chunk, lambda: self._fetch_chunk(chunk, 0, chunk.length))
        return whole[start:end]

    async def chunk_async(self, chunk: NativeChunk, start: int, end: int) -> BytesLike:
        """``chunk`` for an event loop, which goes on meanwhile."""
        if self.limits.chunks:
            loop, executor = asyncio.get_running_loop(), self.storage.executor
            return await loop.run_in_executor(executor, self.chunk, chunk, start, end)
        return _complete(await self.storage.get_async(*_part(chunk, start, end)), chunk, start, end)

    def cached_chunk(self, chunk: NativeChunk) -> BytesLike | None:
        return self._chunks.peek(chunk) if self.limits.chunks else None

    def fetch_manifest(self, id: ManifestId) -> Manifest:
        key = manifest_key(id)
        manifest = decode_manifest(self._bytes(key), key)
        _check_name(key, manifest.id, id)
        return manifest

    def _fetch_snapshot(self, id: SnapshotId) -> Snapshot:
        key = snapshot_key(id)
        snapshot = decode_snapshot(self._bytes(key), key)
        _check_name(key, snapshot.id, id)
        return snapshot

    def _fetch_transaction_log(self, id: SnapshotId) -> TransactionLog:
        key = transaction_log_key(id)
        log = decode_transaction_log(self._bytes(key), key)
        _check_name(key, log.id, id)
        return log

    def _bytes(self, key: str) -> bytes:
        written = self._written.peek(key)
        return self.storage.get(key) if written is None else written

    def _fetch_chunk(self, chunk: NativeChunk, start: int, end: int) -> BytesLike:
        return _complete(self.storage.get_buffer(*_part(chunk, start, end)), chunk, start, end)


def _size_of(tables: Mapping[NodeId, RefTable]) -> int:
    return sum(table.nbytes + _COLUMNS_BYTES for table in tables.values())


def _part(chunk: NativeChunk, start: int, end: int) -> tuple[str, Span]:
    return chunk_key(chunk), Span(chunk.offset + start, chunk.offset + end)


def _complete(data: BytesLike, chunk: NativeChunk, start: int, end: int) -> BytesLike:
    if len(data) == end - start:
        return data
    message = f"{len(data)} of the {end - start} bytes from {chunk.offset + start} are there"
    raise FormatError(message, ErrorKind.INVALID_OBJECT_SIZE, key=chunk_key(chunk))


def _check_name(key: str, found: object, asked: object) -> None:
    if found != asked:
        raise FormatError(f"the object says that it is {found}", key=key)
