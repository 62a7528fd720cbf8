"""A group of arrays as plain cells: what streams and others leave behind, in their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Cell = tuple[int, ...]


@dataclass
class Array:
    """Cells that were written; all others hold the fill value."""

    dims: tuple[str, ...]
    fill: Any
    cells: dict[Cell, Any] = field(default_factory=dict)


@dataclass
class Group:
    """Labels by dimension, arrays by name, and attributes by node."""

    labels: dict[str, list[Any]]
    arrays: dict[str, Array]
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, dims: Sequence[str], fill: Any, values: Any = None) -> None:
        self.arrays[name] = Array(tuple(dims), fill)
        if values is not None:
            self.put(name, values)

    def put(self, name: str, values: Any, at: Cell | None = None) -> None:
        """Write a block of cells from a position on."""
        block = np.asarray(values)
        start = at or (0,) * block.ndim
        for cell in np.ndindex(block.shape):
            place = tuple(first + more for first, more in zip(start, cell, strict=True))
            self.arrays[name].cells[place] = block[cell].item()

    def truncate(self, dim: str, length: int) -> None:
        """Forget all cells from a position on."""
        del self.labels[dim][length:]
        for array in self.arrays.values():
            if dim in array.dims:
                at = array.dims.index(dim)
                kept = {cell: value for cell, value in array.cells.items() if cell[at] < length}
                array.cells = kept

    def forget(self, name: str) -> None:
        """Delete an array."""
        del self.arrays[name]
        self.attributes.pop(name, None)

    def write(self, rows: Mapping[str, Sequence[Any]], new_labels: Mapping[str, list[Any]]) -> None:
        """Take rows with one column per dimension and variable."""
        for dim, labels in new_labels.items():
            self.labels[dim] += labels
        for name, array in self.arrays.items():
            if name in rows:
                places = [map(self.labels[dim].index, rows[dim]) for dim in array.dims]
                array.cells |= zip(zip(*places, strict=True), rows[name], strict=True)

    def values(self, name: str) -> Any:
        """All cells of an array."""
        array = self.arrays[name]
        shape = tuple(len(self.labels[dim]) for dim in array.dims)
        full = [array.cells.get(cell, array.fill) for cell in product(*map(range, shape))]
        return np.array(full).reshape(shape)
