"""A repository of the reference whose chunk references are then written by our encoders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from icechunk_stream.format.chunk_refs import (
    ETag,
    InlineChunk,
    LastModified,
    NativeChunk,
    VirtualChunk,
)
from icechunk_stream.format.ids import ID12, ChunkId, ManifestId, NodeId
from icechunk_stream.format.manifest_encode import encode_manifest
from icechunk_stream.format.nodes import ArrayNode, ManifestRefs
from icechunk_stream.format.snapshot import ManifestFile, decode_snapshot
from icechunk_stream.format.snapshot_encode import SnapshotContents, encode_snapshot
from icechunk_stream.format.transaction_log import decode_transaction_log
from icechunk_stream.format.transaction_log_encode import LogContents, encode_transaction_log
from tests.compat.reencoding import re_encode
from tests.format.encodable import ref_table

if TYPE_CHECKING:
    from pathlib import Path

    from icechunk_stream.format.chunk_refs import ChunkPayload
    from icechunk_stream.format.nodes import Node

    Refs = dict[tuple[int, ...], ChunkPayload]

FILL = 255
GRIDS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "packed": ((6,), (2,)),
    "mixed": ((4, 4), (2, 2)),
    "virtual": ((8,), (2,)),
    "tagged": ((2,), (2,)),
    "stale": ((4,), (2,)),
    "point": ((), ()),
}
VALUES: dict[str, Any] = {
    "packed": [108, 109, 120, 121, 100, 101],
    "mixed": [[1, 2, 130, 131], [3, 4, 132, 133], [10, 11, 255, 255], [12, 13, 255, 255]],
    "virtual": [0, 1, 2, 3, 4, 5, 6, 7],
    "tagged": [8, 9],
    "point": 42,
}
CHUNK = ChunkId(b"chunk-object")
CHUNK_OBJECT = bytes(range(100, 140))
MANIFESTS = {
    ManifestId(b"one-manifest"): ("packed", "mixed", "virtual"),
    ManifestId(b"the-other---"): ("tagged", "stale", "point"),
}


@dataclass(frozen=True, slots=True)
class Handmade:
    """Where the repository is, what its virtual chunks need, and the chunks that it has."""

    location: Path
    prefix: str
    refs: dict[str, Refs]


def make(ic: Any, folder: Path, spec_version: int) -> Handmade:
    """The second commit's snapshot, manifests, log and, in spec v2, the tip are ours."""
    file = folder / "data" / "file.bin"
    file.parent.mkdir()
    file.write_bytes(bytes(range(64)))
    location, prefix = folder / "repository", f"file://{file.parent}/"
    tip = _create(ic, location, prefix, spec_version)
    refs = _references(f"{prefix}file.bin", file)
    (location / "chunks").mkdir(exist_ok=True)
    (location / "chunks" / str(CHUNK)).write_bytes(CHUNK_OBJECT)
    _write_commit(location, tip, refs, spec_version)
    re_encode(location)
    return Handmade(location, prefix, refs)


def _create(ic: Any, location: Path, prefix: str, spec_version: int) -> str:
    config = ic.RepositoryConfig.default()
    store = ic.local_filesystem_store(prefix.removeprefix("file://"))
    config.set_virtual_chunk_container(ic.VirtualChunkContainer(prefix, store))
    more = {"spec_version": spec_version} if hasattr(ic.Repository, "ops_log") else {}
    storage = ic.local_filesystem_storage(str(location))
    repository = ic.Repository.create(storage, config, **more)
    session = repository.writable_session("main")
    group = zarr.create_group(session.store)
    for name, (shape, chunks) in GRIDS.items():
        group.create_array(
            name, shape=shape, chunks=chunks, dtype="u1", compressors=None, fill_value=FILL
        )
    arrays = session.commit("arrays", metadata={"step": 1})
    session = repository.writable_session("main")
    zarr.open_group(session.store).attrs["step"] = 2
    tip = session.commit("references", metadata={"step": 2, "more": [1.5, None]})
    repository.create_branch("dev", arrays)
    repository.create_tag("v1", arrays)
    return str(tip)


def _references(url: str, file: Path) -> dict[str, Refs]:
    after = LastModified(int(file.stat().st_mtime) + 1)
    return {
        "packed": {
            (2,): NativeChunk(CHUNK, 0, 2),
            (0,): NativeChunk(CHUNK, 8, 2),
            (1,): NativeChunk(CHUNK, 20, 2),
        },
        "mixed": {
            (0, 0): InlineChunk(bytes([1, 2, 3, 4])),
            (0, 1): NativeChunk(CHUNK, 30, 4),
            (1, 0): VirtualChunk(url, 10, 4),
        },
        "virtual": {
            (0,): VirtualChunk(url, 0, 2),
            (1,): VirtualChunk(url, 2, 2, after),
            (2,): VirtualChunk(url, 4, 2),
            (3,): VirtualChunk(url, 6, 2, after),
        },
        # Of local files, 2.3.0 compares etags in a way that only this one passes.
        "tagged": {(0,): VirtualChunk(url, 8, 2, ETag("*"))},
        "stale": {
            (0,): VirtualChunk(url, 0, 2, LastModified(1)),
            (1,): VirtualChunk(url, 2, 2, ETag("another")),
        },
        "point": {(): InlineChunk(bytes([42]))},
    }


def _write_commit(location: Path, tip: str, refs: dict[str, Refs], spec_version: int) -> None:
    path, log_path = location / "snapshots" / tip, location / "transactions" / tip
    snapshot = SnapshotContents.of(decode_snapshot(path.read_bytes(), tip))
    nodes = {node.path.strip("/"): node for node in snapshot.nodes}
    ids = {name: nodes[name].id for name in refs}
    files = [_write_manifest(location, id, refs, ids, spec_version) for id in MANIFESTS]
    for name, found in refs.items():
        nodes[name] = _with_manifest(nodes[name], found, name)
    snapshot = replace(snapshot, nodes=list(nodes.values()), manifest_files=files)
    path.write_bytes(encode_snapshot(snapshot, spec_version))
    log = LogContents.of(decode_transaction_log(log_path.read_bytes(), tip))
    updated = {ids[name]: ref_table(chunks).indices for name, chunks in refs.items()}
    log_path.write_bytes(encode_transaction_log(replace(log, updated_chunks=updated), spec_version))


def _write_manifest(
    location: Path, id: ManifestId, refs: dict[str, Refs], ids: dict[str, NodeId], spec_version: int
) -> ManifestFile:
    tables = {ids[name]: ref_table(refs[name]) for name in MANIFESTS[id]}
    path = location / "manifests" / str(id)
    path.parent.mkdir(exist_ok=True)
    size = path.write_bytes(encode_manifest(id, tables, spec_version))
    return ManifestFile(id, size, sum(len(table) for table in tables.values()))


def _with_manifest(node: Node, refs: Refs, name: str) -> ArrayNode:
    """The array with the manifest that holds it, and the box around its chunks."""
    assert isinstance(node, ArrayNode)
    indices = ref_table(refs).indices
    box = np.stack([indices.min(axis=0), indices.max(axis=0) + 1], axis=1).astype(np.uint32)
    id = next(id for id, names in MANIFESTS.items() if name in names)
    manifests = ManifestRefs(np.frombuffer(id.raw, ID12), box[None])
    return replace(node, manifests=manifests)
