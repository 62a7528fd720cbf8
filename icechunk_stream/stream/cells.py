"""Into which cells the references of a new array are cut: each has a manifest, or a few."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from icechunk_stream.config import SplitAxis
from icechunk_stream.format.nodes import ArrayNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from icechunk_stream.manifests.managed_rules import CellSizes
    from icechunk_stream.session import Session
    from icechunk_stream.stream.axes import Axis

# References of a full cell, at most.
CELL_REFS = 2**17
# What an axis beside the quickest one may grow to within one cell, if it has fewer chunks now.
_ROOM = 16


@dataclass(frozen=True, slots=True)
class GridAxis:
    """One axis of a chunk grid: its chunks after the first batch, and whether more will come."""

    chunks: int
    growing: bool
    is_time: bool = False


def cells_of_new_arrays(session: Session, axes: Iterable[Axis]) -> dict[str, CellSizes]:
    """The cells of the growing arrays that a session made, by path."""
    known = {axis.name: axis for axis in axes}
    made = [node for node in session.created if isinstance(node, ArrayNode)]
    cells = {node.path: cell_sizes(_grid(node, known)) for node in made}
    return {path: sizes for path, sizes in cells.items() if sizes}


def cell_sizes(axes: Sequence[GridAxis], bound: int = CELL_REFS) -> CellSizes:
    """Chunks of a cell along each growing axis, powers of two; nothing where no axis grows.

    Fixed axes are cut only where they alone have more chunks than the bound. The time, or else the
    first growing axis, gets what the others leave: twice what they have now, and 16 at least.
    """
    growing = [number for number, axis in enumerate(axes) if axis.growing]
    if not growing:
        return ()
    fixed = {number: max(axis.chunks, 1) for number, axis in enumerate(axes) if not axis.growing}
    cut = _cut(fixed, bound)
    sizes = {number: size for number, size in cut.items() if size < fixed[number]}
    left = _power_below(bound // prod(cut.values()))
    quickest = next((number for number in growing if axes[number].is_time), growing[0])
    for number in growing:
        if number != quickest:
            sizes[number] = min(_power_above(max(2 * axes[number].chunks, _ROOM)), left)
            left //= sizes[number]
    sizes[quickest] = left
    return tuple((SplitAxis(number), sizes[number]) for number in sorted(sizes))


def _cut(chunks: Mapping[int, int], bound: int) -> dict[int, int]:
    """Halve the longest axis until a cell is small enough."""
    sizes = dict(chunks)
    while prod(sizes.values()) > bound:
        longest = max(sizes, key=lambda number: sizes[number])
        sizes[longest] = -(-sizes[longest] // 2)
    return sizes


def _power_below(count: int) -> int:
    """The largest power of two that is no more."""
    return 1 << (count.bit_length() - 1)


def _power_above(count: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << (count - 1).bit_length()


def _grid(node: ArrayNode, axes: Mapping[str, Axis]) -> list[GridAxis]:
    along = [axes[name] for name in node.dimension_names or () if name is not None]
    return [
        GridAxis(chunks, axis.growing, axis.encoding.units is not None)
        for chunks, axis in zip(node.grid, along, strict=True)
    ]
