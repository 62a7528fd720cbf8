"""After a lost race: a batch that others' commits do not touch is brought onto them as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.conflicts import ConflictDetector
from icechunk_stream.errors import ObjectNotFoundError, RebaseFailedError, SessionStateError
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.reading import children
from icechunk_stream.stream.known import content_of
from icechunk_stream.stream.ledger_store import ledger_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.session import Session
    from icechunk_stream.stream.known import Content


def caught_up(
    session: Session, read: Callable[[str], SnapshotReader], group: str, app_id: str
) -> bool:
    """Rebase a session whose batch is written, if the batch would be the same on the new tip.

    It would not be where its stream has another ledger, or any array of its group was made or
    changed: labels, lengths and base chunks may be other ones. ``read`` opens a snapshot.
    """
    before = _footprint(read(session.snapshot_id), group, app_id)
    try:
        session.rebase(ConflictDetector())
    except (ObjectNotFoundError, RebaseFailedError, SessionStateError):
        # Where the branch was reset, or its history cut, the logs between are none or not there.
        return False
    return _footprint(read(session.snapshot_id), group, app_id) == before


def _footprint(reader: SnapshotReader, group: str, app_id: str) -> dict[str, Content]:
    """All that a batch depends on."""
    own = (reader.node(path) for path in (group, ledger_path(app_id)))
    arrays = [node for node in children(reader.nodes, group) if isinstance(node, ArrayNode)]
    nodes = [*(node for node in own if node is not None), *arrays]
    return {node.path: content_of(node) for node in nodes}
