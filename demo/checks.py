"""What is in the repository, row by row against what was sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from demo.stations import VARIABLES

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Comparison:
    """How a dataset differs from the truth."""

    library: str
    rows: int
    missing: int
    wrong: int
    extra: int

    @property
    def is_equal(self) -> bool:
        return not (self.missing or self.wrong or self.extra)

    def __str__(self) -> str:
        if self.is_equal:
            return f"{self.library}: all {self.rows:,} rows are there, each once, and nothing else"
        return (
            f"{self.library}: of {self.rows:,} rows {self.missing:,} are missing and {self.wrong:,}"
            f" have other values; {self.extra:,} cells are set that nobody sent"
        )


def compare(library: str, found: xr.Dataset, truth: pd.DataFrame) -> Comparison:
    """Look up every row of the truth by its labels, and count the cells that are left."""
    at = [_positions(found, truth, name) for name in ("time", "station")]
    known = (at[0] >= 0) & (at[1] >= 0)
    missing, wrong = ~known, np.zeros(len(truth), np.bool_)
    extra = 0
    for name in VARIABLES:
        cells = found[name].transpose("time", "station").to_numpy()
        values = np.full(len(truth), np.nan, cells.dtype)
        values[known] = cells[at[0][known], at[1][known]]
        missing |= np.isnan(values)
        wrong |= ~np.isnan(values) & (values != truth[name].to_numpy())
        extra += int((~np.isnan(cells)).sum() - (~np.isnan(values)).sum())
    return Comparison(library, len(truth), int(missing.sum()), int(wrong.sum()), extra)


def _positions(found: xr.Dataset, truth: pd.DataFrame, name: str) -> Any:
    index = pd.Index(found[name].to_numpy())
    if not index.is_unique:
        raise ValueError(f"labels of {name!r} are there twice")
    return index.get_indexer(pd.Index(truth[name]))


@dataclass(frozen=True)
class Snapshot:
    """One of the history; ``batch`` is None for the first, which is empty."""

    id: str
    batch: int | None


def history(repository: Any) -> list[Snapshot]:
    """Snapshots from the first to the last."""
    found = list(repository.ancestry(branch="main"))[::-1]
    told = [snapshot.metadata.get("icechunk_stream", {}) for snapshot in found]
    return [
        Snapshot(snapshot.id, each.get("batch_id"))
        for snapshot, each in zip(found, told, strict=True)
    ]


def is_every_batch_once(snapshots: list[Snapshot], batches: int) -> bool:
    return [each.batch for each in snapshots if each.batch is not None] == list(range(batches))
