"""Keys of a snapshot as zarr lists them, and chunk references in batches of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.format.chunk_refs import RefKind
from icechunk_stream.format.ids import encode_ids
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.reading import children
from icechunk_stream.store.folders import chunk_folder
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

    from icechunk_stream.format.nodes import Node
    from icechunk_stream.format.ref_view import RefView
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.store.folders import ChunkFolder

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
    nodes = [] if path is None else list(reader.nodes.below(path))
    if path is None or (path != "/" and (not nodes or nodes[0].path != path)):
        message = f"invalid prefix {prefix!r}: keys are listed below the root, a group or an array"
        raise InvalidInputError(message, ErrorKind.BAD_KEY_PREFIX)
    return nodes


def chunk_keys(node: ArrayNode, columns: RefView) -> list[str]:
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
    if node is None:
        folder = chunk_folder(reader, path)
        return [] if folder is None else _next_components(reader, folder)
    return [METADATA_NAME, *_children(reader, path)]


def _children(reader: SnapshotReader, path: str) -> list[str]:
    """Names of nodes directly below."""
    return [node.path.rpartition("/")[2] for node in children(reader.nodes, path)]


def _next_components(reader: SnapshotReader, folder: ChunkFolder) -> list[str]:
    """Distinct next components of the chunks in a folder."""
    depth = len(folder.leading)
    if depth == len(folder.array.shape):
        return []
    found: set[int] = set()
    for columns in reader.all_columns(folder.array):
        indices = columns.indices()
        for axis, component in enumerate(folder.leading):
            indices = indices[indices[:, axis] == component]
        found.update(np.unique(indices[:, depth]).tolist())
    return [str(component) for component in sorted(found)]


def ref_batches(reader: SnapshotReader, node: ArrayNode, batch_size: int) -> Iterator[Batch]:
    """References of an array in aligned columns of at most ``batch_size`` rows."""
    for columns in reader.all_columns(node):
        for first in range(0, len(columns), batch_size):
            yield _batch(columns, slice(first, first + batch_size), reader.containers.resolve)


def _batch(columns: RefView, rows: slice, resolve: Callable[[str], str]) -> Batch:
    kinds = columns.kinds[rows].copy()
    rows_of = {kind: rows.start + np.flatnonzero(kinds == kind) for kind in RefKind}
    inlined = {int(row) - rows.start: columns.inline(int(row)) for row in rows_of[RefKind.INLINE]}
    offsets, lengths = columns.offsets[rows].copy(), columns.lengths[rows].copy()
    found = [
        (of_kind - rows.start, _paths(columns, kind, of_kind, resolve))
        for kind, of_kind in rows_of.items()
        if len(of_kind)
    ]
    return columns.indices(rows), kinds, _in_order(found), offsets, lengths, inlined


def _paths(
    columns: RefView,
    kind: RefKind,
    rows: npt.NDArray[np.intp],
    resolve: Callable[[str], str],
) -> npt.NDArray[np.object_]:
    """Chunk ids, locations or empty strings, by the kind that all the rows are of."""
    match kind:
        case RefKind.NATIVE:
            assert columns.chunk_ids is not None
            return encode_ids(columns.chunk_ids[rows])
        case RefKind.VIRTUAL:
            return resolved(columns.locations(rows), resolve)
        case RefKind.INLINE:
            return np.full(len(rows), "", dtype=object)


def _in_order(
    parts: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.object_]]],
) -> list[str]:
    """Values that belong at places, put there; mostly one part has all of them."""
    if len(parts) == 1:
        only: list[str] = parts[0][1].tolist()
        return only
    values = np.empty(sum(len(places) for places, _ in parts), dtype=object)
    for places, part in parts:
        values[places] = part
    ordered: list[str] = values.tolist()
    return ordered


def resolved(locations: pa.Array, resolve: Callable[[str], str]) -> npt.NDArray[np.object_]:
    """Absolute locations; each distinct one is resolved once."""
    if not pa.types.is_dictionary(locations.type):
        locations = locations.cast(pa.large_string()).dictionary_encode()
    numbers = locations.indices.to_numpy()
    # A dictionary may hold what no row has any more.
    used = np.zeros(len(locations.dictionary), np.bool_)
    used[numbers] = True
    absolute = np.empty(len(used), dtype=object)
    absolute[used] = [resolve(each) for each in locations.dictionary.filter(used).to_pylist()]
    chosen: npt.NDArray[np.object_] = absolute[numbers]
    return chosen
