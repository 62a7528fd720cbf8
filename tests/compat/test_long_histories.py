"""Repositories with many snapshots, to which both libraries commit in turn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import icechunk_stream
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.repo_info import SnapshotRecord, decode_repo_info
from icechunk_stream.format.repo_info_encode import RepoState, encode_repo_info
from tests.oracle.dump import open_repository
from tests.oracle.libraries import KNOWS_V2, REFERENCE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

BOTH = (icechunk_stream, REFERENCE)
MESSAGES = ("", "short", "long, with ünicode " * 9, "🧊", "a\0b\nc")
METADATA: tuple[dict[str, Any], ...] = (
    {},
    {"a": 1},
    {"ключ": ["é", None, 1.5], "b": {"deep": [{}, []]}, "c": "x" * 300},
    {"": True},
)


def id_of(number: int) -> SnapshotId:
    """Ids whose order is not that of their numbers."""
    return SnapshotId((number * 2_654_435_761 % 2**32).to_bytes(4, "big") + b"snapshot")


def lengthen(location: Path, count: int) -> list[SnapshotRecord]:
    """Put as many snapshots between the first one and the tip, as only the list knows them."""
    path = location / "repo"
    info = decode_repo_info(path.read_bytes(), "repo")
    state = RepoState.of(info)
    tip = info.snapshots.record(info.branches["main"])
    assert tip.parent_id is not None
    ids = [tip.parent_id, *(id_of(number) for number in range(count)), tip.id]
    times = range(tip.flushed_at - count, tip.flushed_at)
    records = [
        SnapshotRecord(id, ids[n], time, MESSAGES[n % 5], METADATA[n % 4], tuple(ids[: n % 3]))
        for n, (id, time) in enumerate(zip(ids[1:-1], times, strict=True))
    ]
    first = info.snapshots.row(tip.parent_id)
    assert first is not None
    kept = [info.snapshots.record(first), replace(tip, parent_id=ids[-2])]
    path.write_bytes(encode_repo_info(replace(state, stored=None, snapshots=[*records, *kept])))
    return records


def commit(ic: Any, location: Path, number: int) -> str:
    session = open_repository(ic, location).writable_session("main")
    said: str = session.commit(
        MESSAGES[number % 5] or "-", METADATA[number % 4] or None, allow_empty=True
    )
    return said


def told(ic: Any, location: Path) -> list[tuple[Any, ...]]:
    """The history of main, newest first."""
    return [
        (info.id, info.parent_id, info.message, info.metadata, info.written_at)
        for info in open_repository(ic, location).ancestry(branch="main")
    ]


if KNOWS_V2:

    @pytest.mark.parametrize("count", [0, 1, 7, 3000])
    @pytest.mark.parametrize("creator", BOTH)
    def test_both_libraries_go_on_in_turn(creator: Any, count: int, tmp_path: Path) -> None:
        storage = creator.local_filesystem_storage(str(tmp_path))
        creator.Repository.create(storage, spec_version=2)
        before = [commit(creator, tmp_path, 0)]
        listed = lengthen(tmp_path, count)
        made = [commit(ic, tmp_path, n) for n, ic in enumerate((*BOTH, *BOTH), start=1)]
        ours, theirs = (told(ic, tmp_path) for ic in BOTH)
        assert ours == theirs
        ids = [id for id, *_ in theirs]
        assert ids[:-1] == [*made[::-1], *before, *(str(record.id) for record in listed[::-1])]
        said = {id: (message, metadata) for id, _, message, metadata, _ in theirs}
        for record in listed:
            assert said[str(record.id)] == (record.message, record.metadata)
        for n, id in enumerate(made, start=1):
            message, metadata = said[id]
            assert message == MESSAGES[n % 5]
            assert METADATA[n % 4].items() <= metadata.items()

    @pytest.mark.parametrize("count", [7, 3000])
    def test_pruned_logs_of_listed_snapshots_stay(count: int, tmp_path: Path) -> None:
        storage = REFERENCE.local_filesystem_storage(str(tmp_path))
        REFERENCE.Repository.create(storage, spec_version=2)
        commit(REFERENCE, tmp_path, 0)
        listed = lengthen(tmp_path, count)
        for n, ic in enumerate((*BOTH, *BOTH)):
            commit(ic, tmp_path, n)
        table = decode_repo_info((tmp_path / "repo").read_bytes(), "repo").snapshots
        assert len(table) == count + 6
        for record in listed:
            row = table.row(record.id)
            assert row is not None
            assert table.record(row) == record
