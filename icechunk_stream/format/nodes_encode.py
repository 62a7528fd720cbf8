"""Nodes of a snapshot written from their values, by the rules of either spec."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from icechunk_stream.errors import FormatError
from icechunk_stream.format.ids import ID8, ID12
from icechunk_stream.format.nodes import (
    DIMENSION_V1,
    MAX_NUM_CHUNKS,
    ArrayDataSlot,
    ArrayNode,
    GroupNode,
    NodeSlot,
    NodeType,
)
from icechunk_stream.format.paths import is_canonical
from icechunk_stream.format.records import (
    ID8_CODE,
    ID12_CODE,
    OFFSET,
    Records,
    Writer,
    invalid,
    owning_layout,
    shape,
    utf8,
)
from icechunk_stream.format.values import check_json_nesting

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.format.node_copies import Copies
    from icechunk_stream.format.nodes import Dimension, ManifestRefs, Node
    from icechunk_stream.format.records import Block

_NODE = shape(
    (NodeSlot.ID, ID8_CODE),
    (NodeSlot.PATH, OFFSET),
    (NodeSlot.USER_DATA, OFFSET),
    (NodeSlot.DATA_TYPE, "B"),
    (NodeSlot.DATA, OFFSET),
)
_EMPTY = shape()
_DIMENSION_V2 = shape((0, "Q"), (1, "I"))
_DIMENSION_NAME = shape((0, OFFSET))
_MANIFEST_REF = shape((0, ID12_CODE), (1, OFFSET))
_V1 = 1
_MAX_U64 = 2**64 - 1


def write_nodes(
    writer: Writer, nodes: Sequence[Node], spec_version: int, copies: Copies | None = None
) -> int:
    """The vector of nodes and copies, in the order of their paths' bytes."""
    ordered = sorted(nodes, key=lambda node: utf8(node.path))
    _check_nodes(ordered, copies)
    vector = writer.offsets(len(ordered) + (len(copies) if copies else 0))
    copied = copies.write(writer) if copies else np.zeros(0, np.intp)
    targets = np.array([_write_node(writer, node, spec_version) for node in ordered], np.intp)
    if copies:
        targets = np.insert(copied, copies.before(utf8(node.path) for node in ordered), targets)
    writer.link_all(vector, targets)
    return vector


def _check_nodes(ordered: Sequence[Node], copies: Copies | None) -> None:
    for before, node in pairwise(ordered):
        if before.path == node.path:
            raise invalid(f"two nodes have the path {node.path}")
    ids = np.frombuffer(b"".join([node.id.raw for node in ordered]), ID8)
    if copies:
        ids = np.concatenate([copies.ids, ids])
    ordered_ids = np.sort(ids.view("<u8"))
    if (ordered_ids[1:] == ordered_ids[:-1]).any():
        raise invalid("two nodes have the same id")


def _write_node(writer: Writer, node: Node, spec_version: int) -> int:
    if not is_canonical(node.path):
        raise invalid(f"invalid path {node.path!r}: write it as /group/array")
    _check_document(node)
    kind = NodeType.ARRAY if isinstance(node, ArrayNode) else NodeType.GROUP
    table = writer.table(_NODE, node.id.raw, 0, 0, kind, 0)
    writer.attach(table, _NODE, NodeSlot.PATH, writer.text(node.path))
    writer.attach(table, _NODE, NodeSlot.USER_DATA, writer.blob(node.user_data))
    writer.attach(table, _NODE, NodeSlot.DATA, _write_data(writer, node, spec_version))
    return table


def _write_data(writer: Writer, node: Node, spec_version: int) -> int:
    match node:
        case GroupNode():
            return writer.table(_EMPTY)
        case ArrayNode():
            return _write_array(writer, node, spec_version)


def _check_document(node: Node) -> None:
    try:
        check_json_nesting(node.user_data, where=node.path)
    except FormatError as error:
        raise invalid(f"the zarr.json of {node.path} cannot be stored: {error}") from error


def _write_array(writer: Writer, node: ArrayNode, spec_version: int) -> int:
    """Spec v1 has each dimension's chunk length, v2 its number of chunks."""
    _check_dimensions(node)
    slots = [ArrayDataSlot.SHAPE, ArrayDataSlot.MANIFESTS]
    if node.dimension_names is not None:
        slots.append(ArrayDataSlot.DIMENSION_NAMES)
    if spec_version != _V1:
        slots.append(ArrayDataSlot.SHAPE_V2)
    of = shape(*((slot, OFFSET) for slot in slots))
    table = writer.table(of, *(0 for _ in slots))
    lengths = _dimensions_v1(node) if spec_version == _V1 else np.zeros(0, DIMENSION_V1)
    writer.attach(table, of, ArrayDataSlot.SHAPE, writer.vector(lengths, alignment=8))
    if spec_version != _V1:
        writer.attach(table, of, ArrayDataSlot.SHAPE_V2, _write_shape(writer, node.shape))
    if node.dimension_names is not None:
        names = _write_names(writer, node.dimension_names)
        writer.attach(table, of, ArrayDataSlot.DIMENSION_NAMES, names)
    manifests = _write_manifests(writer, node)
    writer.attach(table, of, ArrayDataSlot.MANIFESTS, manifests)
    return table


def _check_dimensions(node: ArrayNode) -> None:
    for dimension in node.shape:
        if not (0 <= dimension.array_length <= _MAX_U64):
            raise invalid(f"the array {node.path} has the length {dimension.array_length}")
        if not (0 <= dimension.num_chunks <= MAX_NUM_CHUNKS):
            raise invalid(f"the array {node.path} has {dimension.num_chunks} chunks along one axis")


def _dimensions_v1(node: ArrayNode) -> npt.NDArray[np.void]:
    chunks = [(item.array_length, _chunk_length(node, item)) for item in node.shape]
    return np.array(chunks, DIMENSION_V1)


def _chunk_length(node: ArrayNode, dimension: Dimension) -> int:
    """A chunk length from which readers get the same number of chunks."""
    length, number = dimension.array_length, dimension.num_chunks
    chunk = -(-length // number) if number else 0
    readable = -(-length // chunk) if chunk else 0
    if readable != number or (length and not chunk):
        raise invalid(
            f"the array {node.path} cuts {length} into {number} chunks, which spec v1 cannot say"
        )
    return chunk


def _write_shape(writer: Writer, dimensions: Sequence[Dimension]) -> int:
    vector = writer.offsets(len(dimensions))
    for number, item in enumerate(dimensions, start=1):
        table = writer.table(_DIMENSION_V2, item.array_length, item.num_chunks)
        writer.link(vector + 4 * number, table)
    return vector


def _write_names(writer: Writer, names: Sequence[str | None]) -> int:
    vector = writer.offsets(len(names))
    for number, name in enumerate(names, start=1):
        table = writer.table(_DIMENSION_NAME, 0) if name else writer.table(_EMPTY)
        writer.link(vector + 4 * number, table)
        if name:
            writer.attach(table, _DIMENSION_NAME, 0, writer.text(name))
    return vector


def _write_manifests(writer: Writer, node: ArrayNode) -> int:
    manifests, rank = node.manifests, len(node.shape)
    _check_manifests(node.path, manifests, rank)
    layout = owning_layout(_MANIFEST_REF, 1, rank, 2 * rank)
    return writer.records([Records(layout, len(manifests), partial(_fill_manifests, manifests))])


def _fill_manifests(manifests: ManifestRefs, block: Block, rows: slice) -> None:
    block.set(0, manifests.ids[rows])
    boxes = manifests.extents[rows]
    block.set_items(boxes.reshape(len(boxes), -1))


def _check_manifests(path: str, manifests: ManifestRefs, rank: int) -> None:
    ids, extents = manifests.ids, manifests.extents
    if ids.dtype != ID12 or extents.dtype != np.uint32 or extents.shape != (len(ids), rank, 2):
        wanted = f"{len(ids)} manifests in {rank} dimensions"
        raise invalid(f"the array {path}: extents of the shape {extents.shape} for {wanted}")
    if (extents[:, :, 0] >= extents[:, :, 1]).any():
        raise invalid(f"the array {path}: extents of a manifest are empty or inverted")
