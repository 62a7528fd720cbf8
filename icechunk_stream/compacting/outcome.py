"""What became of a compaction, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from icechunk_stream.format.snapshot import ManifestFile


@dataclass(frozen=True, slots=True)
class ManifestTotals:
    """The manifests of a snapshot, their bytes, and their references."""

    manifests: int
    size_bytes: int
    refs: int

    @classmethod
    def of(cls, files: Iterable[ManifestFile]) -> Self:
        listed = list(files)
        return cls(
            len(listed),
            sum(file.size_bytes for file in listed),
            sum(file.num_chunk_refs for file in listed),
        )

    def __str__(self) -> str:
        return f"{self.manifests} manifests of {self.refs} references, {self.size_bytes} bytes"


@dataclass(frozen=True, slots=True)
class CompactionProgress:
    """How much of what has to be written is; after a lost race, there may be more to do."""

    refs_written: int
    refs_to_write: int
    lost_races: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """The manifests of a branch were laid out anew by this snapshot."""

    snapshot_id: str
    before: ManifestTotals
    after: ManifestTotals
    written: ManifestTotals
    lost_races: int
    seconds: float

    def __str__(self) -> str:
        races = f", {self.lost_races} lost races" if self.lost_races else ""
        return (
            f"snapshot {self.snapshot_id}: {self.before} became {self.after}; wrote {self.written}"
            f" in {self.seconds:.2f} s{races}"
        )


@dataclass(frozen=True, slots=True)
class AlreadyCompact:
    """Nothing was written: the branch's tip is laid out as well as can be."""

    snapshot_id: str
    now: ManifestTotals

    def __str__(self) -> str:
        return f"snapshot {self.snapshot_id}: {self.now}, nothing to do"


CompactionOutcome: TypeAlias = Compacted | AlreadyCompact
