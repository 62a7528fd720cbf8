"""What went wrong once where libraries take turns, compared with the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import icechunk_stream
from tests.alternation.driver import Driver, Settings
from tests.alternation.edits import Edit, PutArray, PutGroup, Resize, SetChunk
from tests.oracle.dump import dump_repository
from tests.oracle.libraries import REFERENCE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.compat,
    pytest.mark.filterwarnings("ignore:the configuration says unsafe_use_conditional_update"),
]

LIBRARIES = {"ours": icechunk_stream, "reference": REFERENCE}


@pytest.fixture(params=LIBRARIES)
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Driver:
    made = Driver(LIBRARIES[request.param], str(tmp_path))
    made.create(2, Settings())
    return made


def test_entries_without_a_backup_lie_in_that_of_their_page(tmp_path: Path) -> None:
    theirs = Driver(REFERENCE, str(tmp_path))
    theirs.create(1, Settings(updates_per_file=3))
    theirs.call("create_tag", "t", theirs.call("lookup_branch", "main"))
    theirs.upgrade()
    theirs.reopen()
    for number in range(4):
        theirs.call("set_metadata", {"n": number})
    expected, found = (
        dump_repository(library, theirs.location)["ops_log"]
        for library in (REFERENCE, icechunk_stream)
    )
    assert [update["kind"] for update in found[-2:]] == ["TagCreated", "RepoInitialized"]
    assert found[-1]["backup_path"] is not None
    assert found == expected


def test_a_rebased_commit_keeps_the_items_given_beside_the_count(driver: Driver) -> None:
    session = driver.begin("main", fresh=True)
    driver.edit(session, [PutGroup("/", {})])
    driver.commit(session, "rebased", {"k": 1, "__icechunk": {"own": [1]}}, "detector")
    newest = driver.told("main", None)["ancestry"][0]
    assert newest["metadata"] == {"k": 1, "__icechunk": {"own": [1], "rebase_attempts": 0}}


def test_chunks_written_where_an_array_then_shrank_are_seen_when_it_grows(driver: Driver) -> None:
    session = driver.begin("main", fresh=True)
    array = PutArray("/a", "|u1", (4,), (1,), 0, None, {})
    written = [SetChunk("/a", (0,), 1, 1), SetChunk("/a", (3,), 2, 1)]
    driver.edit(session, [PutGroup("/", {}), array, *written])

    driver.edit(session, [Resize("/a", (2,), by_document=True)])
    assert _chunks(driver.seen(session)) == {(0,): "inline"}

    driver.edit(session, [Resize("/a", (4,), by_document=True)])
    assert _chunks(driver.seen(session)) == {(0,): "inline", (3,): "inline"}
    driver.commit(session, "grown again", {})
    assert _chunks(driver.told("main", None)["seen"]) == {(0,): "inline", (3,): "inline"}


@pytest.mark.parametrize("times", range(4))  # ids of nodes, whose order once decided, are random
def test_of_an_array_and_its_successor_the_diff_tells_the_chunks_that_are_there(
    times: int, tmp_path: Path
) -> None:
    """The reference tells those of either, by chance."""
    driver = Driver(icechunk_stream, str(tmp_path))
    driver.create(2, Settings())
    old = PutArray("/a", "|u1", (4, 4), (1, 1), 0, None, {})
    new = PutArray("/a", "|u1", (5,), (1,), 0, None, {}, overwrite=True)
    base = _commit(driver, PutGroup("/", {}), old)
    _commit(driver, SetChunk("/a", (1, 1), 1, 1))
    _commit(driver, new, SetChunk("/a", (4,), 1, 1))
    assert driver.told("main", base)["diff"]["updated_chunks"] == {"/a": [[4]]}


def _commit(driver: Driver, *edits: Edit) -> str:
    session = driver.begin("main", fresh=True)
    driver.edit(session, edits)
    return str(driver.commit(session, "made", {}))


def _chunks(seen: dict[str, Any]) -> Any:
    return seen["/a"]["chunks"]
