"""Rows whose values an array cannot store, as bad rows of their batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from icechunk_stream.stream.bad_rows import BadRows
from icechunk_stream.stream.tally import BAD_COLUMN, BAD_REASON

if TYPE_CHECKING:
    from icechunk_stream.stream.tally import Tally


def bad_values(tally: Tally) -> BadRows:
    """The rows that were found while chunks were made, as many as were kept."""
    found = BadRows()
    for batch in tally.bad_rows:
        columns = batch.column(BAD_COLUMN).to_numpy(zero_copy_only=False)
        for name in np.unique(columns):
            rows = batch.filter(pa.array(columns == name))
            reasons = rows.column(BAD_REASON).to_numpy()
            found = found.with_reasons(name, rows.column(name), reasons)
    return found
