"""What manifests really hold of each array, where the snapshot does not tell."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from icechunk_stream.manifests.lookup import check_box, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from icechunk_stream.assets import Assets
    from icechunk_stream.format.chunk_refs import RefColumns
    from icechunk_stream.format.ids import ManifestId
    from icechunk_stream.format.nodes import ArrayNode
    from icechunk_stream.manifests.rebuild import Grid

Cell: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What one manifest holds of one array; ``crosses`` if its box is not within a cell."""

    node: ArrayNode
    number: int
    grid: Grid
    crosses: bool

    @property
    def id(self) -> ManifestId:
        return self.node.manifests.id(self.number)

    @property
    def key(self) -> tuple[bytes, ...]:
        return (self.id.raw, self.node.id.raw, *([self.grid.sizes.tobytes()] * self.crosses))

    @staticmethod
    def columns_in(shares: Sequence[Share], assets: Assets) -> list[RefColumns]:
        """References of some arrays in one manifest, which is not remembered."""
        id = shares[0].id
        manifest = assets.cached_manifest(id) or assets.fetch_manifest(id)
        found = []
        for share in shares:
            columns = columns_of(manifest, share.node)
            check_box(columns, share.node, share.number)
            found.append(columns)
        return found


class Survey:
    """Counts and cells by manifest and array, known for as long as a compaction takes."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets
        self._counts: dict[tuple[bytes, ...], int] = {}
        self._cells: dict[tuple[bytes, ...], tuple[Cell, ...]] = {}

    def count(self, share: Share) -> int | None:
        """How many references there are, if that was measured."""
        return self._counts.get(share.key)

    def cells(self, share: Share) -> tuple[Cell, ...] | None:
        """The cells that have some of the references, if that was measured."""
        return self._cells.get(share.key)

    def measure(self, shares: Iterable[Share]) -> None:
        """Read the manifests of shares that are not known, a few at a time."""
        by_id: dict[ManifestId, list[Share]] = defaultdict(list)
        for share in shares:
            if share.key not in self._counts:
                by_id[share.id].append(share)
        calls = [partial(self._measure, each) for each in by_id.values()]
        window = self._assets.storage.concurrency
        for first in range(0, len(calls), window):
            self._assets.storage.together(calls[first : first + window])

    def _measure(self, shares: list[Share]) -> None:
        for share, columns in zip(shares, Share.columns_in(shares, self._assets), strict=True):
            self._counts[share.key] = len(columns)
            if share.crosses:
                self._cells[share.key] = _cells(columns.indices(), share.grid)


def _cells(indices: npt.NDArray[np.uint32], grid: Grid) -> tuple[Cell, ...]:
    _, firsts = np.unique(grid.cells(indices), return_index=True)
    return tuple(map(tuple, (indices[firsts] // grid.sizes).tolist()))
