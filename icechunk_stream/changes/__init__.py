"""What a session means to change: pure, and columns wherever chunks are concerned."""

from icechunk_stream.changes.change_set import ChangeSet, DeletedNode
from icechunk_stream.changes.chunk_changes import ChunkChanges, Unchanged

__all__ = ["ChangeSet", "ChunkChanges", "DeletedNode", "Unchanged"]
