"""The bytes of a stream's ledger: a zarr.json of a plain group, whose attributes are the record.

Whoever may write to the repository writes them, so they are no more trusted than its other bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from icechunk_stream.errors import ErrorKind, FormatError, InvalidInputError
from icechunk_stream.format.json_nesting import check_json_nesting
from icechunk_stream.stream.frozen import FrozenMap
from icechunk_stream.stream.ledger import MAX_BATCH_ID, Counts, LedgerEntry, Timings

T = TypeVar("T")

# Longer ones, as of thousands of Kafka partitions, would weigh on every snapshot of the stream.
MAX_OFFSETS = 64 * 2**10
EMPTY_GROUP = b'{"zarr_format":3,"node_type":"group","attributes":{}}'

_VERSION = 1

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_BATCH_ID)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_QueryId = Annotated[str, msgspec.Meta(pattern=r"\S")]


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """All that is stored of a stream: a request for the way may come before the first batch."""

    entry: LedgerEntry | None = None
    waiting_until: int | None = None


class _Rows(msgspec.Struct, rename={"received": "in"}):
    received: _Count = 0
    written: _Count = 0
    late: _Count = 0
    duplicate: _Count = 0
    bad: _Count = 0


class _Version(msgspec.Struct):
    version: int


class _Head(msgspec.Struct):
    batch_id: _Count | None = None
    waiting_until: _Count | None = None


class _Batch(msgspec.Struct, omit_defaults=True):
    batch_id: _Count
    query_id: _QueryId
    digest: str | None = None
    offsets: tuple[str, ...] | None = None
    rows: _Rows = msgspec.field(default_factory=_Rows)
    started_at: _Count = 0
    seconds: dict[str, _Seconds] = {}
    earlier: dict[_QueryId, _Count] = {}


class _Group(msgspec.Struct):
    attributes: msgspec.Raw


def encode_record(record: LedgerRecord, path: str) -> bytes:
    """The zarr.json of a stream's group.

    Raises:
        InvalidInputError: the record holds what could not be read back, such as a negative count.
    """
    attributes: dict[str, Any] = {"version": _VERSION}
    if record.waiting_until is not None:
        attributes["waiting_until"] = record.waiting_until
    if record.entry is not None:
        attributes |= msgspec.to_builtins(_stored(record.entry))
    document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    try:
        encoded = msgspec.json.encode(document)
        decode_record(encoded, path)
    except (FormatError, ValueError, OverflowError) as error:
        message = f"a batch cannot be recorded in the ledger at {path}, since it could not be read"
        raise InvalidInputError(f"{message} back: {error}", ErrorKind.BAD_METADATA) from error
    return encoded


def decode_record(document: bytes, path: str) -> LedgerRecord:
    """What the zarr.json of a stream's group holds.

    Raises:
        FormatError: its attributes are no ledger, or one of a newer release.
    """
    check_json_nesting(document, where=path)
    try:
        raw = _decode(document, _Group).attributes
        version = _decode(raw, _Version).version
        if version != _VERSION:
            raise _unknown_version(path, version)
        head = _decode(raw, _Head)
        entry = None if head.batch_id is None else _entry(_decode(raw, _Batch))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise no_ledger(path, str(error)) from error
    return LedgerRecord(entry, head.waiting_until)


def no_ledger(path: str, why: str) -> FormatError:
    """What is in the place of a ledger is none."""
    message = (
        f"this is no ledger of a stream ({why}): put the group back as it is in an earlier snapshot"
        " of the branch, or delete it and hand the stream over with adopt="
    )
    return FormatError(message, key=path)


def _decode(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    return msgspec.json.decode(data, type=kind)


def _stored(entry: LedgerEntry) -> _Batch:
    counts = entry.counts
    numbers = (counts.received, counts.written, counts.late, counts.duplicate, counts.bad)
    return _Batch(
        batch_id=entry.batch_id,
        query_id=entry.query_id,
        digest=entry.digest,
        offsets=_kept(entry.offsets),
        rows=_Rows(*map(int, numbers)),
        started_at=entry.timings.started_at,
        seconds={stage: float(took) for stage, took in entry.timings.seconds.items()},
        earlier=dict(entry.earlier),
    )


def _kept(offsets: tuple[str, ...] | None) -> tuple[str, ...] | None:
    is_short = offsets is not None and sum(map(len, offsets)) <= MAX_OFFSETS
    return offsets if is_short else None


def _entry(batch: _Batch) -> LedgerEntry:
    rows = batch.rows
    return LedgerEntry(
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        digest=batch.digest,
        offsets=batch.offsets,
        counts=Counts(rows.received, rows.written, rows.late, rows.duplicate, rows.bad),
        timings=Timings(batch.started_at, FrozenMap(batch.seconds)),
        earlier=FrozenMap(batch.earlier),
    )


def _unknown_version(path: str, version: int) -> FormatError:
    message = (
        f"the ledger has version {version}, and this release knows {_VERSION}: use the release that"
        " the stream's other writers have"
    )
    return FormatError(message, ErrorKind.UNSUPPORTED_SPEC_VERSION, key=path)
