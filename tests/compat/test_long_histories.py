"""Repositories with many snapshots, to which both libraries commit in turn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import icechunk_stream
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.repo_info import SnapshotRecord, decode_repo_info
from icechunk_stream.format.repo_info_encode import RepoState, encode_repo_info
from icechunk_stream.format.updates import NewCommit, Update
from tests.oracle.dump import open_repository
from tests.oracle.libraries import KNOWS_V2, REFERENCE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

OURS = icechunk_stream
BOTH = (OURS, REFERENCE)
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

    @pytest.mark.parametrize("count", [7, 3000])
    def test_tags_and_branches_follow_their_snapshots_to_other_rows(
        count: int, tmp_path: Path
    ) -> None:
        REFERENCE.Repository.create(
            REFERENCE.local_filesystem_storage(str(tmp_path)), spec_version=2
        )
        commit(REFERENCE, tmp_path, 0)
        listed = lengthen(tmp_path, count)
        tags = {f"t{n % 40}-é": str(record.id) for n, record in enumerate(listed)}
        branches = {f"b{n % 3}": str(record.id) for n, record in enumerate(listed)}
        state = state_at(tmp_path)
        parsed = [
            {name: SnapshotId.parse(id) for name, id in refs.items()} for refs in (tags, branches)
        ]
        moved = replace(state, tags=parsed[0], branches={**state.branches, **parsed[1]})
        (tmp_path / "repo").write_bytes(encode_repo_info(moved))
        for n, ic in enumerate((OURS, OURS, REFERENCE, OURS)):
            tip = commit(ic, tmp_path, n)
            for library in BOTH:
                repository = open_repository(library, tmp_path)
                assert {tag: repository.lookup_tag(tag) for tag in repository.list_tags()} == tags
                found = repository.list_branches()
                at = {name: repository.lookup_branch(name) for name in found}
                assert at == {**branches, "main": tip}

    def test_pages_of_a_thousand_updates_go_over_as_the_reference_lets_them(
        tmp_path: Path,
    ) -> None:
        """Backups have the names that the long log was given, and so tell where pages end."""
        places = [tmp_path / name for name in ("theirs", "ours", "both")]
        for place in places:
            REFERENCE.Repository.create(
                REFERENCE.local_filesystem_storage(str(place)), spec_version=2
            )
            commit(REFERENCE, place, 0)
            lengthen_log(place, 997)
        pages = [
            [page_after(writers[n % len(writers)], place, n) for n in range(6)]
            for place, writers in zip(places, ((REFERENCE,), (OURS,), BOTH), strict=True)
        ]
        assert pages[0] == pages[1] == pages[2]
        assert [length for length, _, _ in pages[0]] == [998, 999, 1000, 1000, 1000, 1000]
        for place in places:
            ours, theirs = (
                [repr_of(update) for update in open_repository(ic, place).ops_log()] for ic in BOTH
            )
            assert ours == theirs

    def test_snapshots_that_the_reference_pruned_keep_their_logs_after_our_commits(
        tmp_path: Path,
    ) -> None:
        REFERENCE.Repository.create(
            REFERENCE.local_filesystem_storage(str(tmp_path)), spec_version=2
        )
        made = [commit(REFERENCE, tmp_path, n) for n in range(12)]
        repository = open_repository(REFERENCE, tmp_path)
        repository.create_tag("kept", made[3])
        moment = told(REFERENCE, tmp_path)[4][4]
        assert repository.expire_snapshots(moment)
        before = pruned(tmp_path)
        assert any(before.values())

        later = [commit(ic, tmp_path, n) for n, ic in enumerate((OURS, REFERENCE, OURS))]

        assert told(OURS, tmp_path) == told(REFERENCE, tmp_path)
        assert [id for id, *_ in told(OURS, tmp_path)][:3] == later[::-1]
        after = pruned(tmp_path)
        assert {id: after[id] for id in before} == before
        assert not any(after[id] for id in later)
        assert open_repository(REFERENCE, tmp_path).expire_snapshots(told(OURS, tmp_path)[0][4])
        assert told(OURS, tmp_path) == told(REFERENCE, tmp_path)


def state_at(location: Path) -> RepoState:
    return RepoState.of(decode_repo_info((location / "repo").read_bytes(), "repo"))


def lengthen_log(location: Path, count: int) -> None:
    """A log of as many entries, each in a backup of a telling name but the newest."""
    info = decode_repo_info((location / "repo").read_bytes(), "repo")
    newest = replace(info.updates()[0], backup=None)
    tip = info.snapshots.id(info.branches["main"])
    older = [
        Update(NewCommit("main", tip), newest.updated_at - at, f"repo.{at}")
        for at in range(1, count)
    ]
    state = replace(RepoState.of(info), updates=[newest, *older], older=None)
    (location / "repo").write_bytes(encode_repo_info(state))


def page_after(ic: Any, location: Path, number: int) -> tuple[int, str | None, list[str | None]]:
    """Length of the page, what comes before it, and which of the first backups are in it."""
    commit(ic, location, number)
    info = decode_repo_info((location / "repo").read_bytes(), "repo")
    backups = [update.backup for update in info.updates()]
    named = [name for name in backups if name is not None and len(name) < len("repo.1000")]
    return len(backups), info.repo_before_updates, list(named)


def repr_of(update: Any) -> tuple[Any, ...]:
    kind = update.kind
    fields = ("name", "branch", "new_snap_id", "previous_snap_id")
    said = [str(getattr(kind, field, None)) for field in fields]
    return (type(kind).__name__, *said, update.updated_at, update.backup_path)


def pruned(location: Path) -> dict[str, tuple[str, ...]]:
    table = decode_repo_info((location / "repo").read_bytes(), "repo").snapshots
    records = map(table.record, range(len(table)))
    return {str(record.id): tuple(map(str, record.pruned_logs)) for record in records}
