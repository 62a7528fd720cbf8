"""What metadata objects hold, as plain dicts in the reference library's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from icechunk_stream.changes.logs import union_of_logs
from icechunk_stream.errors import ObjectNotFoundError
from icechunk_stream.format.chunk_refs import RefKind
from icechunk_stream.format.header import FileType
from icechunk_stream.format.ids import encode_ids
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.format.times import from_micros, to_text
from icechunk_stream.format.transaction_log_encode import LogContents
from icechunk_stream.ops.updates import inspected_update

if TYPE_CHECKING:
    from icechunk_stream.assets import Assets
    from icechunk_stream.format.chunk_refs import RefColumns
    from icechunk_stream.format.ids import ManifestId, SnapshotId
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.repo_info import RepoInfo, SnapshotRecord
    from icechunk_stream.format.transaction_log import TransactionLog

_KINDS = {RefKind.INLINE: "inline", RefKind.NATIVE: "native", RefKind.VIRTUAL: "virtual"}
_COMPOSITE = (
    "Expiration has removed ancestors of this snapshot: what they changed is merged into the"
    " lists. The header is that of the snapshot's own log."
)


def inspect_snapshot(assets: Assets, id: SnapshotId) -> dict[str, Any]:
    """Nodes, manifests and commit of a snapshot object."""
    snapshot = assets.snapshot(id)
    return {
        "id": str(snapshot.id),
        "header": _header(snapshot.written_by, snapshot.spec_version, FileType.SNAPSHOT),
        "flushed_at": to_text(from_micros(snapshot.flushed_at)),
        "commit_message": snapshot.message,
        "metadata": snapshot.metadata,
        "manifests": [
            {
                "id": str(file.id),
                "size_bytes": file.size_bytes,
                "num_chunk_refs": file.num_chunk_refs,
            }
            for file in snapshot.manifest_files
        ],
        "nodes": [_node(node) for node in snapshot.nodes],
    }


def inspect_manifest(assets: Assets, id: ManifestId) -> dict[str, Any]:
    """Counts of the references in a manifest object."""
    manifest = assets.fetch_manifest(id)
    arrays: list[dict[str, Any]] = [
        {"node_id": str(node), "num_chunk_refs": len(columns), **_counts(columns, "num")}
        for node, columns in manifest.arrays.items()
    ]
    totals = {
        f"total_{kind}": sum(array[f"num_{kind}"] for array in arrays) for kind in _KINDS.values()
    }
    compression: dict[str, Any] = {"uses_location_compression": manifest.compression_algorithm != 0}
    if manifest.dictionary_size is not None:
        compression["dictionary_size_bytes"] = manifest.dictionary_size
    compression["num_compressed_refs"] = sum(
        int(np.count_nonzero(columns.compressed))
        for columns in manifest.arrays.values()
        if columns.compressed is not None
    )
    return {
        "id": str(manifest.id),
        "header": _header(manifest.written_by, manifest.spec_version, FileType.MANIFEST),
        "size_bytes": manifest.payload_size,
        "num_arrays": len(arrays),
        "total_chunk_refs": len(manifest),
        **totals,
        "arrays": arrays,
        "compression": compression,
    }


def inspect_transaction_log(
    assets: Assets, id: SnapshotId, pruned: tuple[SnapshotId, ...] = ()
) -> dict[str, Any]:
    """What a commit changed, together with the expired commits that it stands for."""
    own = assets.transaction_log(id)
    found: list[TransactionLog] = []
    missing: list[str] = []
    for ancestor in pruned:
        try:
            found.append(assets.transaction_log(ancestor))
        except ObjectNotFoundError:
            missing.append(str(ancestor))
    changes = union_of_logs([LogContents.of(log) for log in (*found, own)], own.id)
    document = {
        "header": _header(own.written_by, own.spec_version, FileType.TRANSACTION_LOG),
        "new_groups": _ids(changes.new_groups),
        "new_arrays": _ids(changes.new_arrays),
        "deleted_groups": _ids(changes.deleted_groups),
        "deleted_arrays": _ids(changes.deleted_arrays),
        "updated_groups": _ids(changes.updated_groups),
        "updated_arrays": _ids(changes.updated_arrays),
        "updated_chunks": [
            {"node_id": str(node), "chunks": coordinates.tolist()}
            for node, coordinates in changes.updated_chunks.items()
        ],
        "moved_nodes": [{"from": move.source, "to": move.target} for move in changes.moved_nodes],
    }
    if pruned:
        document["synthetic_composite"] = {
            "note": _COMPOSITE,
            "merged_pruned_ancestor_tx_logs": [str(log.id) for log in found],
            "missing_tx_logs": missing,
        }
    return document


def inspect_repo_info(info: RepoInfo) -> dict[str, Any]:
    """Refs, snapshots and the newest page of the operations log of a ``repo`` object."""
    snapshots = info.snapshots
    document = {
        "header": _header(info.written_by, info.spec_version, FileType.REPO_INFO),
        "spec_version": _version(info.spec_version),
        "branches": {name: str(snapshots.id(row)) for name, row in info.branches.items()},
        "tags": {name: str(snapshots.id(row)) for name, row in info.tags.items()},
        "deleted_tags": list(info.deleted_tags),
        "snapshots": [_record(snapshots.record(row)) for row in range(len(snapshots))],
        "metadata": info.metadata,
        "latest_updates": [inspected_update(update) for update in info.updates()],
    }
    if info.repo_before_updates is not None:
        document["repo_before_updates"] = info.repo_before_updates
    return document


def _header(written_by: str, spec_version: int, file_type: FileType) -> dict[str, Any]:
    name, dash, version = written_by.partition("-")
    return {
        "written_by": written_by,
        "app_name": name,
        **({"app_version": version} if dash else {}),
        "spec_version": _version(spec_version),
        "file_type": file_type.name.lower().replace("_", "-"),
        "compression": "zstd",
    }


def _version(spec_version: int) -> str:
    return f"{spec_version}.0"


def _node(node: Node) -> dict[str, Any]:
    document: dict[str, Any] = {"id": str(node.id), "path": node.path, "node_type": "group"}
    if not isinstance(node, ArrayNode):
        return document
    names = list(node.dimension_names or ())[: len(node.shape)]
    names += [None] * (len(node.shape) - len(names))
    document["node_type"] = "array"
    document["shape"] = [
        {
            **({} if name is None else {"name": name}),
            "array_length": dimension.array_length,
            "num_chunks": dimension.num_chunks,
        }
        for name, dimension in zip(names, node.shape, strict=True)
    ]
    document["manifest_refs"] = [
        {"id": str(node.manifests.id(number)), "extents": node.manifests.extents[number].tolist()}
        for number in range(len(node.manifests))
    ]
    return document


def _counts(columns: RefColumns, prefix: str) -> dict[str, int]:
    return {
        f"{prefix}_{name}": int(np.count_nonzero(columns.kinds == kind))
        for kind, name in _KINDS.items()
    }


def _ids(ids: np.ndarray[tuple[int], np.dtype[np.void]]) -> list[str]:
    return list(encode_ids(ids))


def _record(record: SnapshotRecord) -> dict[str, Any]:
    parent = {} if record.parent_id is None else {"parent_id": str(record.parent_id)}
    return {
        "id": str(record.id),
        **parent,
        "flushed_at": to_text(from_micros(record.flushed_at)),
        "message": record.message,
        "metadata": record.metadata,
    }
