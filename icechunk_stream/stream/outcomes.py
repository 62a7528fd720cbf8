"""What became of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from icechunk_stream.stream.ledger import Counts


@dataclass(frozen=True, slots=True)
class Committed:
    """The batch is a snapshot of its own."""

    batch_id: int
    snapshot_id: str
    counts: Counts
    chunks: int
    lost_races: int
    seconds: float

    def __str__(self) -> str:
        races = f", {self.lost_races} lost races" if self.lost_races else ""
        return (
            f"batch {self.batch_id}: {self.counts.written} of {self.counts.received} rows in"
            f" {self.chunks} chunks, snapshot {self.snapshot_id}, {self.seconds:.2f} s{races}"
        )


@dataclass(frozen=True, slots=True)
class Repeated:
    """The batch was committed before: nothing was written.

    ``snapshot_id`` is None where the history no longer has its snapshot.
    """

    batch_id: int
    snapshot_id: str | None

    def __str__(self) -> str:
        return f"batch {self.batch_id}: committed before, snapshot {self.snapshot_id}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """The batch had no rows, and empty batches are not recorded."""

    batch_id: int

    def __str__(self) -> str:
        return f"batch {self.batch_id}: no rows, nothing was committed"


BatchOutcome: TypeAlias = Committed | Repeated | Skipped
