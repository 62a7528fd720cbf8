"""The first thing that we do to a repository that the reference has just upgraded to spec v2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import icechunk_stream
from tests.alternation.driver import Driver, Failed, Settings
from tests.alternation.edits import (
    DeleteNode,
    PutArray,
    PutGroup,
    Resize,
    SetAttributes,
    SetChunk,
    SetVirtual,
)
from tests.oracle.compare import assert_same
from tests.oracle.libraries import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.compat,
    pytest.mark.filterwarnings("ignore:the configuration says unsafe_use_conditional_update"),
]

_ARRAYS = (
    PutGroup("/", {"é": 1}),
    PutArray("/a", "<i2", (5, 4), (2, 2), 7, ("x", None), {}),
    PutArray("/kept", "<f8", (4,), (1,), 0, None, {"k": [1.5]}),
    PutArray("/point", "|u1", (), (), 0, None, {}),
    PutArray("/empty", "|u1", (0, 3), (1, 2), 0, None, {}),
)
_CHUNKS = (
    SetChunk("/a", (0, 0), 1, 8),
    SetChunk("/a", (2, 1), 2, 8),
    SetChunk("/kept", (3,), 3, 8),
    SetChunk("/point", (), 4, 1),
)


def _session(way: str, *edits: Any) -> Callable[[Driver], Any]:
    def act(driver: Driver) -> Any:
        session = driver.begin("main", fresh=True)
        driver.edit(session, edits)
        return getattr(driver, way)(session, "after", {"n": 1})

    return act


FIRST: dict[str, Callable[[Driver], Any]] = {
    "chunks": _session("commit", SetChunk("/a", (1, 1), 5, 8), SetChunk("/kept", (3,), 6, 8)),
    "attributes": _session("commit", SetAttributes("/a", {"new": None})),
    "new nodes": _session("commit", PutArray("/g/b", "<f4", (3,), (2,), 0, None, {})),
    "shrunk and deleted": _session(
        "commit", Resize("/a", (3, 4), False), DeleteNode("/kept", True)
    ),
    "nothing": _session("commit"),
    "amended": _session("amend", SetChunk("/point", (), 9, 1)),
    "flushed": _session("flush", SetChunk("/point", (), 9, 1)),
    "tag": lambda driver: driver.call("create_tag", "t2", driver.call("lookup_branch", "main")),
    "reset": lambda driver: driver.call(
        "reset_branch", "main", driver.call("lookup_branch", "side")
    ),
    "metadata": lambda driver: driver.call("set_metadata", {"é": [1]}),
    "settings": lambda driver: driver.configure(Settings(threshold=0, split=1)),
}


@pytest.mark.parametrize("first", FIRST)
def test_a_repository_just_upgraded_is_changed_by_us(first: str, tmp_path: Path) -> None:
    ours, theirs = Driver(icechunk_stream, str(tmp_path)), Driver(REFERENCE, str(tmp_path))
    _make(theirs)
    theirs.upgrade()
    theirs.reopen()

    assert not isinstance(FIRST[first](ours), Failed)
    _assert_alike(ours, theirs)

    # And the reference goes on from there.
    session = theirs.begin("main", fresh=True)
    theirs.edit(session, [SetChunk("/a", (0, 1), 8, 8)])
    assert not isinstance(theirs.commit(session, "their own", {}), Failed)
    _assert_alike(ours, theirs)


def _make(driver: Driver) -> None:
    driver.create(1, Settings(threshold=4, split=2))
    for edits in (_ARRAYS, _CHUNKS):
        session = driver.begin("main", fresh=True)
        driver.edit(session, edits)
        driver.commit(session, "before", {"m": {}})
    id = driver.call("lookup_branch", "main")
    driver.call("create_branch", "side", id)
    driver.call("create_tag", "t", id)
    driver.call("create_tag", "gone", id)
    driver.call("delete_tag", "gone")
    session = driver.begin("main", fresh=True)
    location = f"{driver.prefix}virtual.bin"
    driver.edit(session, [SetVirtual("/kept", ((0,), (1,)), 16, 8, location)])
    driver.commit(session, "virtual", {})


def _assert_alike(ours: Driver, theirs: Driver) -> None:
    names = ("reference", "ours")
    parent = next(iter(theirs.told("main", None)["ancestry"]))["parent"]
    assert_same(theirs.told("main", parent), ours.told("main", parent), names)
    assert_same(theirs.dump(), ours.dump(), names)
