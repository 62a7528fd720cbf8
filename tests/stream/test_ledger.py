"""What the ledger says, against what the sink is called with: every row of the table."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import (
    InvalidInputError,
    LedgerMissingError,
    StreamError,
    StreamGapError,
    StreamIdentityError,
    StreamRewoundError,
)
from icechunk_stream.stream.frozen import FrozenMap
from icechunk_stream.stream.identity import BatchOffsets
from icechunk_stream.stream.ledger import (
    Adopt,
    AlreadyCommitted,
    Call,
    Counts,
    LedgerEntry,
    LedgerPolicy,
    Proceed,
    Timings,
    judge,
    needs_offsets,
)

STRICT = LedgerPolicy()
HERE, THERE = BatchOffsets(("10",)), BatchOffsets(("11",))


def call(query_id: str, batch_id: int, offsets: BatchOffsets | None = HERE) -> Call:
    return Call("obs", query_id, batch_id, offsets)


def entry(query_id: str, batch_id: int, **earlier: int) -> LedgerEntry:
    return LedgerEntry(query_id, batch_id, HERE.digest, HERE.lines, earlier=FrozenMap(earlier))


def refused(found: LedgerEntry | None, asked: Call, policy: LedgerPolicy = STRICT) -> StreamError:
    with pytest.raises(StreamError) as caught:
        judge(found, asked, policy)
    return caught.value


def goes_on(found: LedgerEntry | None, asked: Call, policy: LedgerPolicy = STRICT) -> bool:
    return isinstance(judge(found, asked, policy), Proceed)


# -- the rows of the table -------------------------------------------------------------------------


def test_the_same_batch_with_the_same_offsets_is_committed_already() -> None:
    assert judge(entry("a", 4), call("a", 4), STRICT) == AlreadyCommitted(entry("a", 4))


def test_the_same_batch_with_other_offsets_tells_of_a_rewound_checkpoint() -> None:
    error = refused(entry("a", 4), call("a", 4, THERE))

    assert isinstance(error, StreamRewoundError)
    assert "batch 4 of query a" in str(error)


@pytest.mark.parametrize("batch_id", [0, 3])
def test_an_older_batch_tells_of_a_rewound_checkpoint(batch_id: int) -> None:
    error = refused(entry("a", 4), call("a", batch_id))

    assert isinstance(error, StreamRewoundError)
    assert f"holds batch 4 of query a, and is given batch {batch_id}" in str(error)


def test_the_next_batch_goes_on() -> None:
    assert judge(entry("a", 4), call("a", 5), STRICT) == Proceed(
        call("a", 5), FrozenMap(), may_skip=False
    )


def test_a_gap_is_refused_unless_it_is_allowed() -> None:
    error = refused(entry("a", 4), call("a", 6))

    assert isinstance(error, StreamGapError)
    assert "allow_gaps=True" in str(error)
    assert goes_on(entry("a", 4), call("a", 6), LedgerPolicy(allow_gaps=True))


def test_unrecorded_empty_batches_make_gaps_allowed() -> None:
    assert goes_on(entry("a", 4), call("a", 9), LedgerPolicy(record_empty_batches=False))


def test_another_query_is_refused_with_the_hand_over_to_write() -> None:
    error = refused(entry("a", 4), call("b", 0))

    assert isinstance(error, StreamIdentityError)
    assert "written by query a up to batch 4" in str(error)
    assert "adopt=Adopt(query_id='b', first_batch=0)" in str(error)


def test_a_hand_over_lets_its_query_and_its_batch_go_on() -> None:
    policy = LedgerPolicy(adopt=Adopt(query_id="b", first_batch=0))

    assert judge(entry("a", 4), call("b", 0), policy) == Proceed(
        call("b", 0), FrozenMap({"a": 4}), may_skip=False
    )


@pytest.mark.parametrize("adopt", [Adopt("b", 1), Adopt("c", 0), Adopt("a", 0)])
def test_a_hand_over_of_another_query_or_batch_does_not_count(adopt: Adopt) -> None:
    error = refused(entry("a", 4), call("b", 0), LedgerPolicy(adopt=adopt))

    assert isinstance(error, StreamIdentityError)
    assert f"(the one given is {adopt})" in str(error)


def test_gaps_that_are_allowed_let_no_other_query_go_on() -> None:
    assert isinstance(
        refused(entry("a", 4), call("b", 5), LedgerPolicy(allow_gaps=True)), StreamIdentityError
    )


def test_the_first_batch_of_a_stream_without_a_ledger_goes_on() -> None:
    assert judge(None, call("a", 0), STRICT) == Proceed(call("a", 0), FrozenMap(), may_skip=False)


@pytest.mark.parametrize("policy", [STRICT, LedgerPolicy(allow_gaps=True)])
def test_a_later_batch_without_a_ledger_is_refused(policy: LedgerPolicy) -> None:
    error = refused(None, call("a", 7), policy)

    assert isinstance(error, LedgerMissingError)
    assert "adopt=Adopt(query_id='a', first_batch=7)" in str(error)


def test_a_later_batch_without_a_ledger_goes_on_after_a_hand_over() -> None:
    assert goes_on(None, call("a", 7), LedgerPolicy(adopt=Adopt("a", 7)))
    assert not isinstance(refused(None, call("a", 8), LedgerPolicy(adopt=Adopt("a", 7))), str)


@pytest.mark.parametrize(
    ("stored", "asked"), [(HERE.digest, None), (None, HERE), (None, None)], ids=str
)
def test_only_ids_are_compared_where_offsets_are_unknown(
    stored: str | None, asked: BatchOffsets | None
) -> None:
    known = LedgerEntry("a", 4, stored)

    assert isinstance(judge(known, call("a", 4, asked), STRICT), AlreadyCommitted)


def test_offsets_are_needed_only_for_a_batch_that_seems_committed() -> None:
    asked = [call("a", 4, None), call("a", 5, None), call("a", 3, None), call("b", 4, None)]

    assert [needs_offsets(entry("a", 4), one) for one in asked] == [True, False, False, False]
    assert not needs_offsets(None, call("a", 0, None))


# -- hand-overs are honoured once ------------------------------------------------------------------


def commit(found: LedgerEntry | None, asked: Call, policy: LedgerPolicy = STRICT) -> LedgerEntry:
    answer = judge(found, asked, policy)
    assert isinstance(answer, Proceed)
    return answer.entry(Counts(), Timings())


def test_a_hand_over_that_stays_in_the_code_does_no_harm() -> None:
    policy = LedgerPolicy(adopt=Adopt("b", 0))
    found = commit(entry("a", 4), call("b", 0), policy)

    found = commit(found, call("b", 1), policy)

    assert (found.query_id, found.batch_id) == ("b", 1)
    assert isinstance(refused(found, call("b", 0), policy), StreamRewoundError)


def test_a_hand_over_is_stale_once_its_batch_was_committed() -> None:
    old = LedgerPolicy(adopt=Adopt("b", 0))
    found = commit(entry("a", 4), call("b", 0), old)
    found = commit(found, call("c", 0), LedgerPolicy(adopt=Adopt("c", 0)))

    error = refused(found, call("b", 0), old)

    assert isinstance(error, StreamIdentityError)
    assert "whose rows were committed then" in str(error)


def test_a_hand_over_of_the_very_first_batch_is_stale_after_it() -> None:
    policy = LedgerPolicy(adopt=Adopt("a", 0))
    found = commit(
        commit(None, call("a", 0), policy), call("b", 0), LedgerPolicy(adopt=Adopt("b", 0))
    )

    assert isinstance(refused(found, call("a", 0), policy), StreamIdentityError)


def test_a_former_query_may_take_over_again_with_a_new_batch() -> None:
    found = entry("b", 2, a=4)

    assert isinstance(
        refused(found, call("a", 4), LedgerPolicy(adopt=Adopt("a", 4))), StreamIdentityError
    )
    taken = commit(found, call("a", 5), LedgerPolicy(adopt=Adopt("a", 5)))
    assert dict(taken.earlier) == {"b": 2}


# -- every combination, against a table written for people -----------------------------------------

ids = st.sampled_from(["a", "b", "c"])
numbers = st.integers(0, 4)
offsets = st.sampled_from([None, HERE, THERE])


@st.composite
def entries(draw: st.DrawFn) -> LedgerEntry:
    query_id, found = draw(ids), draw(offsets)
    earlier = draw(st.dictionaries(ids.filter(lambda id: id != query_id), numbers))
    digest = None if found is None else found.digest
    return LedgerEntry(query_id, draw(numbers), digest, earlier=FrozenMap(earlier))


policies = st.builds(
    LedgerPolicy, st.booleans(), st.none() | st.builds(Adopt, ids, numbers), st.booleans()
)
calls = st.builds(call, ids, numbers, offsets)


def expected(found: LedgerEntry | None, asked: Call, policy: LedgerPolicy) -> Any:
    adopt = policy.adopt
    named = adopt is not None and (adopt.query_id, adopt.first_batch) == (
        asked.query_id,
        asked.batch_id,
    )
    if found is None:
        return Proceed if asked.batch_id == 0 or named else LedgerMissingError
    if found.query_id != asked.query_id:
        is_new = asked.query_id not in found.earlier
        is_new = is_new or found.earlier[asked.query_id] < asked.batch_id
        return Proceed if named and is_new else StreamIdentityError
    digests = {found.digest, asked.offsets.digest if asked.offsets else None} - {None}
    steps = asked.batch_id - found.batch_id
    if steps == 0:
        return AlreadyCommitted if len(digests) < 2 else StreamRewoundError
    if steps < 0:
        return StreamRewoundError
    gaps = policy.allow_gaps or not policy.record_empty_batches
    return Proceed if steps == 1 or gaps else StreamGapError


def check_text(error: StreamError) -> None:
    """It names the stream and what to do, and survives pickling."""
    text = str(error)
    assert "'obs'" in text
    assert "None" not in text
    assert any(remedy in text for remedy in ("adopt=Adopt(query_id=", "allow_gaps=True"))
    assert str(pickle.loads(pickle.dumps(error))) == text


@given(st.none() | entries(), calls, policies)
def test_every_combination_is_answered_as_the_table_says(
    found: LedgerEntry | None, asked: Call, policy: LedgerPolicy
) -> None:
    answer: Any = None
    try:
        answer = type(judge(found, asked, policy))
    except StreamError as error:
        answer = type(error)
        check_text(error)

    assert answer is expected(found, asked, policy)


@given(st.lists(st.tuples(calls, policies), max_size=40))
def test_no_batch_of_a_query_is_ever_committed_twice(
    history: list[tuple[Call, LedgerPolicy]],
) -> None:
    found: LedgerEntry | None = None
    committed: list[tuple[str, int]] = []
    for asked, policy in history:
        try:
            answer = judge(found, asked, policy)
        except StreamError:
            continue
        if isinstance(answer, Proceed):
            found = answer.entry(Counts(), Timings())
            committed.append((asked.query_id, asked.batch_id))
        else:
            assert (asked.query_id, asked.batch_id) == committed[-1]

    for query_id in "abc":
        batches = [batch for id, batch in committed if id == query_id]
        assert all(before < after for before, after in pairwise(batches))
        assert (found.last_batch(query_id) if found else None) == (batches[-1] if batches else None)


# -- empty batches ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "asked", "may_skip"),
    [(entry("a", 4), call("a", 5), True), (None, call("a", 0), False)],
)
def test_an_empty_batch_is_skipped_only_if_its_query_is_in_the_ledger(
    found: LedgerEntry | None, asked: Call, may_skip: bool
) -> None:
    answer = judge(found, asked, LedgerPolicy(record_empty_batches=False))

    assert isinstance(answer, Proceed)
    assert answer.may_skip is may_skip


def test_the_first_batch_after_a_hand_over_is_recorded_even_if_it_is_empty() -> None:
    policy = LedgerPolicy(adopt=Adopt("b", 0), record_empty_batches=False)
    answer = judge(entry("a", 4), call("b", 0), policy)

    assert isinstance(answer, Proceed)
    assert not answer.may_skip
    assert goes_on(answer.entry(Counts(), Timings()), call("b", 2), policy)


# -- values ----------------------------------------------------------------------------------------


def test_offsets_that_were_read_during_the_batch_go_into_the_entry() -> None:
    answer = judge(entry("a", 4), call("a", 5, None), STRICT)
    assert isinstance(answer, Proceed)

    found = answer.entry(Counts(3, 2, 1, 0, 1), Timings(7, FrozenMap({"write": 0.5})), THERE)

    assert (found.digest, found.offsets) == (THERE.digest, THERE.lines)
    assert (found.counts.received, found.timings.started_at) == (3, 7)


@pytest.mark.parametrize("query_id", ["", "  "])
def test_an_empty_query_id_is_refused(query_id: str) -> None:
    with pytest.raises(InvalidInputError, match="the query id is"):
        Call("obs", query_id, 0)


@pytest.mark.parametrize("batch_id", [-1, 2**63, True, "1", 1.0, None])
def test_a_batch_id_that_is_no_number_from_0_up_is_refused(batch_id: Any) -> None:
    with pytest.raises(InvalidInputError, match="the batch id is"):
        Adopt("a", batch_id)
