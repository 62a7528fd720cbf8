"""Repositories whose metadata objects are replaced by what our encoders make of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from icechunk_stream.format.header import HEADER_SIZE
from icechunk_stream.format.ids import ManifestId
from icechunk_stream.format.manifest import decode_manifest
from icechunk_stream.format.manifest_encode import encode_manifest
from icechunk_stream.format.ref_tables import RefTable
from icechunk_stream.format.repo_info import decode_repo_info
from icechunk_stream.format.repo_info_encode import RepoState, encode_repo_info
from icechunk_stream.format.snapshot import decode_snapshot
from icechunk_stream.format.snapshot_encode import SnapshotContents, encode_snapshot
from icechunk_stream.format.transaction_log import decode_transaction_log
from icechunk_stream.format.transaction_log_encode import LogContents, encode_transaction_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SPEC_VERSION_AT = 36


def re_encode(location: Path) -> int:
    """Decode and encode every metadata object of a repository in place; say how many there are."""
    sizes = {}
    for path, data, spec_version in _objects(location / "manifests"):
        manifest = decode_manifest(data, path.name)
        tables = {node: RefTable.of(columns) for node, columns in manifest.arrays.items()}
        sizes[manifest.id] = path.write_bytes(encode_manifest(manifest.id, tables, spec_version))
    done = len(sizes)
    for path, data, spec_version in _objects(location / "snapshots"):
        snapshot = SnapshotContents.of(decode_snapshot(data, path.name))
        path.write_bytes(encode_snapshot(_with_sizes(snapshot, sizes), spec_version))
        done += 1
    for path, data, spec_version in _objects(location / "transactions"):
        log = LogContents.of(decode_transaction_log(data, path.name))
        path.write_bytes(encode_transaction_log(log, spec_version))
        done += 1
    for path in (location / "repo", *location.glob("overwritten/repo.*")):
        if path.exists():
            state = RepoState.of(decode_repo_info(path.read_bytes(), path.name))
            path.write_bytes(encode_repo_info(state))
            done += 1
    return done


def _objects(folder: Path) -> Iterator[tuple[Path, bytes, int]]:
    for path in sorted(folder.glob("*")):
        data = path.read_bytes()
        assert len(data) > HEADER_SIZE
        yield path, data, data[_SPEC_VERSION_AT]


def _with_sizes(snapshot: SnapshotContents, sizes: dict[ManifestId, int]) -> SnapshotContents:
    """Readers fetch as many bytes of a manifest as the snapshot says."""
    files = [
        replace(file, size_bytes=sizes.get(file.id, file.size_bytes))
        for file in snapshot.manifest_files
    ]
    return replace(snapshot, manifest_files=files)
