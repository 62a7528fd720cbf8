"""Rows in the order in which tasks get them: those of one unit side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from icechunk_stream.stream.targets import Plan


def by_unit(table: pa.Table, plan: Plan) -> pa.Table:
    """The rows unit by unit, in their old order within each."""
    units = [
        table[f"#{name}"].to_numpy() // size
        for name, size in zip(plan.dims, plan.unit, strict=True)
    ]
    return table.combine_chunks().take(pa.array(np.lexsort(units[::-1])))
