"""The members of a zarr.json that the format depends on; all else in it is opaque."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from icechunk_stream.errors import ErrorKind, FormatError, InvalidInputError
from icechunk_stream.format.ids import ID12, NodeId
from icechunk_stream.format.json_nesting import check_json_nesting
from icechunk_stream.format.nodes import (
    MAX_NUM_CHUNKS,
    ArrayNode,
    Dimension,
    GroupNode,
    ManifestRefs,
    Node,
)
from icechunk_stream.format.paths import check_unicode
from icechunk_stream.format.refs_decode import MAX_RANK

_V1 = 1
_MAX_LENGTH = 2**64 - 1


class _Grid(msgspec.Struct):
    name: str
    configuration: dict[str, Any]


class _Document(msgspec.Struct):
    node_type: str
    shape: list[int] | None = None
    chunk_grid: _Grid | None = None
    dimension_names: list[str | None] | None = None


def make_node(id: NodeId, path: str, data: bytes, spec_version: int) -> Node:
    """The node that a zarr.json describes; an array has no references yet."""
    check_unicode(path)
    document = _parse(data, path)
    if document.node_type == "group":
        return GroupNode(id, path, data)
    if document.node_type != "array":
        raise _bad(path, f"node_type is {document.node_type!r}, array or group is expected")
    shape = _dimensions(document, path, spec_version)
    names = document.dimension_names
    return ArrayNode(
        id=id,
        path=path,
        user_data=data,
        shape=shape,
        dimension_names=None if names is None else tuple(name or None for name in names),
        manifests=no_manifests(len(shape)),
    )


def no_manifests(rank: int) -> ManifestRefs:
    """The manifests of an array that has no references."""
    return ManifestRefs(np.zeros(0, ID12), np.zeros((0, rank, 2), np.uint32))


def _parse(data: bytes, path: str) -> _Document:
    try:
        check_json_nesting(data, where=path)
        return msgspec.json.decode(data, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, FormatError) as error:
        raise _bad(path, str(error)) from error


def _dimensions(document: _Document, path: str, spec_version: int) -> tuple[Dimension, ...]:
    if document.shape is None or document.chunk_grid is None:
        raise _bad(path, "an array needs shape and chunk_grid")
    counts = _counts(document.shape, document.chunk_grid, path, spec_version)
    if len(counts) != len(document.shape):
        raise _bad(path, f"a chunk grid of {len(counts)} and a shape of {len(document.shape)} axes")
    if len(counts) > MAX_RANK:
        raise _bad(path, f"an array of {len(counts)} dimensions, {MAX_RANK} are possible")
    for length, count in zip(document.shape, counts, strict=True):
        if not (0 <= length <= _MAX_LENGTH and 0 <= count <= MAX_NUM_CHUNKS):
            raise _bad(path, f"a dimension of length {length} in {count} chunks")
        if spec_version == _V1 and length and not count:
            raise _bad(path, f"chunks of length 0 along {length} need a repository of spec v2")
    return tuple(map(Dimension, document.shape, counts))


def _counts(shape: list[int], grid: _Grid, path: str, spec_version: int) -> list[int]:
    """Number of chunks along every axis."""
    match grid.name:
        case "regular":
            sizes = _lengths(grid.configuration.get("chunk_shape"), path)
            # Axes in excess are told by the caller, who compares the ranks.
            pairs = zip(shape, sizes, strict=False)
            found = [-(-length // size) if size else 0 for length, size in pairs]
            return found if len(sizes) == len(shape) else sizes
        case "rectilinear" if spec_version != _V1:
            return _rectilinear(grid.configuration.get("chunk_shapes"), path)
        case "rectilinear":
            raise _bad(path, "rectilinear chunk grids need a repository of spec v2")
        case _:
            raise _bad(path, f"the chunk grid {grid.name!r} is unknown")


def _lengths(sizes: object, path: str) -> list[int]:
    if not isinstance(sizes, list) or not all(_is_length(size) for size in sizes):
        raise _bad(path, f"chunk_shape is {sizes!r}, a list of lengths is expected")
    return sizes


def _rectilinear(axes: object, path: str) -> list[int]:
    if not isinstance(axes, list) or not all(isinstance(axis, list) for axis in axes):
        raise _bad(path, "chunk_shapes must be a list of lists")
    return [sum(_run(item, path) for item in axis) for axis in axes]


def _run(item: object, path: str) -> int:
    """How many chunks an entry stands for: a length alone, or a length and how often."""
    match item:
        case [size, int(count)] if _is_length(size) and _is_length(count):
            return count
        case size if _is_length(size):
            return 1
        case _:
            raise _bad(path, f"chunk_shapes has {item!r}: give a length, or length and count")


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_LENGTH


def _bad(path: str, why: str) -> InvalidInputError:
    message = f"the zarr.json of {path} cannot be stored: {why}"
    return InvalidInputError(message, ErrorKind.BAD_METADATA)
