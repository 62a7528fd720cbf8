"""What readers ask of references, whether they were decoded or are still to be written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from icechunk_stream.format.ref_tables import RefTable


class RefView(Protocol):
    """References of one array as columns; row ``i`` of each belongs to the ``i``-th index."""

    def __len__(self) -> int: ...

    @property
    def kinds(self) -> npt.NDArray[np.uint8]: ...

    @property
    def offsets(self) -> npt.NDArray[np.uint64]: ...

    @property
    def lengths(self) -> npt.NDArray[np.uint64]: ...

    @property
    def chunk_ids(self) -> npt.NDArray[np.void] | None: ...

    def indices(
        self, rows: slice | npt.NDArray[np.intp] | None = None
    ) -> npt.NDArray[np.uint32]: ...

    def locations(self, rows: npt.NDArray[np.intp]) -> pa.Array: ...

    def inline(self, row: int) -> bytes: ...


@dataclass(frozen=True, slots=True, eq=False)
class TableView:
    """A table of references as readers see it."""

    table: RefTable

    def __len__(self) -> int:
        return len(self.table)

    @property
    def kinds(self) -> npt.NDArray[np.uint8]:
        return self.table.kinds

    @property
    def offsets(self) -> npt.NDArray[np.uint64]:
        return self.table.offsets

    @property
    def lengths(self) -> npt.NDArray[np.uint64]:
        return self.table.lengths

    @property
    def chunk_ids(self) -> npt.NDArray[np.void] | None:
        return self.table.chunk_ids

    def indices(self, rows: slice | npt.NDArray[np.intp] | None = None) -> npt.NDArray[np.uint32]:
        return self.table.indices if rows is None else self.table.indices[rows]

    def locations(self, rows: npt.NDArray[np.intp]) -> pa.Array:
        assert self.table.locations is not None
        return self.table.locations.take(rows)

    def inline(self, row: int) -> bytes:
        assert self.table.inline is not None
        data: bytes = self.table.inline[row].as_py()
        return data
