"""Changes of chunks in the order of their indices, the last change of each, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from icechunk_stream.format.keys import KeySpace, ascending
from icechunk_stream.format.ref_rows import chosen_rows, joined, payload_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.format.chunk_refs import ChunkPayload
    from icechunk_stream.format.keys import Keys
    from icechunk_stream.format.ref_tables import RefTable


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rows in ascending order of their indices, each index once."""

    table: RefTable
    space: KeySpace
    keys: Keys

    @classmethod
    def of(cls, tables: Sequence[RefTable]) -> Self:
        """The rows of tables; of those with one index, that of the last table."""
        table = joined(tables)
        bounds = [int(top) + 1 for top in table.indices.max(axis=0)] if len(table) else []
        space = KeySpace.within(bounds or [0] * table.rank)
        keys = space.pack(table.indices)
        if ascending(keys):
            return cls(table, space, keys)
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        last = np.ones(len(order), np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=last[:-1])
        kept = order[last]
        return cls(chosen_rows(table, kept), space, keys[kept])

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, index: Sequence[int]) -> int | None:
        """Row of an index, if it is among them."""
        key = self.space.pack_one(index)
        if key is None or not len(self.keys):
            return None
        row = int(np.searchsorted(self.keys, key))
        return row if row < len(self.keys) and self.keys[row] == key else None

    def payload(self, row: int) -> ChunkPayload | None:
        return payload_of(self.table, row)

    def holds(self, indices: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Which of some indices are among the rows."""
        inside = (indices < np.array(self.space.bounds, np.uint64)).all(axis=1)
        found = np.zeros(len(indices), np.bool_)
        if not len(self.keys):
            return found
        sought = self.space.pack(indices[inside])
        at = np.minimum(np.searchsorted(self.keys, sought), len(self.keys) - 1)
        found[inside] = self.keys[at] == sought
        return found

    def without(self, rows: npt.NDArray[np.bool_]) -> Run:
        """The run without some of its rows."""
        return Run(chosen_rows(self.table, ~rows), self.space, self.keys[~rows])
