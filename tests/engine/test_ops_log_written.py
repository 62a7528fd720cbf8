"""The operations log that is written: order, backups, pages, and lost answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import icechunk_stream as ic
from icechunk_stream.config import RepoUpdateRetryConfig
from icechunk_stream.format.ids import INITIAL_SNAPSHOT
from icechunk_stream.format.repo_info import SnapshotRecord, decode_repo_info
from icechunk_stream.format.repo_info_encode import RepoState, encode_repo_info
from icechunk_stream.format.updates import Availability, BranchCreated, Status, Update
from icechunk_stream.repo_updates import logged
from icechunk_stream.storage import MemoryStorage, Storage
from tests.engine.altered import LosesAnswers

FIRST = str(INITIAL_SNAPSHOT)


def rules(page: int = 1000, tries: int = 100) -> ic.RepositoryConfig:
    retries = ic.StorageRetriesSettings(tries, 0, 0)
    return ic.RepositoryConfig(
        num_updates_per_repo_info_file=page,
        repo_update_retries=RepoUpdateRetryConfig(retries),
    )


def create(storage: MemoryStorage, config: ic.RepositoryConfig | None = None) -> ic.Repository:
    ic.Repository.create(storage)
    return ic.Repository.open(storage, config)


def names(repository: ic.Repository) -> list[str]:
    kinds = [update.kind for update in repository.ops_log()]
    return [getattr(kind, "name", type(kind).__name__) for kind in kinds]


def backups(storage: Storage) -> list[str]:
    return [info.key.removeprefix("overwritten/") for info in storage.list("overwritten/")]


@pytest.mark.parametrize("page", [0, 1, 2, 3, 6, 1000])
def test_the_log_is_whole_whatever_its_pages_are(page: int) -> None:
    storage = ic.in_memory_storage()
    repository = create(storage, rules(page))
    created = [f"b{number}" for number in range(9)]
    for name in created:
        repository.create_branch(name, FIRST)
    info = decode_repo_info(storage.get("repo"), "repo")
    log = list(repository.ops_log())

    assert names(repository) == [*reversed(created), "RepoInitialized"]
    assert len(info.updates()) == min(max(page, 1), 10)
    assert (info.repo_before_updates is None) == (page == 1000)
    times = [update.updated_at for update in log]
    assert times == sorted(set(times), reverse=True)
    assert log[0].backup_path is None
    assert {update.backup_path for update in log[1:]} == set(backups(storage))


def test_each_backup_is_the_object_in_which_its_entry_was_the_newest() -> None:
    storage = ic.in_memory_storage()
    repository = create(storage)
    repository.create_branch("a", FIRST)
    repository.create_branch("b", FIRST)
    for update in list(repository.ops_log())[1:]:
        key = f"overwritten/{update.backup_path}"
        [newest, *_] = decode_repo_info(storage.get(key), key).updates()
        assert newest.backup is None
        assert ic.Repository.open(_only(storage.get(key))).ops_log().__next__() == replace(
            update, backup_path=None
        )


def _only(repo: bytes) -> MemoryStorage:
    storage = ic.in_memory_storage()
    storage.put("repo", repo)
    return storage


def test_an_entry_is_newer_than_the_one_before_even_if_the_clock_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository = create(ic.in_memory_storage())
    start = next(repository.ops_log()).updated_at
    monkeypatch.setattr("icechunk_stream.repo_updates.now_micros", lambda: 1_000_000)
    for name in "abc":
        repository.create_branch(name, FIRST)

    apart = [(update.updated_at - start).microseconds for update in repository.ops_log()]
    assert apart == [3, 2, 1, 0]


def test_a_refused_change_leaves_no_trace() -> None:
    storage = ic.in_memory_storage()
    repository = create(storage)
    before = storage.get("repo")
    with pytest.raises(ic.RefNotFoundError):
        repository.delete_branch("b")

    assert storage.get("repo") == before
    assert backups(storage) == []


class Contended(MemoryStorage):
    """Somebody else is quicker so many times."""

    decides_races = True
    losses = 0

    def _copy_if(self, source: str, target: str, expected: object) -> object:  # type: ignore[override]
        if self.losses:
            self.losses -= 1
            self._store(source, self._objects[source].data)
        return super()._copy_if(source, target, expected)  # type: ignore[arg-type]


def test_lost_races_are_run_again() -> None:
    storage = Contended()
    repository = create(storage, rules(tries=3))
    storage.losses = 7
    repository.create_branch("b", FIRST)

    assert names(repository) == ["b", "RepoInitialized"]


def test_races_without_end_are_given_up() -> None:
    storage = Contended()
    repository = create(storage, rules(tries=3))
    storage.losses = 8
    with pytest.raises(ic.ConflictError, match="8 attempts") as caught:
        repository.create_branch("b", FIRST)

    assert caught.value.kind == "update-attempts-exhausted"
    assert repository.list_branches() == {"main"}


@pytest.mark.parametrize("page", [1, 3, 1000])
@pytest.mark.parametrize("others", [0, 1, 5])
def test_a_change_whose_answer_was_lost_is_recognised(others: int, page: int) -> None:
    storage = LosesAnswers()
    repository = create(storage, rules(page))

    def work() -> None:
        for number in range(others):
            ic.Repository.open(storage, rules(page)).create_branch(f"theirs{number}", FIRST)

    storage.arm("repo", lands=True, then=work)
    repository.create_tag("ours", FIRST)

    theirs = [f"theirs{number}" for number in range(others)]
    assert names(repository) == [*reversed(theirs), "ours", "RepoInitialized"]


@pytest.mark.parametrize("others", [1, 5])
def test_a_change_that_did_not_land_and_never_will_is_made_again(others: int) -> None:
    storage = LosesAnswers()
    repository = create(storage, rules(3))

    def work() -> None:
        for number in range(others):
            ic.Repository.open(storage, rules(3)).create_branch(f"theirs{number}", FIRST)

    storage.arm("repo", lands=False, then=work)
    repository.create_tag("ours", FIRST)

    theirs = [f"theirs{number}" for number in range(others)]
    assert names(repository) == ["ours", *reversed(theirs), "RepoInitialized"]


def test_a_change_that_may_yet_land_is_unknown() -> None:
    storage = LosesAnswers()
    repository = create(storage)
    storage.arm("repo", lands=False)
    with pytest.raises(ic.CommitStateUnknownError):
        repository.create_tag("ours", FIRST)

    assert names(repository) == ["RepoInitialized"]


STATE = RepoState(
    branches={"main": INITIAL_SNAPSHOT},
    tags={},
    deleted_tags=(),
    snapshots=[SnapshotRecord(INITIAL_SNAPSHOT, None, 1, "", {})],
    status=Status(Availability.ONLINE, 1, None),
    updates=(),
    metadata={},
    repo_before_updates="earlier",
)


@st.composite
def pages(draw: st.DrawFn) -> list[Update]:
    """Entries newest first; some lack a backup, as those of an upgraded repository do."""
    count = draw(st.integers(1, 12))
    backups = [None, *(draw(st.sampled_from((None, f"b{at}"))) for at in range(1, count))]
    return [Update(BranchCreated(f"n{at}"), 99 - at, name) for at, name in enumerate(backups)]


@given(page=pages(), size=st.integers(0, 14))
def test_pages_end_where_the_next_entry_has_a_backup(page: list[Update], size: int) -> None:
    """The rule of the reference, one entry after the other."""
    entry = Update(BranchCreated("new"), 100)
    kept, before = [entry], "earlier"
    for older in [replace(page[0], backup="now"), *page[1:]]:
        if len(kept) >= size and older.backup is not None:
            before = older.backup
            break
        kept.append(older)
    state = RepoState.of(decode_repo_info(encode_repo_info(replace(STATE, updates=page)), "repo"))
    found = decode_repo_info(encode_repo_info(logged(state, entry, "now", size)), "repo")

    assert found.updates() == kept
    assert found.repo_before_updates == before
