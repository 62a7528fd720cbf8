"""Keys of a snapshot as zarr lists them, and chunk references in batches of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.format.chunk_refs import RefKind
from icechunk_stream.format.ids import encode_ids
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.store.keys import (
    CHUNKS_NAME,
    METADATA_NAME,
    chunk_prefix,
    metadata_key,
    normal_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from icechunk_stream.format.chunk_refs import RefColumns
    from icechunk_stream.format.nodes import Node
    from icechunk_stream.reading import SnapshotReader

    Batch = tuple[
        npt.NDArray[np.uint32],
        npt.NDArray[np.uint8],
        list[str],
        npt.NDArray[np.uint64],
        npt.NDArray[np.uint64],
        dict[int, bytes],
    ]


def key_batches(reader: SnapshotReader, prefix: str) -> Iterator[list[str]]:
    """All keys below a node: documents first, then the chunks of each array."""
    nodes = nodes_below(reader, prefix)
    yield [metadata_key(node.path) for node in nodes]
    for node in nodes:
        if isinstance(node, ArrayNode):
            for columns in reader.all_columns(node):
                yield chunk_keys(node, columns)


def nodes_below(reader: SnapshotReader, prefix: str) -> list[Node]:
    """The node that a prefix names, and all below it."""
    path = normal_path(prefix)
    nodes = [] if path is None else list(reader.snapshot.nodes.below(path))
    if path is None or (path != "/" and (not nodes or nodes[0].path != path)):
        message = f"invalid prefix {prefix!r}: keys are listed below the root, a group or an array"
        raise InvalidInputError(message, ErrorKind.BAD_KEY_PREFIX)
    return nodes


def chunk_keys(node: ArrayNode, columns: RefColumns) -> list[str]:
    prefix = chunk_prefix(node.path)
    if not node.shape:
        return [prefix] * len(columns)
    return [f"{prefix}/{'/'.join(map(str, index))}" for index in columns.indices().tolist()]


def directory(reader: SnapshotReader, prefix: str) -> list[str]:
    """Names directly below a node, or below a folder of an array's chunks."""
    path = normal_path(prefix)
    if path is None:
        message = f"invalid prefix {prefix!r}: it has a '..' component"
        raise InvalidInputError(message, ErrorKind.INVALID_PATH)
    node = reader.node(path)
    if isinstance(node, ArrayNode):
        return [METADATA_NAME, CHUNKS_NAME]
    if node is None and path != "/":
        return _chunk_folder(reader, path)
    children = _children(reader, path)
    return children if node is None else [METADATA_NAME, *children]


def _children(reader: SnapshotReader, path: str) -> list[str]:
    start = len(path) if path == "/" else len(path) + 1
    below = (node.path for node in reader.snapshot.nodes.below(path) if len(node.path) >= start)
    names = (below_path[start:].partition("/")[0] for below_path in below)
    return list(dict.fromkeys(name for name in names if name))


def _chunk_folder(reader: SnapshotReader, path: str) -> list[str]:
    """Distinct next components of the chunks below ``array/c`` or ``array/c/0``."""
    parts = path[1:].split("/")
    for depth in range(len(parts) - 1, -1, -1):
        node = reader.node("/" + "/".join(parts[:depth]))
        if isinstance(node, ArrayNode) and parts[depth] == CHUNKS_NAME:
            return _next_components(reader, node, parts[depth + 1 :])
    return []


def _next_components(reader: SnapshotReader, node: ArrayNode, given: list[str]) -> list[str]:
    if len(given) >= len(node.shape) or not all(part.isdecimal() for part in given):
        return []
    found: set[int] = set()
    for columns in reader.all_columns(node):
        indices = columns.indices()
        for axis, part in enumerate(given):
            indices = indices[indices[:, axis] == int(part)]
        found.update(np.unique(indices[:, len(given)]).tolist())
    return [str(component) for component in sorted(found)]


def ref_batches(reader: SnapshotReader, node: ArrayNode, batch_size: int) -> Iterator[Batch]:
    """References of an array in aligned columns of at most ``batch_size`` rows."""
    for columns in reader.all_columns(node):
        for first in range(0, len(columns), batch_size):
            rows = np.arange(first, min(first + batch_size, len(columns)))
            yield _batch(columns, rows, reader.containers.resolve)


def _batch(columns: RefColumns, rows: npt.NDArray[np.intp], resolve: Callable[[str], str]) -> Batch:
    kinds = columns.kinds[rows]
    paths = np.full(len(rows), "", dtype=object)
    native, virtual = kinds == RefKind.NATIVE, kinds == RefKind.VIRTUAL
    if native.any():
        assert columns.chunk_ids is not None
        paths[native] = encode_ids(columns.chunk_ids[rows[native]]).astype(str)
    if virtual.any():
        paths[virtual] = resolved(columns.locations(rows[virtual]).to_pylist(), resolve)
    inline = np.flatnonzero(kinds == RefKind.INLINE)
    inlined = {int(row): columns.inline(int(rows[row])) for row in inline}
    lengths = columns.lengths[rows]
    return columns.indices(rows), kinds, paths.tolist(), columns.offsets[rows], lengths, inlined


def resolved(locations: list[str], resolve: Callable[[str], str]) -> list[str]:
    """Absolute locations; each distinct one is resolved once."""
    absolute = {location: resolve(location) for location in dict.fromkeys(locations)}
    return [absolute[location] for location in locations]
