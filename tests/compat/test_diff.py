"""Differences between snapshots, and of sessions, as both libraries see them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.compat.edits import (
    LIBRARIES,
    NAMES,
    OURS,
    Edit,
    array,
    begin,
    chunk,
    commit,
    create,
    drop,
    drop_chunk,
    drop_tree,
    group,
    move,
    opened,
    plain_diff,
)
from tests.oracle.libraries import KNOWS_V2, REFERENCE, SPEC_VERSIONS
from tests.oracle.outcomes import kind_of

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.compat

BASE = (
    group("/"),
    array("/a"),
    chunk("/a", 0),
    group("/g"),
    array("/g/b"),
    chunk("/g/b", 0),
)
Edits = list[Edit]
Moves = list[tuple[str, str]]

EDITED: dict[str, tuple[list[Edits], dict[str, Any]]] = {
    "new nodes": (
        [[group("/n"), array("/m"), chunk("/m", 1)]],
        {"new_groups": ["/n"], "new_arrays": ["/m"], "updated_chunks": {"/m": [[1]]}},
    ),
    "created, then updated": (
        [[array("/n")], [array("/n", x=1)], [chunk("/n", 2)]],
        {"new_arrays": ["/n"], "updated_arrays": ["/n"], "updated_chunks": {"/n": [[2]]}},
    ),
    "created, then deleted": ([[array("/n"), chunk("/n", 0)], [drop("/n")]], {}),
    "updated, then deleted": (
        [[array("/a", x=1), chunk("/a", 2), group("/g", x=1)], [drop("/a"), drop_tree("/g")]],
        {
            "deleted_groups": ["/g"],
            "deleted_arrays": ["/a", "/g/b"],
            "updated_groups": ["/g"],
            "updated_arrays": ["/a"],
            "updated_chunks": {"/a": [[2]]},
        },
    ),
    "deleted, then made again": (
        [[drop("/a")], [array("/a"), chunk("/a", 1)]],
        {"new_arrays": ["/a"], "deleted_arrays": ["/a"], "updated_chunks": {"/a": [[1]]}},
    ),
    "array replaced by a group": (
        [[drop("/a"), group("/a")]],
        {"new_groups": ["/a"], "deleted_arrays": ["/a"]},
    ),
    "chunks of several commits": (
        [
            [chunk("/a", 3)],
            [chunk("/a", 1), chunk("/g/b", 1)],
            [chunk("/a", 3), drop_chunk("/a", 0)],
        ],
        {"updated_chunks": {"/a": [[0], [1], [3]], "/g/b": [[1]]}},
    ),
}

MOVED: dict[str, list[Edits | Moves]] = {
    "a tree": [[("/g", "/h")]],
    "twice in one session": [[("/g", "/h"), ("/h/b", "/b")]],
    "twice": [[("/g", "/h")], [("/h/b", "/b")]],
    "there and back": [[("/g", "/h")], [("/h", "/g")]],
    "then updated": [[("/g", "/h")], [array("/h/b", 3)], [chunk("/h/b", 1)]],
    "after updates": [[array("/g/b", 3)], [chunk("/g/b", 1)], [("/g", "/h")]],
    "then deleted": [[("/g", "/h")], [drop_tree("/h")]],
    "after updates, then deleted": [[chunk("/g/b", 1)], [("/g", "/h")], [drop_tree("/h")]],
    "and the place taken": [[("/a", "/z")], [array("/a"), chunk("/a", 0)], [chunk("/z", 1)]],
    "what was created": [[array("/n"), chunk("/n", 0)], [("/n", "/m")]],
    "what was created, then deleted": [[array("/n")], [("/n", "/m")], [drop("/m")]],
    "several nodes": [[("/a", "/z")], [("/g", "/h")], [("/z", "/h/z")]],
    "two that change places": [[("/a", "/t"), ("/g", "/a")], [("/t", "/g")]],
}


@pytest.fixture(params=SPEC_VERSIONS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    commit(create(REFERENCE, tmp_path / "repository", request.param), *BASE)
    return tmp_path / "repository"


SPEC_V2 = pytest.mark.parametrize("place", [2] if KNOWS_V2 else [], indirect=True)


@pytest.fixture(params=LIBRARIES, ids=list(NAMES.values()))
def library(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


def diffs(place: Path, older: str, newer: str) -> list[dict[str, Any]]:
    """As each library sees it."""
    return [plain_diff(diff(opened(library, place), older, newer)) for library in LIBRARIES]


def diff(repository: Any, older: str, newer: str) -> Any:
    return repository.diff(from_snapshot_id=older, to_snapshot_id=newer)


@pytest.mark.parametrize("name", EDITED)
def test_edits(place: Path, library: ModuleType, name: str) -> None:
    repository = opened(library, place)
    older = repository.lookup_branch("main")
    commits, expected = EDITED[name]
    ids = [commit(repository, *edits) for edits in commits]
    assert diffs(place, older, ids[-1]) == [expected, expected]


@SPEC_V2
@pytest.mark.parametrize("name", MOVED)
def test_moves(place: Path, name: str) -> None:
    repository = opened(REFERENCE, place)
    older = repository.lookup_branch("main")
    for step in MOVED[name]:
        make: Any = move if isinstance(step[0], tuple) else commit
        make(repository, *step)
    ours, theirs = diffs(place, older, repository.lookup_branch("main"))
    assert ours == theirs
    assert "moved_nodes" in ours


def test_chunks_of_an_array_and_of_the_one_in_its_place_are_one_list(place: Path) -> None:
    """The reference takes the chunks of either."""
    repository = opened(OURS, place)
    older = repository.lookup_branch("main")
    commit(repository, chunk("/a", 3))
    newer = commit(repository, drop("/a"), array("/a"), chunk("/a", 1))
    ours, theirs = diffs(place, older, newer)
    assert ours["updated_chunks"] == {"/a": [[1], [3]]}
    assert theirs["updated_chunks"]["/a"] in ([[1]], [[3]])


def test_from_the_first_snapshot_to_the_tip(place: Path) -> None:
    history = [info.id for info in opened(OURS, place).ancestry(branch="main")]
    ours, theirs = diffs(place, history[-1], history[0])
    assert ours == theirs
    assert ours["new_groups"] == ["/", "/g"]


def test_a_diff_goes_forward_along_one_branch(place: Path, library: ModuleType) -> None:
    repository = opened(library, place)
    older = repository.lookup_branch("main")
    repository.create_branch("other", older)
    newer = commit(repository, chunk("/a", 1))
    aside = begin(repository, [chunk("/a", 2)], branch="other").commit("aside")
    for pair in [(newer, older), (older, older), (aside, newer)]:
        with pytest.raises(library.IcechunkError) as raised:
            diff(repository, *pair)
        assert kind_of(raised.value) in ("bad-snapshot-chain-for-diff", None)


def test_a_missing_log_is_named(place: Path, library: ModuleType) -> None:
    repository = opened(REFERENCE, place)
    older = repository.lookup_branch("main")
    lost = commit(repository, chunk("/a", 1))
    newer = commit(repository, chunk("/a", 2))
    (place / "transactions" / lost).unlink()
    repository = opened(library, place)
    with pytest.raises(library.IcechunkError) as raised:
        diff(repository, older, newer)
    assert kind_of(raised.value) in ("object-not-found", None)
    if library is OURS:
        assert lost in str(raised.value)
    assert plain_diff(diff(repository, lost, newer)) == {"updated_chunks": {"/a": [[2]]}}


@SPEC_V2
def test_expired_commits_count_and_lost_ones_are_told(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repository = opened(REFERENCE, place)
    first = list(repository.ancestry(branch="main"))[-1].id
    commit(repository, group("/n"))
    move(repository, ("/a", "/z"))
    lost = commit(repository, group("/m"))
    time.sleep(0.01)
    now = datetime.now(UTC)
    time.sleep(0.01)
    move(repository, ("/z", "/y"))
    newer = move(repository, ("/g", "/h"))
    assert repository.expire_snapshots(now)
    ours, theirs = diffs(place, first, newer)
    assert ours == theirs
    assert ours["new_groups"] == ["/", "/h", "/m", "/n"]
    assert not caplog.records
    (place / "transactions" / lost).unlink()
    ours, theirs = diffs(place, first, newer)
    assert ours == theirs
    assert ours["new_groups"] == ["/", "/h", "/n"]
    assert [lost in record.getMessage() for record in caplog.records] == [True]


STATUS: dict[str, tuple[Edits, dict[str, Any]]] = {
    "nothing": ([], {}),
    "a bit of everything": (
        [chunk("/a", 2), chunk("/a", 1), array("/g/b", x=1), group("/g", x=1), group("/n")],
        {
            "new_groups": ["/n"],
            "updated_groups": ["/g"],
            "updated_arrays": ["/g/b"],
            "updated_chunks": {"/a": [[1], [2]]},
        },
    ),
    "created and updated": (
        [array("/n"), chunk("/n", 0), array("/n", x=1)],
        {"new_arrays": ["/n"], "updated_chunks": {"/n": [[0]]}},
    ),
    "created and deleted": ([array("/n"), chunk("/n", 0), drop("/n")], {}),
    "replaced": (
        [chunk("/a", 0), drop("/a"), array("/a"), chunk("/a", 3)],
        {"new_arrays": ["/a"], "deleted_arrays": ["/a"], "updated_chunks": {"/a": [[3]]}},
    ),
    "a tree deleted": (
        [chunk("/g/b", 0), drop_tree("/g")],
        {"deleted_groups": ["/g"], "deleted_arrays": ["/g/b"]},
    ),
}


@pytest.mark.parametrize("name", STATUS)
def test_the_status_of_a_session(place: Path, library: ModuleType, name: str) -> None:
    edits, expected = STATUS[name]
    status = begin(opened(library, place), edits).status()
    assert plain_diff(status) == expected
    assert status.is_empty() == (not expected)
