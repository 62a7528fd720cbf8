"""Snapshots that stay in the ``repo`` object are copied from one version to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import FormatError, InvalidInputError
from icechunk_stream.format.header import FileType
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.repo_info import (
    InfoSlot,
    RepoInfo,
    RepoSlot,
    SnapshotRecord,
    SnapshotTable,
    decode_repo_info,
)
from icechunk_stream.format.repo_info_encode import (
    RepoState,
    build_repo_info,
    encode_repo_info,
    seal_repo_info,
)
from icechunk_stream.format.updates import (
    Availability,
    NewCommit,
    RepoInitialized,
    Status,
    Update,
)
from tests.format.encodable import KEY, metadata, snapshot_ids, times
from tests.format.json_strategies import texts
from tests.hostile import documents as doc
from tests.hostile import raw
from tests.hostile.mutate import mutant
from tests.hostile.raw import Octets, Offsets, Table, text, u64
from tests.hostile.reading import seal

if TYPE_CHECKING:
    from collections.abc import Sequence

LAST_TIME = 253_370_764_800_000_000
MUTANTS = 1500


@st.composite
def histories(draw: st.DrawFn) -> list[SnapshotRecord]:
    """Snapshots with parents among those before them."""
    ids = draw(st.lists(snapshot_ids, min_size=1, max_size=9, unique=True))
    records = []
    for number, id in enumerate(ids):
        parent = draw(st.none() | st.sampled_from(ids[:number])) if number else None
        pruned = tuple(draw(st.lists(snapshot_ids, max_size=2)))
        said = (draw(times), draw(texts), draw(metadata), pruned)
        records.append(SnapshotRecord(id, parent, *said))
    return records


def state_of(records: Sequence[SnapshotRecord]) -> RepoState:
    return RepoState(
        branches={"main": records[0].id},
        tags={"last": records[0].id},
        deleted_tags=(),
        snapshots=records,
        status=Status(Availability.ONLINE, 5, None),
        updates=[Update(NewCommit("main", records[0].id), 9)],
        metadata={},
    )


def id_of(number: int) -> SnapshotId:
    """Ids whose order is not that of their numbers."""
    return SnapshotId((number * 2_654_435_761 % 2**32).to_bytes(4, "big") + bytes(8))


def line(count: int) -> list[SnapshotRecord]:
    """A history in which each snapshot follows the one before it."""
    return [
        SnapshotRecord(
            id_of(number),
            id_of(number - 1) if number else None,
            number,
            f"commit {number}" * (number % 5),
            {name: [number, "é", {"deep": None}] for name in ("a", "é", "")[: number % 4]},
            tuple(id_of(pruned) for pruned in range(number % 3)),
        )
        for number in range(count)
    ]


def written(state: RepoState) -> RepoInfo:
    return decode_repo_info(encode_repo_info(state), KEY)


def records_of(info: RepoInfo) -> list[SnapshotRecord]:
    return [info.snapshots.record(row) for row in range(len(info.snapshots))]


def damaged(*snapshots: Table) -> RepoState:
    """The state of an object that was laid out by hand."""
    repo = doc.repo(*snapshots, slot_1=doc.refs(tag=0), slot_2=doc.refs(main=0))
    return stored(raw.payload(repo))


def stored(payload: bytes) -> RepoState:
    state = RepoState.of(decode_repo_info(seal(payload, FileType.REPO_INFO), KEY))
    return replace(state, updates=[Update(RepoInitialized(), 9)], older=None)


@given(history=histories(), data=st.data())
def test_copied_snapshots_are_written_as_new_ones_are(
    history: list[SnapshotRecord], data: st.DataObject
) -> None:
    whole = written(state_of(history))
    before = data.draw(st.integers(1, len(history)))
    added = data.draw(st.permutations(history[before:]))
    state = RepoState.of(written(state_of(history[:before])))
    grown = written(replace(state, snapshots=added))
    assert records_of(grown) == records_of(whole)
    assert (grown.branches, grown.tags) == (whole.branches, whole.tags)
    assert len(grown.root.buffer) == len(whole.root.buffer)


@given(history=histories(), data=st.data())
def test_a_version_that_was_just_written_is_what_its_object_says(
    history: list[SnapshotRecord], data: st.DataObject
) -> None:
    """What the writer knows, and what is read back, are carried on alike."""
    info = build_repo_info(state_of(history[:1]), KEY)
    for record in history[1:]:
        before = RepoState.of(info)
        targets = st.sampled_from([info.snapshots.id(row) for row in range(len(info.snapshots))])
        tags = {**before.tags, str(record.id): data.draw(targets)}
        info = build_repo_info(replace(before, snapshots=[record], tags=tags), KEY)
    read = decode_repo_info(seal_repo_info(info, 3), KEY)
    for found in (info, written(RepoState.of(info)), written(RepoState.of(read))):
        assert records_of(found) == records_of(read)
        assert found.tags == read.tags
        assert found.updates() == read.updates()
    assert records_of(read) == sorted(history, key=lambda record: record.id)


@pytest.mark.parametrize("count", [1, 7, 3000, 20_000])
def test_histories_grow_by_one_snapshot_and_keep_all_others(count: int) -> None:
    history = line(count + 1)
    info = written(state_of(history[:count]))
    grown = written(replace(RepoState.of(info), snapshots=history[count:]))
    assert records_of(grown) == sorted(history, key=lambda record: record.id)
    row = grown.snapshots.row(history[-1].id)
    assert row is not None
    assert [record.id for record in grown.snapshots.ancestry(row)] == [
        record.id for record in reversed(history)
    ]
    assert grown.branches == {"main": grown.snapshots.row(history[0].id)}


def test_messages_beside_each_other_may_differ_in_length_by_far() -> None:
    history = [replace(record, message="é" * record.flushed_at**2) for record in line(300)]
    copied = written(RepoState.of(written(state_of(history))))
    assert records_of(copied) == sorted(history, key=lambda record: record.id)


def test_values_are_copied_unseen() -> None:
    """What another library keeps in metadata is not ours to understand."""
    odd = doc.info(1, -1)
    odd.fields[InfoSlot.METADATA] = Offsets([doc.metadata("k", b"\xff" * 9), doc.metadata("b")])
    info = written(damaged(odd, doc.info(2, 0)))
    with pytest.raises(FormatError):
        info.snapshots.record(0)
    assert info.snapshots.record(1).metadata == {"key": True}
    table = next(info.root.tables(RepoSlot.SNAPSHOTS))
    items = [(item.text(0), item.blob(1)) for item in table.tables(InfoSlot.METADATA)]
    assert items[0] == ("k", b"\xff" * 9)
    assert items[1][0] == "b"


def test_snapshots_without_optional_parts_gain_empty_ones() -> None:
    bare = doc.info(1, -1)
    for slot in (InfoSlot.METADATA, InfoSlot.PRUNED_LOGS, InfoSlot.FLUSHED_AT):
        del bare.fields[slot]
    first, second = records_of(written(damaged(bare, doc.info(2, 0))))
    assert (first.metadata, first.pruned_logs, first.flushed_at) == ({}, (), 0)
    assert len(second.pruned_logs) == 2


@pytest.mark.parametrize(
    ("slot", "part", "said"),
    [
        (InfoSlot.MESSAGE, None, "lacks its message"),
        (InfoSlot.MESSAGE, text(b"\xff"), "not UTF-8"),
        (InfoSlot.FLUSHED_AT, u64(LAST_TIME + 1), "beyond the year"),
        (InfoSlot.METADATA, Offsets([Table("M", {1: Octets(b"")})]), "lacks its name"),
        (InfoSlot.METADATA, Offsets([Table("M", {0: text("a")})]), "lacks its value"),
    ],
)
def test_damaged_snapshots_are_not_copied(slot: InfoSlot, part: Any, said: str) -> None:
    info = doc.info(1, -1)
    info.fields.pop(slot)
    if part is not None:
        info.fields[slot] = part
    with pytest.raises(FormatError, match=said):
        encode_repo_info(damaged(info, doc.info(2, 0)))


@pytest.mark.parametrize(
    ("slot", "part"),
    [
        (InfoSlot.MESSAGE, text("a" * 10_000)),
        (InfoSlot.METADATA, Offsets([doc.metadata()] * 3000)),
        (InfoSlot.METADATA, Offsets([doc.metadata("a" * 10_000)])),
        (InfoSlot.METADATA, Offsets([doc.metadata(value=bytes(10_000))])),
        (InfoSlot.PRUNED_LOGS, Octets(bytes(12_000), 12)),
    ],
)
def test_parts_that_many_snapshots_share_are_not_multiplied(slot: InfoSlot, part: Any) -> None:
    infos = [doc.info(number, -1) for number in range(1, 40)]
    for info in infos:
        info.fields[slot] = part
    with pytest.raises(FormatError, match="too often"):
        encode_repo_info(damaged(*infos))


def test_a_snapshot_that_is_its_own_parent_is_not_copied() -> None:
    with pytest.raises(InvalidInputError, match="itself"):
        encode_repo_info(damaged(doc.info(1, -1), doc.info(2, 1)))


def test_a_snapshot_is_not_added_twice() -> None:
    history = line(7)
    state = RepoState.of(written(state_of(history)))
    with pytest.raises(InvalidInputError, match="there twice"):
        encode_repo_info(replace(state, snapshots=history[6:]))
    with pytest.raises(InvalidInputError, match="not in the list"):
        encode_repo_info(replace(state, snapshots=line(9)[8:]))


def test_damaged_objects_are_copied_or_refused_and_nothing_else() -> None:
    payload = raw.payload(doc.repo(slot_1=doc.refs(tag=1), slot_2=doc.refs(main=0)))
    refused = copied = 0
    for seed in range(MUTANTS):
        try:
            state = stored(bytes(mutant(payload, seed)))
            info = written(state)
        except (FormatError, InvalidInputError):
            refused += 1
        else:
            assert state.stored is not None
            copied += same_records(state.stored, info.snapshots)
    assert refused > MUTANTS // 4
    assert copied > MUTANTS // 4


def same_records(before: SnapshotTable, after: SnapshotTable) -> int:
    """How many records can be read, which have to be the same."""
    assert len(before) == len(after)
    read = 0
    for row in range(len(before)):
        try:
            record = before.record(row)
        except FormatError:
            continue
        assert after.record(row) == record
        read += 1
    return read
