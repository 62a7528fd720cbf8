"""Which columns of a manifest answer for an array, and that they are what the snapshot says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from icechunk_stream.assets import manifest_key
from icechunk_stream.errors import FormatError
from icechunk_stream.format.keys import KeySpace

if TYPE_CHECKING:
    from icechunk_stream.format.chunk_refs import RefColumns
    from icechunk_stream.format.manifest import Manifest
    from icechunk_stream.format.nodes import ArrayNode


def columns_of(manifest: Manifest, node: ArrayNode) -> RefColumns:
    """The references that a manifest holds for an array; it must hold some."""
    columns = manifest.arrays.get(node.id)
    if columns is None:
        key = manifest_key(manifest.id)
        raise FormatError(f"the array {node.path} uses it, but is not in it", key=key)
    return columns if len(columns) else _none_of(columns, len(node.shape))


def check_box(columns: RefColumns, node: ArrayNode, number: int) -> None:
    """References stay inside the extents that the snapshot gives, and those inside the grid."""
    if not len(columns):
        return
    key = manifest_key(node.manifests.id(number))
    if len(columns.lowest) != len(node.shape):
        rank = len(columns.lowest)
        raise FormatError(f"chunk indices of {node.path} have {rank} dimensions", key=key)
    box = node.manifests.extents[number].tolist()
    bounds = columns.space.bounds
    for (low, high), least, bound in zip(box, columns.lowest, bounds, strict=True):
        if not low <= least <= bound <= high:
            raise FormatError(f"chunk indices of {node.path} are outside of its extents", key=key)
    # Release 1.x kept a chunk at index 0 of an axis without length.
    if any(bound > max(chunks, 1) for bound, chunks in zip(bounds, node.grid, strict=True)):
        raise FormatError(f"chunk indices of {node.path} are beyond its grid", key=key)


def _none_of(columns: RefColumns, rank: int) -> RefColumns:
    """No references: a manifest without any does not tell how many dimensions they would have."""
    nothing = (0,) * rank
    return replace(columns, space=KeySpace.within(nothing), lowest=nothing)
