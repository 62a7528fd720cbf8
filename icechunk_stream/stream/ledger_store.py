"""Where ledgers are in a repository: each stream's is the group ``_icechunk_stream/<app_id>``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from icechunk_stream.errors import ErrorKind, FormatError, InvalidInputError
from icechunk_stream.format.nodes import ArrayNode, GroupNode
from icechunk_stream.reading import children
from icechunk_stream.stream.ledger_record import (
    EMPTY_GROUP,
    LedgerRecord,
    decode_record,
    encode_record,
    no_ledger,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.session import Session
    from icechunk_stream.stream.ledger import LedgerEntry

FOLDER = "/_icechunk_stream"
METADATA_KEY = "icechunk_stream"
MAX_APP_ID = 128

_APP_ID = re.compile(r"(?!__)[A-Za-z0-9_][A-Za-z0-9_.-]*")
_RESERVED = "zarr.json"


def check_app_id(app_id: object) -> str:
    """A name for a stream: one of a zarr node that every store takes.

    Raises:
        InvalidInputError: it is none.
    """
    is_name = isinstance(app_id, str) and len(app_id) <= MAX_APP_ID and app_id != _RESERVED
    if not is_name or _APP_ID.fullmatch(str(app_id)) is None:
        message = (
            f"the app_id is {app_id!r:.200}: name the stream with 1 to {MAX_APP_ID} of the"
            " characters A-Z a-z 0-9 _ . -, beginning with a letter, a digit or one '_', and keep"
            " that name for its whole life"
        )
        raise InvalidInputError(message, ErrorKind.INVALID_PATH)
    return str(app_id)


def ledger_path(app_id: str) -> str:
    """The path of a stream's group."""
    return f"{FOLDER}/{check_app_id(app_id)}"


def snapshot_metadata(app_id: str, batch_id: int, query_id: str) -> dict[str, Any]:
    """What the snapshot of a batch says of itself; small, since v2 repeats it in ``repo``."""
    return {METADATA_KEY: {"app_id": app_id, "batch_id": batch_id, "query_id": query_id}}


def is_of_batch(metadata: Mapping[str, Any], app_id: str, batch_id: int, query_id: str) -> bool:
    """Whether a snapshot's metadata says that it is that of a batch."""
    marker = snapshot_metadata(app_id, batch_id, query_id)[METADATA_KEY]
    return bool(metadata.get(METADATA_KEY) == marker)


def is_last_commit(entry: LedgerEntry | None, app_id: str, metadata: Mapping[str, Any]) -> bool:
    """Whether a snapshot's metadata say that it is that of a ledger's batch."""
    return entry is not None and is_of_batch(metadata, app_id, entry.batch_id, entry.query_id)


def read_record(reader: SnapshotReader, app_id: str) -> LedgerRecord | None:
    """All that a snapshot holds of a stream; None if it holds nothing.

    Raises:
        FormatError: what is at the path of the stream's ledger is none.
    """
    path = ledger_path(app_id)
    match reader.node(path):
        case None:
            return None
        case GroupNode(user_data=document):
            return decode_record(document, path)
        case ArrayNode():
            raise no_ledger(path, "an array is there")


def read_ledger(reader: SnapshotReader, app_id: str) -> LedgerEntry | None:
    """The last batch that a stream committed; None if it committed none.

    Raises:
        FormatError: what is at the path of the stream's ledger is none.
    """
    record = read_record(reader, app_id)
    return None if record is None else record.entry


def list_ledgers(reader: SnapshotReader) -> dict[str, LedgerRecord]:
    """The records of all streams of a snapshot, by app id.

    Raises:
        FormatError: one of them is none.
    """
    return {_app_id(node): decode_record(node.user_data, node.path) for node in _groups(reader)}


def list_waits(reader: SnapshotReader) -> dict[str, int]:
    """Until when streams ask others to hold back; what is no ledger asks for nothing."""
    found = {}
    for node in _groups(reader):
        try:
            until = decode_record(node.user_data, node.path).waiting_until
        except FormatError:
            continue
        if until is not None:
            found[_app_id(node)] = until
    return found


def write_ledger(session: Session, app_id: str, entry: LedgerEntry) -> None:
    """Put a batch into the session's commit; a request of the stream for the way ends with it."""
    _write(session, app_id, LedgerRecord(entry))


def write_waiting(session: Session, app_id: str, until: int | None) -> None:
    """Ask other streams to hold back until a time (microseconds since 1970 UTC), or no longer."""
    _write(session, app_id, LedgerRecord(read_ledger(session.reader, app_id), until))


def forget_ledger(session: Session, app_id: str) -> None:
    """Retire a stream: a later batch of it is judged as if it had never been."""
    session.edits.delete_node(ledger_path(app_id))


def _write(session: Session, app_id: str, record: LedgerRecord) -> None:
    path = ledger_path(app_id)
    document = encode_record(record, path)
    for parent in ("/", FOLDER):
        # zarr warns of nodes that stand in no group.
        session.edits.set_document_if_absent(parent, EMPTY_GROUP)
        if isinstance(session.reader.node(parent), ArrayNode):
            raise no_ledger(parent, "an array is there, and no group")
    session.edits.set_document(path, document)


def _groups(reader: SnapshotReader) -> list[GroupNode]:
    found = children(reader.nodes, FOLDER)
    return [node for node in found if isinstance(node, GroupNode)]


def _app_id(node: GroupNode) -> str:
    return node.path.rpartition("/")[2]
