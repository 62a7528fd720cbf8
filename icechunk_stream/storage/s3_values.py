"""What single requests to S3 are answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icechunk_stream.storage.values import BytesLike, Version


@dataclass(frozen=True, slots=True)
class Place:
    """A key of a repository, and the name of its object in the bucket."""

    key: str
    name: str


@dataclass(frozen=True, slots=True)
class Got:
    """Bytes of an object, its version, and the size of the whole."""

    data: BytesLike
    version: Version
    size: int


@dataclass(frozen=True, slots=True)
class Head:
    size: int
    modified_at: int
    version: Version
    write_id: str | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a listing."""

    name: str
    size: int
    modified_at: int


@dataclass(frozen=True, slots=True)
class Page:
    entries: tuple[Entry, ...]
    next_token: str | None


@dataclass(frozen=True, slots=True)
class Condition:
    """The state that an object must be in for a write: a version, or absence."""

    etag: str | None
    write_id: str | None
