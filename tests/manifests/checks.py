"""What has to be true of the manifests of every snapshot."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.assets import manifest_key
from icechunk_stream.format.boxes import overlap
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.manifest import decode_manifest
from icechunk_stream.format.nodes import ArrayNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream import Repository
    from icechunk_stream.format.manifest import Manifest
    from icechunk_stream.format.snapshot import Snapshot

Index = tuple[int, ...]


def tip(repository: Repository) -> Snapshot:
    id = SnapshotId.parse(repository.lookup_branch("main"))
    return repository._assets.snapshot(id)


def arrays(snapshot: Snapshot) -> Iterator[ArrayNode]:
    return (node for node in snapshot.nodes if isinstance(node, ArrayNode))


def stored_manifests(repository: Repository) -> dict[bytes, Manifest]:
    """The manifests that the tip lists, read from their objects."""
    found = {}
    for file in tip(repository).manifest_files:
        key = manifest_key(file.id)
        data = repository.storage.get(key)
        manifest = decode_manifest(data, key)
        assert len(data) == file.size_bytes
        assert len(manifest) == file.num_chunk_refs > 0
        assert all(len(columns) for columns in manifest.arrays.values())
        found[file.id.raw] = manifest
    return found


def check_manifests(repository: Repository) -> dict[str, set[Index]]:
    """The chunks of every array; each is in exactly one manifest, inside of its box."""
    snapshot, manifests = tip(repository), stored_manifests(repository)
    chunks: dict[str, set[Index]] = {}
    used: set[bytes] = set()
    for node in arrays(snapshot):
        seen: Counter[Index] = Counter()
        assert not overlap(node.manifests.extents)
        for id, box in zip(node.manifests.ids, node.manifests.extents, strict=True):
            used.add(id.tobytes())
            indices = manifests[id.tobytes()].arrays[node.id].indices()
            assert (indices.min(axis=0) == box[:, 0]).all()
            assert (indices.max(axis=0) + 1 == box[:, 1]).all()
            assert (indices < np.array(node.grid)).all()
            seen.update(map(tuple, indices.tolist()))
        assert set(seen.values()) <= {1}
        chunks[node.path] = set(seen)
    assert used == set(manifests)
    return chunks
