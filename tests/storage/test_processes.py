"""Many processes on one storage, and processes that are killed."""

from pathlib import Path

import pytest

from tests.storage import racers

both_modes = pytest.mark.parametrize("durability", ["fsync", "os"])


@both_modes
def test_eight_processes_lose_no_update(tmp_path: Path, durability: str) -> None:
    written, final = racers.run("increments", tmp_path, durability)
    assert [len(numbers) for numbers in written] == [50] * 8
    assert sorted(number for numbers in written for number in numbers) == list(range(1, 401))
    assert final == 400


@both_modes
def test_one_of_eight_processes_creates(tmp_path: Path, durability: str) -> None:
    wins, contents = racers.run("creations", tmp_path, durability)
    winners = [[me for me in range(8) if wins[me][number]] for number in range(100)]
    assert winners == [[content] for content in contents]


def test_a_deleted_object_stays_deleted_whatever_an_updater_does(tmp_path: Path) -> None:
    updates, deletes, creates, left = racers.run("replacements", tmp_path, "os")
    assert all(deletes)
    assert left == ["created" if created else "" for created in creates]
    assert any(updates)
    assert not all(updates)


@both_modes
def test_a_killed_writer_leaves_whole_objects(tmp_path: Path, durability: str) -> None:
    states, staged, keys = racers.run("kills", tmp_path, durability)
    assert len(states) == 35
    assert {state for states_then in states for state in states_then} == {"A", "B"}
    assert staged > 5
    assert keys == ["repo", "snapshots/A"]


def test_a_forked_child_uses_the_storage_of_its_parent(tmp_path: Path) -> None:
    found, undisturbed, repo = racers.run("fork_then_use", tmp_path, "os")
    assert found == [[50, True, "7"]]
    assert undisturbed
    assert repo == "child"


def test_a_forked_child_writes_to_its_copy_of_a_memory(tmp_path: Path) -> None:
    assert racers.run("memory_forked_amid_a_write", tmp_path, "os") == [["child"], "parent"]
