"""Keys that zarr uses in a store: documents of nodes, and chunks by their grid index."""

from __future__ import annotations

import re
from dataclasses import dataclass

from icechunk_stream.errors import ErrorKind, InvalidInputError

METADATA_NAME = "zarr.json"
CHUNKS_NAME = "c"

_V2_NAMES = frozenset((".zarray", ".zgroup", ".zattrs", ".zmetadata"))
# No index has more digits; zeros before them say nothing.
_INDEX = re.compile(r"\+?0*([0-9]{1,10})")
MAX_INDEX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class MetadataKey:
    """The zarr.json of the node at a path."""

    path: str


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """A chunk of the array at a path."""

    path: str
    index: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ZarrV2Key:
    """A document of zarr v2, which no repository has."""

    key: str


StoreKey = MetadataKey | ChunkKey | ZarrV2Key


def parse_key(key: str) -> StoreKey:
    """What a key of the store means."""
    folder, _, name = key.rpartition("/")
    if name == METADATA_NAME:
        return MetadataKey(_path_of(folder, key))
    if name in _V2_NAMES:
        return ZarrV2Key(key)
    path, marker, rest = key.rpartition(CHUNKS_NAME)
    if not marker or (path and not path.endswith("/") and rest):
        raise _invalid(key)
    return ChunkKey(_path_of(path, key), _index(rest, key))


def normal_path(text: str) -> str | None:
    """Absolute form of a path given with needless slashes or dots; None where it has ``..``."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    return None if ".." in parts else "/" + "/".join(parts)


def metadata_key(path: str) -> str:
    return METADATA_NAME if path == "/" else f"{path[1:]}/{METADATA_NAME}"


def chunk_prefix(path: str) -> str:
    """What the keys of all chunks of an array begin with."""
    return CHUNKS_NAME if path == "/" else f"{path[1:]}/{CHUNKS_NAME}"


def index_in(text: str) -> int | None:
    """The chunk index that one part of a key spells, if it spells one."""
    digits = _INDEX.fullmatch(text)
    number = None if digits is None else int(digits[1])
    return None if number is None or number > MAX_INDEX else number


def _path_of(folder: str, key: str) -> str:
    path = normal_path(folder)
    if path is None:
        raise _invalid(key)
    return path


def _index(text: str, key: str) -> tuple[int, ...]:
    if not text:
        return ()
    if not text.startswith("/"):
        raise _invalid(key)
    index: list[int] = []
    for part in text[1:].split("/"):
        number = index_in(part)
        if number is None:
            raise _invalid(key)
        index.append(number)
    return tuple(index)


def _invalid(key: str) -> InvalidInputError:
    message = f"invalid key {key!r}: it ends neither in {METADATA_NAME} nor in c/0/1-like indices"
    return InvalidInputError(message, ErrorKind.INVALID_KEY)
