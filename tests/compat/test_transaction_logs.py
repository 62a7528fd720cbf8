"""Transaction logs: one edit, one content, whichever library commits it."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zarr

from icechunk_stream.format.ids import INITIAL_SNAPSHOT, NodeId
from icechunk_stream.format.transaction_log import decode_transaction_log
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
)
from tests.oracle.libraries import KNOWS_V2, REFERENCE, SPEC_VERSIONS

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.compat

BASE = (
    group("/"),
    array("/a"),
    chunk("/a", 0),
    chunk("/a", 3),
    group("/g"),
    array("/g/b"),
    chunk("/g/b", 0),
)
LISTS = (
    "new_groups",
    "new_arrays",
    "deleted_groups",
    "deleted_arrays",
    "updated_groups",
    "updated_arrays",
)


def resize(path: str, length: int) -> Edit:
    """As zarr does it: chunks outside are deleted one by one, before the document is set."""

    def edit(session: Any) -> None:
        zarr.open_array(session.store, path=path, mode="r+").resize((length,))

    return edit


@dataclass(frozen=True)
class Row:
    """Edits of one session, and what the log of their commit holds; a new node has a +."""

    edits: tuple[Edit, ...]
    log: dict[str, Any] = field(default_factory=dict)


ROWS = {
    "new group": Row((group("/n"),), {"new_groups": ["/n+"]}),
    "new array": Row((array("/n"),), {"new_arrays": ["/n+"]}),
    "new array with chunks": Row(
        (array("/n"), chunk("/n", 2), chunk("/n", 0)),
        {"new_arrays": ["/n+"], "updated_chunks": {"/n+": [[0], [2]]}},
    ),
    "new array, updated at once": Row((array("/n"), array("/n", 2, x=1)), {"new_arrays": ["/n+"]}),
    "new group, updated at once": Row((group("/n"), group("/n", x=1)), {"new_groups": ["/n+"]}),
    "updated group": Row((group("/g", x=1),), {"updated_groups": ["/g"]}),
    "updated root": Row((group("/", x=1),), {"updated_groups": ["/"]}),
    "updated array": Row((array("/a", x=1),), {"updated_arrays": ["/a"]}),
    "set to what it was": Row(
        (array("/a"), group("/g"), group("/", x=1)), {"updated_groups": ["/"]}
    ),
    "updated there and back": Row((array("/a", x=1), array("/a")), {"updated_arrays": ["/a"]}),
    "grown array": Row((resize("a", 6),), {"updated_arrays": ["/a"]}),
    "shrunk array by its document": Row((array("/a", 2),), {"updated_arrays": ["/a"]}),
    "chunk set": Row((chunk("/a", 1),), {"updated_chunks": {"/a": [[1]]}}),
    "chunk set twice": Row((chunk("/a", 1), chunk("/a", 1, 7)), {"updated_chunks": {"/a": [[1]]}}),
    "chunk overwritten": Row((chunk("/a", 0, 7),), {"updated_chunks": {"/a": [[0]]}}),
    "chunk deleted": Row((drop_chunk("/a", 0),), {"updated_chunks": {"/a": [[0]]}}),
    "chunk deleted that was never set": Row(
        (drop_chunk("/a", 2),), {"updated_chunks": {"/a": [[2]]}}
    ),
    "chunk set and deleted": Row(
        (chunk("/a", 1), drop_chunk("/a", 1)), {"updated_chunks": {"/a": [[1]]}}
    ),
    "chunks of two arrays": Row(
        (chunk("/g/b", 1), chunk("/a", 3), chunk("/a", 1)),
        {"updated_chunks": {"/a": [[1], [3]], "/g/b": [[1]]}},
    ),
    "deleted array": Row((drop("/a"),), {"deleted_arrays": ["/a"]}),
    "deleted array after its edits": Row(
        (chunk("/a", 1), array("/a", x=1), drop("/a")), {"deleted_arrays": ["/a"]}
    ),
    "deleted group": Row((drop("/g"),), {"deleted_groups": ["/g"], "deleted_arrays": ["/g/b"]}),
    "deleted tree after edits in it": Row(
        (chunk("/g/b", 1), group("/g", x=1), group("/g/n"), drop_tree("/g")),
        {"deleted_groups": ["/g"], "deleted_arrays": ["/g/b"]},
    ),
    "created and deleted": Row(
        (array("/n"), chunk("/n", 0), drop("/n"), group("/g", x=1)), {"updated_groups": ["/g"]}
    ),
    "replaced array": Row(
        (chunk("/a", 1), drop("/a"), array("/a", 3), chunk("/a", 2)),
        {
            "new_arrays": ["/a+"],
            "deleted_arrays": ["/a"],
            "updated_chunks": {"/a+": [[2]]},
        },
    ),
    "array replaced by a group": Row(
        (drop("/a"), group("/a")), {"new_groups": ["/a+"], "deleted_arrays": ["/a"]}
    ),
    "replaced twice": Row(
        (drop("/a"), group("/a"), drop("/a"), array("/a")),
        {"new_arrays": ["/a+"], "deleted_arrays": ["/a"]},
    ),
    "everything cleared": Row(
        (drop_tree("/"),),
        {"deleted_groups": ["/", "/g"], "deleted_arrays": ["/a", "/g/b"]},
    ),
}


@dataclass(frozen=True)
class AmendRow:
    """Edits of a commit, edits that amend it, and what the log of both holds."""

    first: tuple[Edit, ...]
    second: tuple[Edit, ...]
    log: dict[str, Any]


AMENDED = {
    "chunks and chunks": AmendRow(
        (chunk("/a", 1), chunk("/a", 2)),
        (drop_chunk("/a", 1), chunk("/a", 0)),
        {"updated_chunks": {"/a": [[0], [1], [2]]}},
    ),
    "new array, updated": AmendRow(
        (array("/n"), chunk("/n", 0)),
        (array("/n", x=1), chunk("/n", 1)),
        {
            "new_arrays": ["/n+"],
            "updated_arrays": ["/n+"],
            "updated_chunks": {"/n+": [[0], [1]]},
        },
    ),
    "new group, updated": AmendRow(
        (group("/n"),), (group("/n", x=1),), {"new_groups": ["/n+"], "updated_groups": ["/n+"]}
    ),
    "new array, deleted": AmendRow(
        (array("/n"), chunk("/n", 0)),
        (drop("/n"),),
        {
            "new_arrays": ["/n+"],
            "deleted_arrays": ["/n+"],
            "updated_chunks": {"/n+": [[0]]},
        },
    ),
    "updated and written array, deleted": AmendRow(
        (array("/a", x=1), chunk("/a", 1)),
        (drop("/a"),),
        {
            "deleted_arrays": ["/a"],
            "updated_arrays": ["/a"],
            "updated_chunks": {"/a": [[1]]},
        },
    ),
    "updated group, deleted with all in it": AmendRow(
        (group("/g", x=1),),
        (drop_tree("/g"),),
        {"deleted_groups": ["/g"], "deleted_arrays": ["/g/b"], "updated_groups": ["/g"]},
    ),
    "deleted array, made again": AmendRow(
        (drop("/a"),),
        (array("/a"), chunk("/a", 0)),
        {
            "new_arrays": ["/a+"],
            "deleted_arrays": ["/a"],
            "updated_chunks": {"/a+": [[0]]},
        },
    ),
    "edits of different nodes": AmendRow(
        (group("/n"), chunk("/a", 1)),
        (array("/g/b", x=1), group("/m")),
        {
            "new_groups": ["/m+", "/n+"],
            "updated_arrays": ["/g/b"],
            "updated_chunks": {"/a": [[1]]},
        },
    ),
}


def paths_by_id(place: Path, before: dict[str, str] | None = None) -> dict[str, str]:
    """Paths by node id; with a + for those of nodes that were not there before."""
    session = opened(OURS, place).readonly_session("main")
    keys = asyncio.run(_keys(session.store))
    paths = ["/" + key[: -len("zarr.json")].strip("/") for key in keys]
    found = {session.get_node_id(path): path for path in paths}
    if before is None:
        return found
    return {**{id: f"{path}+" for id, path in found.items()}, **before}


async def _keys(store: Any) -> list[str]:
    return [key async for key in store.list() if key.endswith("zarr.json")]


def stored_log(place: Path, id: str, paths: dict[str, str]) -> dict[str, Any]:
    """The log object of a snapshot, with paths for ids and without its empty parts."""
    key = f"transactions/{id}"
    log = decode_transaction_log((place / key).read_bytes(), key)
    assert str(log.id) == id
    plain: dict[str, Any] = {
        name: sorted(paths[_text(raw)] for raw in getattr(log, name).tolist()) for name in LISTS
    }
    plain["updated_chunks"] = {
        paths[str(node)]: coordinates.tolist() for node, coordinates in log.updated_chunks.items()
    }
    plain["moved_nodes"] = [
        (each.source, each.target, paths[str(each.node_id)], each.node_type.name)
        for each in log.moved_nodes
    ]
    return {name: value for name, value in plain.items() if value}


def _text(raw: bytes) -> str:
    return str(NodeId(raw))


@pytest.fixture(scope="module", params=SPEC_VERSIONS, ids=lambda version: f"v{version}")
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that the cases copy."""
    place = tmp_path_factory.mktemp("base") / "repository"
    commit(create(REFERENCE, place, request.param), *BASE)
    return place


@pytest.fixture(params=LIBRARIES, ids=list(NAMES.values()))
def library(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


@pytest.fixture
def place(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "repository"))


@pytest.mark.parametrize("name", ROWS)
def test_the_log_of_a_commit_lists_what_it_changed(
    place: Path, library: ModuleType, name: str
) -> None:
    repository = opened(library, place)
    paths = paths_by_id(place)
    id = commit(repository, *ROWS[name].edits)
    assert stored_log(place, id, paths_by_id(place, paths)) == ROWS[name].log


def test_zarr_shrinks_an_array_chunk_by_chunk(place: Path) -> None:
    shrink = (resize("a", 2),)
    logs = []
    for number, library in enumerate(LIBRARIES):
        copied = Path(shutil.copytree(place, place.parent / str(number)))
        repository = opened(library, copied)
        paths = paths_by_id(copied)
        logs.append(stored_log(copied, commit(repository, *shrink), paths))
    assert logs[0]["updated_arrays"] == logs[1]["updated_arrays"] == ["/a"]
    if KNOWS_V2:
        assert logs[0] == logs[1]
        assert logs[0]["updated_chunks"] == {"/a": [[2], [3]]}


def test_chunks_given_up_in_a_rebase_leave_their_array_in_the_log(
    place: Path, library: ModuleType
) -> None:
    repository = opened(library, place)
    session = begin(repository, [chunk("/a", 1)])
    commit(repository, chunk("/a", 1, 7))
    theirs = library.VersionSelection.UseTheirs
    session.rebase(library.BasicConflictSolver(on_chunk_conflict=theirs))
    id = session.commit("nothing left")
    paths = paths_by_id(place)
    assert stored_log(place, id, paths) == {"updated_chunks": {"/a": []}}


@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
def test_the_first_snapshot_has_an_empty_log_in_spec_v2_and_none_in_v1(
    library: ModuleType, spec_version: int, tmp_path: Path
) -> None:
    create(library, tmp_path / "new", spec_version)
    if spec_version == 1:
        assert not (tmp_path / "new" / "transactions").exists()
    else:
        assert stored_log(tmp_path / "new", str(INITIAL_SNAPSHOT), {}) == {}


@pytest.fixture(params=[2] if KNOWS_V2 else [], ids=["v2"] if KNOWS_V2 else [])
def place_v2(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    commit(create(REFERENCE, tmp_path / "repository", request.param), *BASE)
    return tmp_path / "repository"


@pytest.mark.parametrize("name", AMENDED)
def test_the_log_of_an_amended_commit_is_the_union_of_both(
    place_v2: Path, library: ModuleType, name: str
) -> None:
    row = AMENDED[name]
    repository = opened(library, place_v2)
    paths = paths_by_id(place_v2)
    commit(repository, *row.first)
    between = paths_by_id(place_v2, paths)
    id = begin(repository, row.second).amend("amended")
    assert stored_log(place_v2, id, paths_by_id(place_v2, between)) == row.log


def test_edits_that_amend_moves_are_refused(place_v2: Path, library: ModuleType) -> None:
    move(opened(REFERENCE, place_v2), ("/a", "/z"))
    session = begin(opened(library, place_v2), [chunk("/z", 1)])
    with pytest.raises(library.SessionStateError) as raised:
        session.amend("edits")
    assert str(raised.value.kind) == "rearrange-session-only"


def test_an_empty_commit_has_an_empty_log(place_v2: Path, library: ModuleType) -> None:
    session = opened(library, place_v2).writable_session("main")
    id = session.commit("nothing", allow_empty=True)
    assert stored_log(place_v2, id, {}) == {}
