"""What becomes of rows while they are written, for the ledger and for the user."""

from __future__ import annotations

from collections import Counter
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from icechunk_stream.stream.rejected import BAD_COLUMN, BAD_REASON, MAX_BAD_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from icechunk_stream.stream.targets import Plan


@dataclass(slots=True)
class Tally:
    """Counts of one call of ``write_chunks``, and the rows whose values cannot be stored.

    ``duplicates`` counts values by column that another row for the same cell repeats or replaces.
    ``bad_rows`` keeps the first ``max_bad_rows``; ``bad`` counts all of them.
    """

    plan: InitVar[Plan]
    # One more than a batch may have tells that it has too many.
    max_bad_rows: int = MAX_BAD_ROWS + 1
    rows: int = 0
    bad: int = 0
    duplicates: Counter[str] = field(default_factory=Counter)
    bad_rows: list[pa.RecordBatch] = field(default_factory=list)
    columns: tuple[str, ...] = field(init=False)

    def __post_init__(self, plan: Plan) -> None:
        self.columns = tuple(target.column for target in plan.targets)

    def take_bad(
        self, batch: pa.RecordBatch, reasons: Sequence[npt.NDArray[np.uint8]]
    ) -> npt.NDArray[np.bool_]:
        """Keep the rows that have a reason in some column; which rows have none."""
        grid = np.stack(reasons)
        at = np.flatnonzero(grid.any(axis=0))
        room = max(self.max_bad_rows - self.bad, 0)
        if room:
            self.bad_rows.append(self._named(batch, grid, at[:room]))
        self.bad += len(at)
        return ~grid.any(axis=0)

    def _named(
        self, batch: pa.RecordBatch, grid: npt.NDArray[np.uint8], rows: npt.NDArray[np.intp]
    ) -> pa.RecordBatch:
        """Bad rows with the first column to blame, and its reason."""
        first = (grid[:, rows] != 0).argmax(axis=0)
        columns = np.array(self.columns)[first]
        kept = batch.take(pa.array(rows))
        arrays = [*kept.columns, pa.array(columns, pa.string()), pa.array(grid[first, rows])]
        return pa.RecordBatch.from_arrays(arrays, [*kept.schema.names, BAD_COLUMN, BAD_REASON])
