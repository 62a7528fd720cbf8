"""What a store is told about an object beside its bytes: class, content type, user metadata."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icechunk_stream.config import StorageSettings
    from icechunk_stream.storage.values import BytesLike


class Role(Enum):
    """The kinds of objects that may get storage classes of their own."""

    CHUNK = "chunk"
    METADATA = "metadata"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Traits:
    """``metadata`` has the names of the format's description, with underscores."""

    role: Role = Role.OTHER
    content_type: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StorageClasses:
    """The storage class of each role, where one is set."""

    chunks: str | None = None
    metadata: str | None = None
    other: str | None = None

    @classmethod
    def of(cls, settings: StorageSettings) -> StorageClasses:
        other = settings.storage_class
        return cls(
            chunks=settings.chunks_storage_class or other,
            metadata=settings.metadata_storage_class or other,
            other=other,
        )

    def of_role(self, role: Role) -> str | None:
        match role:
            case Role.CHUNK:
                return self.chunks
            case Role.METADATA:
                return self.metadata
            case Role.OTHER:
                return self.other


WRITE_ID = "icechunk_write_id"

_FOLDERS = {
    "chunks": Role.CHUNK,
    "manifests": Role.METADATA,
    "snapshots": Role.METADATA,
    "transactions": Role.METADATA,
}
_CONTENT_TYPES = {"ref.json": "application/json", "config.yaml": "application/yaml"}

# The head of a metadata file names its own traits: magic, writer, version, type, compression.
_MAGIC = b"ICE\xf0\x9f\xa7\x8aCHUNK"
_WRITER = slice(12, 36)
_VERSION, _TYPE, _COMPRESSION, _HEAD = 36, 37, 38, 39
_TYPES = {1: "snapshot", 2: "manifest", 4: "transaction-log", 6: "repo-info"}
_COMPRESSIONS = {1: "zstd"}


def traits_of(key: str, data: BytesLike) -> Traits:
    """The traits of an object, from its key and, for metadata files, from its head."""
    folder, _, rest = key.partition("/")
    name = key.rpartition("/")[2]
    role = _FOLDERS.get(folder, Role.OTHER) if rest else Role.OTHER
    metadata = () if role is Role.CHUNK else _describe(bytes(memoryview(data)[:_HEAD]))
    return Traits(role, _CONTENT_TYPES.get(name), metadata)


def metadata_name(name: str) -> str:
    """User metadata travel in HTTP headers, and some proxies drop those with an underscore."""
    return name.replace("_", "")


def _describe(head: bytes) -> tuple[tuple[str, str], ...]:
    if len(head) < _HEAD or not head.startswith(_MAGIC):
        return ()
    kind = _TYPES.get(head[_TYPE])
    compression = _COMPRESSIONS.get(head[_COMPRESSION])
    writer = head[_WRITER].rstrip(b" \0")
    if kind is None or compression is None or not writer.isascii():
        return ()
    return (
        ("ic_client", writer.decode()),
        ("ic_comp_alg", compression),
        ("ic_file_type", kind),
        ("ic_spec_ver", str(head[_VERSION])),
    )
