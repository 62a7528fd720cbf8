"""A repository: its refs and history, its settings, and sessions on its snapshots."""

from icechunk_stream.repository.repository import Repository

__all__ = ["Repository"]
