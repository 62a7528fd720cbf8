"""Changes of chunks behave like a dict of the last change of each, however they came."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.changes import ChunkChanges, Unchanged
from icechunk_stream.format.chunk_refs import (
    ETag,
    InlineChunk,
    LastModified,
    NativeChunk,
    VirtualChunk,
)
from icechunk_stream.format.ids import ChunkId
from icechunk_stream.format.ref_rows import payload_of, table_of

INDICES = st.tuples(st.integers(0, 6), st.integers(0, 3))
# An axis far beyond the others makes keys of bytes in place of integers.
FAR = st.tuples(st.sampled_from((0, 5, 2**32 - 1)), st.sampled_from((0, 2**32 - 1)))
PAYLOADS = st.one_of(
    st.none(),
    st.builds(InlineChunk, st.binary(min_size=1, max_size=4)),
    st.builds(
        NativeChunk,
        st.binary(min_size=12, max_size=12).map(ChunkId),
        st.integers(0, 9),
        st.integers(1, 9),
    ),
    st.builds(
        VirtualChunk,
        st.sampled_from(("s3://b/x", "s3://b/y")),
        st.integers(0, 9),
        st.integers(1, 9),
        st.sampled_from((None, ETag("e"), LastModified(7))),
    ),
)
CHANGE = st.tuples(INDICES | FAR, PAYLOADS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), CHANGE),
        st.tuples(st.just("many"), st.lists(CHANGE, min_size=1, max_size=6)),
        st.tuples(st.just("forget"), st.lists(INDICES, min_size=1, max_size=4)),
        st.tuples(st.just("settle"), st.none()),
    ),
    max_size=12,
)


def apply(steps: list[Any]) -> tuple[ChunkChanges, dict[tuple[int, ...], Any]]:
    changes, model = ChunkChanges("/a", 2), dict[tuple[int, ...], Any]()
    for kind, given_ in steps:
        match kind:
            case "set":
                changes.set(*given_)
                model[given_[0]] = given_[1]
            case "many":
                changes.set_many(table_of(2, given_))
                model.update(given_)
            case "forget":
                changes.forget(np.array(given_, np.uint32))
                for index in given_:
                    model.pop(index, None)
            case _:
                changes.run()
    return changes, model


@given(STEPS)
def test_the_last_change_of_each_chunk_is_found(steps: list[Any]) -> None:
    changes, model = apply(steps)

    for index, payload in model.items():
        assert changes.get(index) == payload
    assert changes.get((4, 4)) is Unchanged.UNCHANGED


@given(STEPS)
def test_all_changes_together_are_sorted_and_each_is_there_once(steps: list[Any]) -> None:
    changes, model = apply(steps)

    run = changes.run()

    indices = [tuple(index) for index in run.table.indices.tolist()]
    assert indices == sorted(model)
    found = {index: payload_of(run.table, row) for row, index in enumerate(indices)}
    assert found == model


@given(STEPS, CHANGE)
def test_a_copy_goes_its_own_way(steps: list[Any], more: tuple[Any, Any]) -> None:
    changes, model = apply(steps)

    twin = changes.copy()
    twin.set(*more)

    before = model.get(more[0], Unchanged.UNCHANGED)
    assert changes.get(more[0]) == before
    assert twin.get(more[0]) == more[1]
    assert twin.version != changes.version


def test_many_single_changes_become_columns() -> None:
    changes = ChunkChanges("/a", 1)

    for index in range(20_000):
        changes.set((index % 15_000,), InlineChunk(index.to_bytes(4, "big")))

    assert len(changes.run()) == 15_000
    assert changes.get((4_999,)) == InlineChunk((19_999).to_bytes(4, "big"))
    assert changes.get((5_000,)) == InlineChunk((5_000).to_bytes(4, "big"))


def test_chunks_are_found_while_other_threads_set_more() -> None:
    changes = ChunkChanges("/a", 1)
    payload = InlineChunk(b"x")
    changes.set((1_000_000,), payload)
    lost: list[int] = []

    def write(start: int) -> None:
        for index in range(start, start + 10_000):
            changes.set((index,), payload)
            if changes.get((index,)) != payload or changes.get((1_000_000,)) != payload:
                lost.append(index)

    threads = [threading.Thread(target=write, args=(10_000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert lost == []
    assert len(changes.run()) == 40_001
