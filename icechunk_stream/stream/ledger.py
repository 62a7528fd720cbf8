"""Whether a batch of a stream may be committed: the stream's ledger against what the sink is given.

The ledger is part of every commit of the stream, so that the tip of the branch alone decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.stream.frozen import FrozenMap
from icechunk_stream.stream.refusals import REFUSALS, Excuse, Relation

if TYPE_CHECKING:
    from icechunk_stream.errors import StreamError
    from icechunk_stream.stream.identity import BatchOffsets
    from icechunk_stream.stream.refusals import Refusal

MAX_BATCH_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of a batch: those that came in, and what became of them."""

    received: int = 0
    written: int = 0
    late: int = 0
    duplicate: int = 0
    bad: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """When a batch began, in microseconds since 1970 UTC, and the seconds that its stages took."""

    started_at: int = 0
    seconds: FrozenMap[str, float] = field(default_factory=FrozenMap)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The last batch that a stream committed.

    ``earlier`` has the queries that wrote the stream before this one, and the last batch of each.
    ``digest`` and ``offsets`` are None where the sink was given no checkpoint location, and
    ``offsets`` also where they were too long to be kept.
    """

    query_id: str
    batch_id: int
    digest: str | None = None
    offsets: tuple[str, ...] | None = None
    counts: Counts = field(default_factory=Counts)
    timings: Timings = field(default_factory=Timings)
    earlier: FrozenMap[str, int] = field(default_factory=FrozenMap)

    def last_batch(self, query_id: str) -> int | None:
        """The last batch that a query committed to the stream; None for a query unknown to it."""
        return self.batch_id if query_id == self.query_id else self.earlier.get(query_id)


@dataclass(frozen=True, slots=True)
class Call:
    """What the sink is called with. Without ``offsets``, only ids are compared."""

    app_id: str
    query_id: str
    batch_id: int
    offsets: BatchOffsets | None = None

    def __post_init__(self) -> None:
        _check_batch(self.query_id, self.batch_id)


@dataclass(frozen=True, slots=True)
class Adopt:
    """Hands a stream over to a query, whose first batch for it is named; honoured once.

    It says "this batch of this query comes next". Once the ledger shows that the query committed
    the batch, that is over: the ledger remembers the last batch of every query that ever wrote the
    stream, so that a hand-over forgotten in the code does nothing when its checkpoint goes back in
    time, or when yet another query takes over.
    """

    query_id: str
    first_batch: int

    def __post_init__(self) -> None:
        _check_batch(self.query_id, self.first_batch)


@dataclass(frozen=True, slots=True)
class LedgerPolicy:
    """What a user allows. Where empty batches are not recorded, gaps are to be expected."""

    allow_gaps: bool = False
    adopt: Adopt | None = None
    record_empty_batches: bool = True

    @property
    def takes_gaps(self) -> bool:
        return self.allow_gaps or not self.record_empty_batches


@dataclass(frozen=True, slots=True)
class Proceed:
    """The batch is the next one. ``may_skip``: if it is empty, nothing needs to be committed."""

    call: Call
    earlier: FrozenMap[str, int]
    may_skip: bool

    def entry(
        self, counts: Counts, timings: Timings, offsets: BatchOffsets | None = None
    ) -> LedgerEntry:
        """What the ledger says once the batch is committed; offsets may have been read since."""
        found = offsets or self.call.offsets
        return LedgerEntry(
            query_id=self.call.query_id,
            batch_id=self.call.batch_id,
            digest=None if found is None else found.digest,
            offsets=None if found is None else found.lines,
            counts=counts,
            timings=timings,
            earlier=self.earlier,
        )


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The batch is in the branch: nothing is to be written."""

    entry: LedgerEntry


Judgement: TypeAlias = Proceed | AlreadyCommitted


def judge(entry: LedgerEntry | None, call: Call, policy: LedgerPolicy) -> Judgement:
    """Whether a batch is to be written, or is in the branch already.

    Raises:
        StreamRewoundError: the checkpoint went back in time.
        StreamGapError: batches are missing before this one.
        StreamIdentityError: another query delivers the batch than before.
        LedgerMissingError: the query is past its first batch, and the branch knows no stream.
    """
    relation = relate(entry, call)
    if entry is not None and relation is Relation.REPEATED:
        return AlreadyCommitted(entry)
    if relation in REFUSALS and not _is_excused(REFUSALS[relation].excuse, call, policy):
        raise _refused(REFUSALS[relation], entry, call, policy)
    return Proceed(call, _earlier(entry, call), _may_skip(entry, call, policy))


def relate(entry: LedgerEntry | None, call: Call) -> Relation:
    if entry is None:
        return Relation.NO_LEDGER if call.batch_id else Relation.FIRST
    if call.query_id != entry.query_id:
        known = entry.earlier.get(call.query_id, -1)
        return Relation.OTHER_QUERY if call.batch_id > known else Relation.FORMER_QUERY
    if call.batch_id == entry.batch_id:
        return Relation.REPEATED if _same_offsets(entry, call) else Relation.CHANGED
    if call.batch_id < entry.batch_id:
        return Relation.OLDER
    return Relation.NEXT if call.batch_id == entry.batch_id + 1 else Relation.GAP


def needs_offsets(entry: LedgerEntry | None, call: Call) -> bool:
    """Whether the judgement depends on the offsets of the batch: otherwise they can come later."""
    return entry is not None and relate(entry, call) is Relation.REPEATED


def _same_offsets(entry: LedgerEntry, call: Call) -> bool:
    return call.offsets is None or entry.digest is None or call.offsets.digest == entry.digest


def _is_excused(excuse: Excuse, call: Call, policy: LedgerPolicy) -> bool:
    match excuse:
        case Excuse.NONE:
            return False
        case Excuse.GAPS:
            return policy.takes_gaps
        case Excuse.ADOPT:
            return policy.adopt == Adopt(call.query_id, call.batch_id)


def _earlier(entry: LedgerEntry | None, call: Call) -> FrozenMap[str, int]:
    """The last batches of all queries but the one that goes on."""
    if entry is None:
        return FrozenMap()
    known = {**entry.earlier, entry.query_id: entry.batch_id}
    return FrozenMap({id: last for id, last in known.items() if id != call.query_id})


def _may_skip(entry: LedgerEntry | None, call: Call, policy: LedgerPolicy) -> bool:
    """A query's first batch is recorded even if it is empty, or its second would be refused."""
    is_known = entry is not None and entry.query_id == call.query_id
    return is_known and not policy.record_empty_batches


def _refused(
    refusal: Refusal, entry: LedgerEntry | None, call: Call, policy: LedgerPolicy
) -> StreamError:
    text = refusal.text.format(
        app=call.app_id,
        query=call.query_id,
        batch=call.batch_id,
        last_query=entry.query_id if entry else None,
        last_batch=entry.batch_id if entry else None,
        own_last=entry.last_batch(call.query_id) if entry else None,
        adopt=Adopt(call.query_id, call.batch_id),
        given=f" (the one given is {policy.adopt})" if policy.adopt else "",
    )
    return refusal.error(text)


def _check_batch(query_id: object, batch_id: object) -> None:
    if not isinstance(query_id, str) or not query_id.strip():
        raise InvalidInputError(f"the query id is {query_id!r}: give the id of a streaming query")
    is_number = isinstance(batch_id, int) and not isinstance(batch_id, bool)
    if not is_number or batch_id not in range(MAX_BATCH_ID + 1):
        raise InvalidInputError(f"the batch id is {batch_id!r}: give a number from 0 up")
