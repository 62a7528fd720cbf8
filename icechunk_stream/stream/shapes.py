"""Lengths of chunks and shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.dimensions import Dimension, Fixed
from icechunk_stream.stream.frozen import FrozenMap

if TYPE_CHECKING:
    from collections.abc import Mapping

# A megabyte of 32-bit values: what a batch must read and write again if it touches one cell of it.
_CELLS = 2**18
# So that the cube root of 64 is no 3.
_ROUNDING = 1e-9
_LONGEST_KNOWN = 1_024
_LONGEST_OPEN = 2**14


def default_chunks(
    dims: Mapping[str, Dimension], given: Mapping[str, int], shards: Mapping[str, int]
) -> FrozenMap[str, int]:
    """Lengths for every dimension: listed ones whole, and growing ones share what is left."""
    known = {dim: _known(dimension) for dim, dimension in dims.items()}
    chosen = {dim: length for dim, length in known.items() if length is not None} | dict(given)
    cells = _CELLS
    for length in chosen.values():
        cells = max(1, cells // length)
    count = len(dims) - len(chosen)
    share = max(1, min(_LONGEST_OPEN, int(cells ** (1 / count) + _ROUNDING))) if count else 1
    return FrozenMap(
        {dim: given.get(dim) or _dividing(chosen.get(dim, share), shards.get(dim)) for dim in dims}
    )


def check_shards(name: str, chunks: tuple[int, ...], shards: tuple[int, ...] | None) -> None:
    """Refuse shards that do not hold whole chunks."""
    for chunk, shard in zip(chunks, shards or chunks, strict=True):
        if shard % chunk:
            message = f"the shards {shards} of {name!r} are no multiples of its chunks {chunks}"
            raise LayoutError(f"{message}: choose lengths that are")


def _known(dimension: Dimension) -> int | None:
    if isinstance(dimension, Fixed) and dimension.labels is not None:
        return min(len(dimension.labels), _LONGEST_KNOWN)
    return None


def _dividing(length: int, shard: int | None) -> int:
    """The longest chunk up to a length of which a shard holds whole ones."""
    if shard is None:
        return length
    return next(size for size in range(min(length, shard), 0, -1) if shard % size == 0)
