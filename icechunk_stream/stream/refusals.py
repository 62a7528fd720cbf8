"""How a batch stands to its stream's ledger, and what a user reads where it may not go on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from icechunk_stream.errors import (
    LedgerMissingError,
    StreamError,
    StreamGapError,
    StreamIdentityError,
    StreamRewoundError,
)


class Relation(Enum):
    """How a batch stands to the ledger."""

    FIRST = auto()
    NEXT = auto()
    REPEATED = auto()
    CHANGED = auto()
    OLDER = auto()
    GAP = auto()
    OTHER_QUERY = auto()
    FORMER_QUERY = auto()
    NO_LEDGER = auto()


class Excuse(Enum):
    """What a user may say to let such a batch go on all the same."""

    NONE = auto()
    GAPS = auto()
    ADOPT = auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error, its text with the facts left open, and what would excuse the batch."""

    error: type[StreamError]
    excuse: Excuse
    text: str


_FRESH = (
    "start the query on a fresh checkpoint whose sources begin at the offsets that the ledger"
    " holds, and hand the stream over with adopt=Adopt(query_id=<its id>, first_batch=0)"
)

REFUSALS: dict[Relation, Refusal] = {
    Relation.CHANGED: Refusal(
        StreamRewoundError,
        Excuse.NONE,
        "the stream {app!r} holds batch {batch} of query {query}, and what is given under that"
        " number now reads the sources differently: the checkpoint was set back and went on another"
        " way, or two queries run on copies of it. Stop all but one of them; if this batch's rows"
        " are needed, " + _FRESH,
    ),
    Relation.OLDER: Refusal(
        StreamRewoundError,
        Excuse.NONE,
        "the stream {app!r} holds batch {last_batch} of query {query}, and is given batch {batch}:"
        " the checkpoint was set back, or another driver runs on it and is ahead. Stop one of the"
        " drivers; if there is only this one, bring back the newer checkpoint, or " + _FRESH,
    ),
    Relation.GAP: Refusal(
        StreamGapError,
        Excuse.GAPS,
        "the stream {app!r} holds batch {last_batch} of query {query}, and is given batch {batch}:"
        " those between are missing, as after the branch was reset. To do without them, pass"
        " allow_gaps=True; to have their rows, " + _FRESH,
    ),
    Relation.OTHER_QUERY: Refusal(
        StreamIdentityError,
        Excuse.ADOPT,
        "the stream {app!r} was written by query {last_query} up to batch {last_batch}, and batch"
        " {batch} of query {query} is another's: its checkpoint is fresh, or belongs to another"
        " stream. If its sources go on where the ledger's offsets end, pass adopt={adopt}{given};"
        " if it is a stream of its own, give it an app_id of its own",
    ),
    Relation.FORMER_QUERY: Refusal(
        StreamIdentityError,
        Excuse.NONE,
        "the stream {app!r} was handed over from query {query}, which committed up to its batch"
        " {own_last}, to query {last_query}; now the former is back with its batch {batch}, whose"
        " rows were committed then{given}. Stop it; if it must go on in place of the other, "
        + _FRESH,
    ),
    Relation.NO_LEDGER: Refusal(
        LedgerMissingError,
        Excuse.ADOPT,
        "the branch holds no ledger of the stream {app!r}, and is given batch {batch} of query"
        " {query}, which is not its first: the app_id, the branch or the repository is not the one"
        " that took the batches before, or its history was replaced. Correct that; if the stream is"
        " to begin here, without their rows, pass adopt={adopt}{given}",
    ),
}
