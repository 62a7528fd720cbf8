"""What can stand between two changes of one repository."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ConflictType(Enum):
    """Kinds of conflicts between two changes; the value is the reference library's number."""

    NewNodeConflictsWithExistingNode = (1,)
    NewNodeInInvalidGroup = (2,)
    ZarrMetadataDoubleUpdate = (3,)
    ZarrMetadataUpdateOfDeletedArray = (4,)
    ZarrMetadataUpdateOfDeletedGroup = (5,)
    ChunkDoubleUpdate = (6,)
    ChunksUpdatedInDeletedArray = (7,)
    ChunksUpdatedInUpdatedArray = (8,)
    DeleteOfUpdatedArray = (9,)
    DeleteOfUpdatedGroup = (10,)
    MoveOperationCannotBeRebased = (11,)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A change of ours that does not go with one of theirs."""

    conflict_type: ConflictType
    path: str
    conflicted_chunks: list[list[int]] | None = None

    def __str__(self) -> str:
        chunks = self.conflicted_chunks
        where = self.path if chunks is None else f"{self.path}, {len(chunks)} chunks"
        return f"{self.conflict_type.name} at {where}"
