"""The ``repo`` object written from the state of a repository."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import InvalidInputError
from icechunk_stream.format import repo_info_encode
from icechunk_stream.format.flat import FlatBuffer, Table
from icechunk_stream.format.header import FileType, open_envelope
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.repo_info import (
    InfoSlot,
    RepoSlot,
    SnapshotRecord,
    decode_repo_info,
)
from icechunk_stream.format.repo_info_encode import RepoState, encode_repo_info
from icechunk_stream.format.updates import (
    UPDATE_TAGS,
    Availability,
    FeatureFlagChanged,
    NewCommit,
    RepoInitialized,
    Status,
    StatusChanged,
    Update,
    UpdateKind,
)
from tests.format.encodable import KEY, metadata, snapshot_ids, times
from tests.format.json_strategies import texts

FIRST, SECOND = SnapshotId(b"first-snaps."), SnapshotId(b"another-one.")
STATE = RepoState(
    branches={"main": SECOND},
    tags={},
    deleted_tags=(),
    snapshots=[
        SnapshotRecord(FIRST, None, 1, "Repository initialized", {}),
        SnapshotRecord(SECOND, FIRST, 2, "second", {"a": 1}),
    ],
    status=Status(Availability.ONLINE, 5, None),
    updates=[Update(NewCommit("main", SECOND), 9), Update(RepoInitialized(), 8, "repo.1")],
    metadata={},
)

statuses = st.builds(Status, st.sampled_from(Availability), times, st.none() | texts)
_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": texts,
    "int": st.integers(0, 255),
    "SnapshotId": snapshot_ids,
    "Status": statuses,
    "bool | None": st.none() | st.booleans(),
}
kinds: st.SearchStrategy[UpdateKind] = st.one_of(
    [
        st.builds(kind, **{item.name: _BY_TYPE[str(item.type)] for item in fields(kind)})
        for kind in UPDATE_TAGS
    ]
)


@st.composite
def histories(draw: st.DrawFn) -> list[SnapshotRecord]:
    """Snapshots with parents among those before them, then in any order."""
    ids = draw(st.lists(snapshot_ids, min_size=1, max_size=6, unique=True))
    records = []
    for number, id in enumerate(ids):
        parent = draw(st.none() | st.sampled_from(ids[:number])) if number else None
        pruned = tuple(draw(st.lists(snapshot_ids, max_size=2)))
        said = (draw(times), draw(texts), draw(metadata), pruned)
        records.append(SnapshotRecord(id, parent, *said))
    return draw(st.permutations(records))


@st.composite
def logs(draw: st.DrawFn) -> list[Update]:
    """Newest first; the newest has no backup."""
    at = sorted(draw(st.sets(times, min_size=1, max_size=6)), reverse=True)
    backups = [None, *(draw(st.none() | texts) for _ in at[1:])]
    return [Update(draw(kinds), time, backup) for time, backup in zip(at, backups, strict=True)]


@st.composite
def states(draw: st.DrawFn) -> RepoState:
    snapshots = draw(histories())
    targets = st.sampled_from([record.id for record in snapshots])
    tags = draw(st.dictionaries(texts, targets, max_size=3))
    flags = draw(st.sets(st.integers(0, 2**16 - 1), max_size=4))
    enabled = frozenset(flag for flag in flags if draw(st.booleans()))
    return RepoState(
        branches=draw(st.dictionaries(texts, targets, max_size=3)) | {"main": draw(targets)},
        tags=tags,
        deleted_tags=tuple(draw(st.sets(texts.filter(lambda name: name not in tags), max_size=3))),
        snapshots=snapshots,
        status=draw(statuses),
        updates=draw(logs()),
        metadata=draw(metadata),
        repo_before_updates=draw(st.none() | texts),
        config=draw(st.none() | st.binary(max_size=9)),
        enabled_flags=enabled,
        disabled_flags=frozenset(flags) - enabled,
    )


def records(state: RepoState) -> list[SnapshotRecord]:
    stored = () if state.stored is None else map(state.stored.record, range(len(state.stored)))
    return [*stored, *state.snapshots]


def plain(state: RepoState) -> dict[str, Any]:
    info = decode_repo_info(encode_repo_info(state), KEY)
    said = {item.name: getattr(state, item.name) for item in fields(state)}
    del said["stored"], said["older"]
    return said | {
        "deleted_tags": sorted(state.deleted_tags),
        "snapshots": sorted(records(state), key=lambda record: record.id),
        "updates": info.updates(),
    }


def root(state: RepoState) -> Table:
    payload = open_envelope(encode_repo_info(state), FileType.REPO_INFO, KEY).payload
    return FlatBuffer(payload, KEY).root()


@given(state=states())
def test_states_survive_a_round_trip(state: RepoState) -> None:
    data = encode_repo_info(state)
    info = decode_repo_info(data, KEY)
    found = RepoState.of(info)
    assert plain(found) == plain(state)
    assert info.updates() == list(state.updates)
    assert encode_repo_info(found) == data


def test_a_first_snapshot_says_that_it_has_no_parent() -> None:
    """An absent offset would mean the snapshot at place 0."""
    first = next(
        table
        for table in root(STATE).tables(RepoSlot.SNAPSHOTS)
        if table.struct(InfoSlot.ID, 12) == FIRST.raw
    )
    assert first.has(InfoSlot.PARENT)
    assert first.scalar(InfoSlot.PARENT, "i") == -1


def test_absent_parts_are_absent_and_empty_ones_are_there() -> None:
    table = root(STATE)
    optional = (
        RepoSlot.REPO_BEFORE_UPDATES,
        RepoSlot.CONFIG,
        RepoSlot.ENABLED_FLAGS,
        RepoSlot.DISABLED_FLAGS,
    )
    assert not any(table.has(slot) for slot in optional)
    assert all(table.has(slot) for slot in RepoSlot if slot not in optional)
    assert not any(info.has(InfoSlot.PRUNED_LOGS) for info in table.tables(RepoSlot.SNAPSHOTS))


def test_names_are_sorted_by_their_bytes_and_terminated() -> None:
    names = ["é", "z", "", "a/b", "a", "A"]
    state = replace(STATE, tags=dict.fromkeys(names, FIRST))
    info = decode_repo_info(encode_repo_info(state), KEY)
    assert list(info.tags) == ["", "A", "a", "a/b", "z", "é"]
    payload = bytes(open_envelope(encode_repo_info(state), FileType.REPO_INFO, KEY).payload)
    assert b"\x03\0\0\0a/b\0" in payload
    assert b"\x16\0\0\0Repository initialized\0" in payload


def commit(at: int, backup: str | None = None) -> Update:
    return Update(NewCommit("main", SECOND), at, backup)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"branches": {"dev": SECOND}}, "lack main"),
        ({"tags": {"t": SnapshotId(bytes(12))}}, "'t' points to"),
        ({"tags": {"t": FIRST}, "deleted_tags": ["t"]}, "'t' is deleted"),
        ({"tags": {"\ud800": FIRST}}, "lone surrogate"),
        ({"snapshots": [*STATE.snapshots, STATE.snapshots[0]]}, "there twice"),
        ({"snapshots": STATE.snapshots[1:]}, "parent of .* is itself, or not in the list"),
        (
            {"snapshots": [replace(STATE.snapshots[0], parent_id=FIRST), STATE.snapshots[1]]},
            "itself",
        ),
        (
            {"snapshots": [replace(STATE.snapshots[0], flushed_at=2**63), STATE.snapshots[1]]},
            "the time",
        ),
        ({"updates": []}, "is empty"),
        ({"updates": [commit(1, "repo.1")]}, "names a backup"),
        ({"updates": [commit(1), commit(1)]}, "descending"),
        ({"updates": [commit(1), commit(2)]}, "descending"),
        ({"updates": [commit(2**63)]}, "the time"),
        ({"updates": [Update(FeatureFlagChanged(2**16, None), 1)]}, "too large"),
        (
            {"updates": [Update(StatusChanged(Status(Availability.ONLINE, -1, None)), 1)]},
            "the time",
        ),
        ({"enabled_flags": frozenset({3}), "disabled_flags": frozenset({3})}, "both"),
        ({"enabled_flags": frozenset({2**16})}, "feature flags"),
        ({"metadata": {"a": b"bytes"}}, "metadata item 'a'"),
    ],
)
def test_what_no_reader_could_use_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        encode_repo_info(replace(STATE, **change))


def test_more_tables_than_readers_verify_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root, the status, a branch, two snapshots, a metadata item, two updates of two tables."""
    tables = 10
    monkeypatch.setattr(repo_info_encode, "MAX_TABLES", tables)
    encode_repo_info(STATE)
    one_more = replace(STATE, metadata={"a": 1})
    with pytest.raises(InvalidInputError, match=f"{tables + 1} tables.* expire snapshots"):
        encode_repo_info(one_more)
