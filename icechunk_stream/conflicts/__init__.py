"""Ours against theirs: which changes do not go together, and who decides about them. Pure."""

from icechunk_stream.conflicts.detect import NodesByPath, find_conflicts, gone_nodes
from icechunk_stream.conflicts.solvers import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictSolver,
    Patched,
    Resolution,
    Unsolvable,
    VersionSelection,
)

__all__ = [
    "BasicConflictSolver",
    "ConflictDetector",
    "ConflictSolver",
    "NodesByPath",
    "Patched",
    "Resolution",
    "Unsolvable",
    "VersionSelection",
    "find_conflicts",
    "gone_nodes",
]
