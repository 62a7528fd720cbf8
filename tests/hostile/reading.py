"""Objects of every kind sealed, decoded, and then looked at to the last part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import zstandard

from icechunk_stream.errors import FormatError
from icechunk_stream.format.chunk_refs import RefKind
from icechunk_stream.format.config_flex import decode_config_flexbuffer
from icechunk_stream.format.header import FileType
from icechunk_stream.format.manifest import decode_manifest
from icechunk_stream.format.node_copies import copies_of
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.format.records import Writer
from icechunk_stream.format.repo_info import decode_repo_info
from icechunk_stream.format.snapshot import decode_snapshot
from icechunk_stream.format.times import from_micros
from icechunk_stream.format.transaction_log import decode_transaction_log
from icechunk_stream.store.listing import resolved
from tests.hostile import documents, raw

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.format.chunk_refs import RefColumns
    from icechunk_stream.format.manifest import Manifest
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.repo_info import RepoInfo
    from icechunk_stream.format.snapshot import Snapshot
    from icechunk_stream.format.transaction_log import TransactionLog

    Bytes = bytes | bytearray

T = TypeVar("T")

MAGIC = b"ICE\xf0\x9f\xa7\x8aCHUNK"
HEADER_SIZE = 39
KEY = "place/of/object"
CORPUS = Path(__file__).with_name("corpus")


class Look:
    """Looks at one part after another; a part that is refused does not hide the next."""

    def __init__(self) -> None:
        self.refusal: FormatError | None = None

    def at(self, part: Callable[[], T]) -> T | None:
        try:
            return part()
        except FormatError as error:
            self.refusal = self.refusal or error.with_traceback(None)
            return None

    def finish(self) -> None:
        if self.refusal:
            raise self.refusal


def _look_at_snapshot(snapshot: Snapshot, look: Look) -> None:
    from_micros(snapshot.flushed_at)
    for file in snapshot.manifest_files:
        str(file.id)
    nodes = snapshot.nodes
    for path in nodes.paths.to_pylist():
        node = look.at(lambda path=path: nodes.get(path.decode("utf-8", "replace")))  # type: ignore[misc]
        if node is not None:
            _look_at_node(node)
    look.at(lambda: list(nodes))
    look.at(lambda: list(nodes.below("/")))
    look.at(lambda: list(nodes.children("/")))
    look.at(lambda: _copy(snapshot))


def _copy(snapshot: Snapshot) -> None:
    """Copy what a commit on the snapshot would copy."""
    nodes = snapshot.nodes
    copies = copies_of(nodes, np.ones(len(nodes), np.bool_), snapshot.spec_version)
    copies.write(Writer())


def _look_at_node(node: Node) -> None:
    if isinstance(node, ArrayNode):
        for number in range(len(node.manifests)):
            str(node.manifests.id(number))
        assert node.manifests.covering([2**32 - 1] * len(node.grid)) == [] or not node.grid


def _look_at_manifest(manifest: Manifest, look: Look) -> None:
    for columns in manifest.arrays.values():
        _look_at_columns(columns, look)


def _look_at_columns(columns: RefColumns, look: Look) -> None:
    indices = columns.indices().tolist()
    for row, index in enumerate(indices):
        assert columns.find(index) == row
        look.at(lambda row=row: columns.payload(row))  # type: ignore[misc]
    virtual = np.flatnonzero(columns.kinds == RefKind.VIRTUAL)
    if len(virtual):
        look.at(lambda: resolved(columns.locations(virtual), str))


def _look_at_log(log: TransactionLog, look: Look) -> None:
    for coordinates in log.updated_chunks.values():
        coordinates.tolist()
    for move in log.moved_nodes:
        str(move)


def _look_at_repo(info: RepoInfo, look: Look) -> None:
    rows = range(len(info.snapshots))
    records = [look.at(lambda row=row: info.snapshots.record(row)) for row in rows]  # type: ignore[misc]
    for record in records:
        if record is not None:
            from_micros(record.flushed_at)
            assert info.snapshots.row(record.id) is not None
    for row in list(rows)[:8]:
        look.at(lambda row=row: list(info.snapshots.ancestry(row)))  # type: ignore[misc]
    from_micros(info.status.set_at)
    for update in look.at(info.updates) or ():
        from_micros(update.updated_at)
    look.at(info.log)
    stored = info.config
    if stored is not None:
        look.at(lambda: decode_config_flexbuffer(stored, KEY))


@dataclass(frozen=True)
class Kind:
    """A kind of metadata object: how it is decoded, and how everything in it is looked at."""

    name: str
    file_type: FileType
    decode: Callable[[bytes, str], Any]
    look: Callable[[Any, Look], None]

    def read(self, data: Bytes, key: str = KEY) -> None:
        """Decode an object and look at all of it; the first refusal is raised in the end."""
        look = Look()
        self.look(self.decode(bytes(data), key), look)
        look.finish()

    def read_payload(self, payload: Bytes, spec_version: int = 2) -> None:
        self.read(seal(payload, self.file_type, spec_version))

    def read_document(self, document: raw.Table, spec_version: int = 2) -> None:
        self.read_payload(raw.payload(document), spec_version)

    def corpus(self) -> dict[str, bytes]:
        """Objects of the kind that the reference library wrote, by name."""
        paths = sorted(CORPUS.glob(f"{self.name}-*"))
        assert paths
        return {path.name: path.read_bytes() for path in paths}


SNAPSHOT = Kind("snapshot", FileType.SNAPSHOT, decode_snapshot, _look_at_snapshot)
MANIFEST = Kind("manifest", FileType.MANIFEST, decode_manifest, _look_at_manifest)
LOG = Kind("log", FileType.TRANSACTION_LOG, decode_transaction_log, _look_at_log)
REPO = Kind("repo", FileType.REPO_INFO, decode_repo_info, _look_at_repo)
KINDS = {kind.name: kind for kind in (SNAPSHOT, MANIFEST, LOG, REPO)}


@dataclass(frozen=True)
class Sample:
    """A valid document with one of every part that its kind has."""

    kind: Kind
    spec_version: int
    document: Callable[[], raw.Table]


SAMPLES = {
    "snapshot-v1": Sample(SNAPSHOT, 1, documents.every_snapshot_v1),
    "snapshot-v2": Sample(SNAPSHOT, 2, documents.every_snapshot),
    "manifest": Sample(MANIFEST, 2, documents.every_manifest),
    "log": Sample(LOG, 2, documents.every_log),
    "repo": Sample(REPO, 2, documents.every_repo),
}


def header(file_type: int, spec_version: int = 2, compression: int = 1) -> bytes:
    return MAGIC + b"hostile".ljust(24) + bytes((spec_version, file_type, compression))


def seal(payload: Bytes, file_type: int, spec_version: int = 2) -> bytes:
    return header(file_type, spec_version) + zstandard.ZstdCompressor(level=1).compress(payload)


def opened(data: bytes) -> bytes:
    """The payload of an object that the reference library wrote."""
    reader = zstandard.ZstdDecompressor().stream_reader(data[HEADER_SIZE:])
    payload: bytes = reader.read()
    return payload
