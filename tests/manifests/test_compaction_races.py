"""Others commit while manifests are merged: nothing of theirs is lost, and the merge ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import zarr
from zarr.core.sync import sync

from icechunk_stream import Compacted, ConflictDetector, ConflictError, Repository
from icechunk_stream.testing.wrapped_storage import WrappedStorage
from tests.manifests.checks import check_manifests
from tests.manifests.compacting import (
    NAMES,
    SCATTERED,
    append,
    scattered,
    script,
    sizes,
    values,
    writes,
)

if TYPE_CHECKING:
    from icechunk_stream.testing.storage_calls import Call


def interfering(repository: Repository, times: int, names: tuple[str, ...]) -> Repository:
    """Another handle commits before each of the next swaps of the tip; it is returned."""
    storage = repository.storage
    assert isinstance(storage, WrappedStorage)
    other = Repository.open(storage.inner).with_manifest_policy(SCATTERED)
    left = [times]

    def before(call: Call) -> None:
        if call.method == "put_if" and left[0]:
            left[0] -= 1
            append(other, names, 3)

    storage.script.before = before
    return other


def test_after_a_lost_race_only_what_changed_is_merged_again(spec_version: int) -> None:
    repository = scattered(spec_version)
    other = interfering(repository, 1, ("a",))
    script(repository).forget()

    outcome = repository.compact(branch="main")

    assert isinstance(outcome, Compacted)
    assert outcome.lost_races == 1
    assert sizes(repository) == {"/a": [20, 20, 11], "/b": [20, 20, 8], "/c": [20, 20, 8]}
    # All of the first attempt, then the end of one array.
    assert len(writes(repository)) == 9 + 1
    assert values(other)["a"] == [*range(51)]
    assert check_manifests(repository).keys() == {"/a", "/b", "/c"}


def test_writers_that_never_rest_do_not_keep_it_from_ending(spec_version: int) -> None:
    repository = scattered(spec_version)
    other = interfering(repository, 8, NAMES)

    outcome = repository.compact(branch="main")

    assert isinstance(outcome, Compacted)
    assert outcome.lost_races == 8
    assert values(other) == {name: [*range(48 + 24)] for name in NAMES}
    assert all(each[:2] == [20, 20] for each in sizes(repository).values())
    check_manifests(repository)


def test_an_amend_never_takes_the_place_of_a_commit_that_came_meanwhile() -> None:
    repository = scattered(2)
    other = interfering(repository, 1, ("a",))

    with pytest.raises(ConflictError):
        repository.compact(branch="main", commit_method="amend")

    assert next(iter(other.ancestry(branch="main"))).message == "append 3 to a"
    assert values(other)["a"] == [*range(51)]


def test_who_began_before_commits_without_a_conflict(spec_version: int) -> None:
    repository = scattered(spec_version)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 77
    repository.compact(branch="main")

    session.commit("late", rebase_with=ConflictDetector())

    assert values(repository)["a"] == [77, *range(1, 48)]
    # Late data cut a full manifest.
    assert sizes(repository)["/a"] == [1, 19, 20, 8]


def test_an_array_that_goes_away_meanwhile_stays_away(spec_version: int) -> None:
    repository = scattered(spec_version)
    storage = repository.storage
    assert isinstance(storage, WrappedStorage)
    done: list[str] = []

    def before(call: Call) -> None:
        if call.method == "put_if" and not done:
            done.append(call.key)
            session = Repository.open(storage.inner).writable_session("main")
            sync(session.store.delete_dir("b"))
            zarr.open_array(session.store, path="a").resize((30,))
            session.commit("gone")

    storage.script.before = before
    repository.compact(branch="main")

    assert values(repository) == {"a": [*range(30)], "c": [*range(48)]}
    assert set(check_manifests(repository)) == {"/a", "/c"}
