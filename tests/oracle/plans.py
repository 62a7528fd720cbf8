"""Descriptions of repositories to make: plain values that cross processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = Any


@dataclass(frozen=True, slots=True)
class PutGroup:
    path: str
    attributes: dict[str, Json]


@dataclass(frozen=True, slots=True)
class PutArray:
    path: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    names: tuple[str | None, ...] | None
    attributes: dict[str, Json]


@dataclass(frozen=True, slots=True)
class WriteChunks:
    """Payloads of ``length`` bytes; None stands for the chunk's own size."""

    array: int
    index: int
    count: int
    length: int | None
    fill: int


@dataclass(frozen=True, slots=True)
class WriteVirtual:
    array: int
    index: int
    locations: tuple[str, ...]
    offset: int
    length: int
    etag: str | None = None
    modified: int | None = None  # seconds


@dataclass(frozen=True, slots=True)
class DeleteChunk:
    array: int
    index: int


@dataclass(frozen=True, slots=True)
class Resize:
    array: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeleteNode:
    node: int


Change = PutGroup | PutArray | WriteChunks | WriteVirtual | DeleteChunk | Resize | DeleteNode


@dataclass(frozen=True, slots=True)
class Commit:
    branch: int
    changes: tuple[Change, ...]
    message: str
    metadata: dict[str, Json]
    way: str = "commit"  # or "amend", "flush"


@dataclass(frozen=True, slots=True)
class CreateRef:
    kind: str  # "tag" or "branch"
    name: str
    branch: int
    back: int


@dataclass(frozen=True, slots=True)
class DeleteRef:
    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class ResetBranch:
    branch: int
    back: int


@dataclass(frozen=True, slots=True)
class Move:
    branch: int
    node: int
    target: str


@dataclass(frozen=True, slots=True)
class Administer:
    """Repository metadata, status, a flag or the configuration."""

    what: str
    value: Json


@dataclass(frozen=True, slots=True)
class Expire:
    back: int
    drop_refs: bool


@dataclass(frozen=True, slots=True)
class Collect:
    pass


@dataclass(frozen=True, slots=True)
class RewriteManifests:
    branch: int
    axis_size: int | None


Step = (
    Commit
    | CreateRef
    | DeleteRef
    | ResetBranch
    | Move
    | Administer
    | Expire
    | Collect
    | RewriteManifests
)


@dataclass(frozen=True, slots=True)
class Plan:
    spec_version: int
    inline_threshold: int
    split: int | None = None
    compress_from: int | None = None
    updates_per_file: int | None = None
    steps: tuple[Step, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Containers:
    """A folder whose files may be read as virtual chunks; buckets that may not."""

    folder: str

    @property
    def prefix(self) -> str:
        return f"file://{self.folder}/"
