"""Branches and tags: created, moved and deleted on both specs, and refused where need be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

import icechunk_stream as ic
from icechunk_stream.effects import now_micros
from icechunk_stream.format.ids import INITIAL_SNAPSHOT, SnapshotId
from icechunk_stream.format.repo_info import RepoInfo, SnapshotRecord
from icechunk_stream.format.repo_info_encode import RepoState
from icechunk_stream.format.snapshot_encode import SnapshotContents, encode_snapshot
from icechunk_stream.format.updates import NewDetachedSnapshot
from icechunk_stream.repo_updates import RepoChange, UpdateRules, update_repo
from icechunk_stream.storage import MemoryStorage, Storage
from tests.engine.altered import Interrupted

FIRST = str(INITIAL_SNAPSHOT)
SECOND = "2" * 19 + "0"
ABSENT = "0" * 20

both_specs = pytest.mark.parametrize("spec_version", [1, 2])


def made(spec_version: int, storage: MemoryStorage | None = None) -> ic.Repository:
    """A repository with two snapshots to point at."""
    storage = ic.in_memory_storage() if storage is None else storage
    repository = ic.Repository.create(storage, spec_version=spec_version)
    if spec_version == 1:
        put_snapshot(storage)
    else:
        add_snapshot(repository)
    return repository


def put_snapshot(storage: Storage) -> None:
    contents = SnapshotContents(
        SnapshotId.parse(SECOND), INITIAL_SNAPSHOT, now_micros(), "second", {}, (), ()
    )
    storage.put(f"snapshots/{SECOND}", encode_snapshot(contents, 1))


def add_snapshot(repository: ic.Repository) -> None:
    id = SnapshotId.parse(SECOND)
    record = SnapshotRecord(id, INITIAL_SNAPSHOT, now_micros(), "second", {})

    def change(info: RepoInfo) -> RepoChange:
        state = RepoState.of(info)
        new = replace(state, snapshots=(*state.snapshots, record))
        return RepoChange(new, NewDetachedSnapshot(id))

    update_repo(repository._assets, UpdateRules.of(repository.config), change)


def refused(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ic.IcechunkError) as caught:
        call()
    return type(caught.value).__name__, str(caught.value.kind)


@both_specs
def test_branches_and_tags_name_snapshots(spec_version: int) -> None:
    repository = made(spec_version)
    repository.create_branch("b", SECOND)
    repository.create_tag("t", FIRST)
    opened = ic.Repository.open(repository.storage)

    assert opened.list_branches() == {"main", "b"}
    assert opened.list_tags() == {"t"}
    assert opened.lookup_branch("b") == SECOND
    assert opened.lookup_tag("t") == FIRST
    assert [info.id for info in opened.ancestry(branch="b")] == [SECOND, FIRST]


@both_specs
def test_a_branch_is_reset_and_deleted(spec_version: int) -> None:
    repository = made(spec_version)
    repository.create_branch("b", FIRST)
    repository.reset_branch("b", SECOND)
    assert repository.lookup_branch("b") == SECOND
    repository.reset_branch("b", SECOND)
    repository.reset_branch("b", FIRST, from_snapshot_id=SECOND)
    assert repository.lookup_branch("b") == FIRST
    repository.delete_branch("b")

    assert repository.list_branches() == {"main"}
    repository.create_branch("b", SECOND)
    assert repository.lookup_branch("b") == SECOND


@both_specs
def test_a_deleted_tag_is_gone_for_ever(spec_version: int) -> None:
    repository = made(spec_version)
    repository.create_tag("t", FIRST)
    repository.delete_tag("t")
    kind = "tag-already-exists" if spec_version == 1 else "tag-previously-deleted"

    assert repository.list_tags() == set()
    assert refused(lambda: repository.lookup_tag("t")) == ("RefNotFoundError", "ref-not-found")
    assert refused(lambda: repository.delete_tag("t")) == ("RefNotFoundError", "ref-not-found")
    assert refused(lambda: repository.create_tag("t", FIRST)) == ("AlreadyExistsError", kind)


def test_a_deleted_tag_of_spec_v1_leaves_its_file_and_an_empty_one() -> None:
    repository = made(1)
    repository.create_tag("t", FIRST)
    repository.delete_tag("t")
    storage = repository.storage

    assert storage.get("refs/tag.t/ref.json") == b'{"snapshot":"%s"}' % FIRST.encode()
    assert storage.get("refs/tag.t/ref.json.deleted") == b""


@both_specs
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "é ü", "tag.", "#", "%41", "a.b"])
def test_names_may_be_odd(name: str, spec_version: int) -> None:
    repository = made(spec_version)
    repository.create_branch(name, SECOND)
    repository.create_tag(name, FIRST)

    assert repository.list_branches() == {"main", name}
    assert repository.list_tags() == {name}
    assert repository.lookup_branch(name) == SECOND
    repository.delete_branch(name)
    repository.delete_tag(name)
    assert (repository.list_branches(), repository.list_tags()) == ({"main"}, set())


@pytest.mark.parametrize("name", ["a/b", "a\0b"])
def test_some_names_are_for_spec_v2_only(name: str) -> None:
    newer, older = made(2), made(1)
    newer.create_branch(name, SECOND)
    newer.create_tag(name, FIRST)
    error = ("InvalidInputError", "invalid-ref-name")

    assert newer.lookup_branch(name) == SECOND
    assert newer.lookup_tag(name) == FIRST
    for call in (older.create_branch, older.create_tag, older.reset_branch):
        assert refused(lambda call=call: call(name, FIRST)) == error  # type: ignore[misc]
    assert refused(lambda: older.delete_branch(name)) == error
    assert refused(lambda: older.delete_tag(name)) == error


NOT_THERE = {
    1: ("ObjectNotFoundError", "object-not-found"),
    2: ("SnapshotNotFoundError", "snapshot-not-found"),
}
REF_NOT_THERE = ("RefNotFoundError", "ref-not-found")
CONFLICT = ("ConflictError", "branch-update-conflict")


@both_specs
def test_refs_to_snapshots_that_are_not_there_are_refused(spec_version: int) -> None:
    repository = made(spec_version)
    for call in (
        lambda: repository.create_branch("b", ABSENT),
        lambda: repository.create_branch("main", ABSENT),
        lambda: repository.create_tag("t", ABSENT),
        lambda: repository.reset_branch("main", ABSENT),
    ):
        assert refused(call) == NOT_THERE[spec_version]
    assert refused(lambda: repository.create_tag("t", "U" * 20))[1] == "invalid-snapshot-id"
    assert repository.list_branches() == {"main"}
    assert repository.list_tags() == set()


@both_specs
def test_what_exists_is_not_created_again(spec_version: int) -> None:
    repository = made(spec_version)
    repository.create_tag("t", FIRST)
    branch_error = (
        CONFLICT if spec_version == 1 else ("AlreadyExistsError", "branch-already-exists")
    )

    assert refused(lambda: repository.create_branch("main", SECOND)) == branch_error
    assert refused(lambda: repository.create_tag("t", SECOND)) == (
        "AlreadyExistsError",
        "tag-already-exists",
    )
    assert (repository.lookup_branch("main"), repository.lookup_tag("t")) == (FIRST, FIRST)


@both_specs
def test_what_is_not_there_is_neither_moved_nor_deleted(spec_version: int) -> None:
    repository = made(spec_version)

    assert refused(lambda: repository.reset_branch("b", FIRST)) == REF_NOT_THERE
    assert refused(lambda: repository.delete_branch("b")) == REF_NOT_THERE
    assert refused(lambda: repository.delete_tag("t")) == REF_NOT_THERE


@both_specs
def test_main_is_never_deleted(spec_version: int) -> None:
    repository = made(spec_version)

    assert refused(lambda: repository.delete_branch("main")) == (
        "SessionStateError",
        "cannot-delete-main",
    )
    assert repository.list_branches() == {"main"}


@both_specs
def test_a_branch_is_reset_only_from_where_it_is_said_to_be(spec_version: int) -> None:
    repository = made(spec_version)
    with pytest.raises(ic.ConflictError, match=f"expected at {SECOND}, it is at {FIRST}") as caught:
        repository.reset_branch("main", SECOND, from_snapshot_id=SECOND)

    assert caught.value.kind == "branch-update-conflict"
    assert (caught.value.expected_parent, caught.value.actual_parent) == (SECOND, FIRST)
    assert repository.lookup_branch("main") == FIRST


def test_a_reset_of_spec_v1_loses_to_a_change_that_comes_between() -> None:
    def move(storage: Storage) -> None:
        ic.Repository.open(storage).reset_branch("main", SECOND)

    storage = Interrupted("refs/branch.main/ref.json", lambda _: None)
    repository = made(1, storage)
    storage.before = move
    with pytest.raises(ic.ConflictError) as caught:
        repository.reset_branch("main", FIRST)

    assert (caught.value.expected_parent, caught.value.actual_parent) == (FIRST, SECOND)
    assert repository.lookup_branch("main") == SECOND


def test_a_change_of_spec_v2_is_made_on_top_of_one_that_comes_between() -> None:
    storage = Interrupted("repo", lambda _: None)
    repository = made(2, storage)
    storage.before = lambda there: ic.Repository.open(there).create_tag("theirs", SECOND)
    repository.create_tag("ours", FIRST)

    assert repository.list_tags() == {"ours", "theirs"}


def test_of_two_creators_of_a_tag_of_spec_v2_the_second_is_told() -> None:
    storage = Interrupted("repo", lambda _: None)
    repository = made(2, storage)
    storage.before = lambda there: ic.Repository.open(there).create_tag("t", SECOND)

    assert refused(lambda: repository.create_tag("t", FIRST))[1] == "tag-already-exists"
    assert repository.lookup_tag("t") == SECOND


@both_specs
def test_the_asynchronous_twins_do_the_same(spec_version: int) -> None:
    repository = made(spec_version)

    async def run() -> list[set[str]]:
        await repository.create_branch_async("b", FIRST)
        await repository.reset_branch_async("b", SECOND, from_snapshot_id=FIRST)
        await repository.create_tag_async("t", await repository.lookup_branch_async("b"))
        seen = [await repository.list_branches_async(), await repository.list_tags_async()]
        await repository.delete_branch_async("b")
        await repository.delete_tag_async("t")
        return [*seen, await repository.list_branches_async(), await repository.list_tags_async()]

    assert asyncio.run(run()) == [{"main", "b"}, {"t"}, {"main"}, set()]
