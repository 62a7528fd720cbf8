"""The table of conflicts, row by row: whoever rebases over whomever, the outcome is one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from tests.compat.edits import (
    LIBRARIES,
    NAMES,
    Edit,
    array,
    begin,
    chunk,
    commit,
    contents,
    create,
    drop,
    drop_chunk,
    drop_tree,
    group,
    opened,
    plain_conflicts,
    plain_diff,
)
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

pytestmark = pytest.mark.compat

BASE = (
    group("/"),
    array("/a"),
    chunk("/a", 0),
    group("/g"),
    array("/g/b"),
    chunk("/g/b", 0),
    group("/h"),
)


@dataclass(frozen=True)
class Row:
    """Our edits, theirs, and the conflicts between them: kind, path, chunks."""

    ours: tuple[Edit, ...]
    theirs: tuple[Edit, ...]
    conflicts: tuple[tuple[str, str, tuple[int, ...]], ...] = ()


ROWS = {
    "new node where they made a group": Row(
        (group("/n", mine=1),),
        (group("/n"),),
        (("NewNodeConflictsWithExistingNode", "/n", ()),),
    ),
    "new array where they made one": Row(
        (array("/n"), chunk("/n", 0)),
        (array("/n"), chunk("/n", 0)),
        (("NewNodeConflictsWithExistingNode", "/n", ()),),
    ),
    "new array where they made a group": Row(
        (array("/n"), chunk("/n", 0)),
        (group("/n"),),
        (("NewNodeConflictsWithExistingNode", "/n", ()),),
    ),
    "new node below an array that they made": Row(
        (group("/n/x"),),
        (array("/n"),),
        (("NewNodeInInvalidGroup", "/n", ()),),
    ),
    "new node deep below an array that they made": Row(
        (array("/n/x/y"),),
        (array("/n"),),
        (("NewNodeInInvalidGroup", "/n", ()),),
    ),
    "new nodes, one at and one below their array": Row(
        (group("/n"), group("/n/x")),
        (array("/n"),),
        (
            ("NewNodeConflictsWithExistingNode", "/n", ()),
            ("NewNodeInInvalidGroup", "/n", ()),
        ),
    ),
    "new nodes, each in its place": Row((group("/m"),), (group("/n"), array("/g/n"))),
    "array updated by both": Row(
        (array("/a", mine=1),),
        (array("/a", their=1),),
        (("ZarrMetadataDoubleUpdate", "/a", ()),),
    ),
    "array resized by both": Row(
        (array("/a", 6),),
        (array("/a", 8),),
        (("ZarrMetadataDoubleUpdate", "/a", ()),),
    ),
    "group updated by both": Row(
        (group("/g", mine=1),),
        (group("/g", their=1),),
        (("ZarrMetadataDoubleUpdate", "/g", ()),),
    ),
    "other nodes updated": Row((array("/a", mine=1), group("/h", x=1)), (group("/g", x=2),)),
    "updated array that they deleted": Row(
        (array("/a", mine=1),),
        (drop("/a"),),
        (("ZarrMetadataUpdateOfDeletedArray", "/a", ()),),
    ),
    "updated group that they deleted": Row(
        (group("/h", mine=1),),
        (drop("/h"),),
        (("ZarrMetadataUpdateOfDeletedGroup", "/h", ()),),
    ),
    "chunks of an array that they deleted": Row(
        (chunk("/g/b", 1),),
        (drop_tree("/g"),),
        (("ChunksUpdatedInDeletedArray", "/g/b", ()),),
    ),
    "chunks of an array that they updated": Row(
        (chunk("/a", 1),),
        (array("/a", their=1),),
        (("ChunksUpdatedInUpdatedArray", "/a", ()),),
    ),
    "chunks of an array that they resized": Row(
        (chunk("/a", 1),),
        (array("/a", 8),),
        (("ChunksUpdatedInUpdatedArray", "/a", ()),),
    ),
    "updated array that they wrote chunks of": Row(
        (array("/a", mine=1),),
        (chunk("/a", 1, 5),),
    ),
    "chunks written by both": Row(
        (chunk("/a", 0, 5), chunk("/a", 1, 5), chunk("/a", 2, 5), chunk("/g/b", 3, 5)),
        (chunk("/a", 0, 6), chunk("/a", 2, 6), chunk("/a", 3, 6)),
        (("ChunkDoubleUpdate", "/a", (0, 2)),),
    ),
    "chunk that we wrote and they deleted": Row(
        (chunk("/a", 0, 5),),
        (drop_chunk("/a", 0),),
        (("ChunkDoubleUpdate", "/a", (0,)),),
    ),
    "chunk that we deleted and they wrote": Row(
        (drop_chunk("/a", 0),),
        (chunk("/a", 0, 6),),
        (("ChunkDoubleUpdate", "/a", (0,)),),
    ),
    "other chunks": Row((chunk("/a", 0, 5), chunk("/a", 1, 5)), (chunk("/a", 2, 6),)),
    "chunks of other arrays": Row((chunk("/a", 0, 5),), (chunk("/g/b", 0, 6),)),
    "deleted array that they updated": Row(
        (drop("/a"),),
        (array("/a", their=1),),
        (("DeleteOfUpdatedArray", "/a", ()),),
    ),
    "deleted array that they wrote chunks of": Row(
        (drop("/a"),),
        (chunk("/a", 1),),
        (("DeleteOfUpdatedArray", "/a", ()),),
    ),
    "deleted group that they updated": Row(
        (drop("/h"),),
        (group("/h", their=1),),
        (("DeleteOfUpdatedGroup", "/h", ()),),
    ),
    "deleted tree that they changed at two places": Row(
        (drop_tree("/g"),),
        (group("/g", their=1), chunk("/g/b", 1)),
        (("DeleteOfUpdatedArray", "/g/b", ()), ("DeleteOfUpdatedGroup", "/g", ())),
    ),
    "nodes deleted by both": Row((drop_tree("/g"), drop("/a")), (drop_tree("/g"), drop("/a"))),
    "deleted group in which they made a node": Row((drop_tree("/g"),), (group("/g/n"),)),
    "new node in a group that they deleted": Row((group("/g/n"),), (drop_tree("/g"),)),
    "deleted array that they made again": Row((drop("/a"),), (drop("/a"), array("/a", 2))),
    "replaced array beside other changes": Row(
        (drop("/a"), array("/a", 2), chunk("/a", 1, 5)),
        (group("/n"),),
    ),
    "replaced array that they wrote chunks of": Row(
        (drop("/a"), array("/a", 2), chunk("/a", 1, 5)),
        (chunk("/a", 1, 6),),
        (("DeleteOfUpdatedArray", "/a", ()),),
    ),
    "replaced array that they deleted": Row(
        (drop("/a"), array("/a", 2), chunk("/a", 1, 5)),
        (drop("/a"),),
    ),
    "array replaced by a group with nodes": Row(
        (drop("/a"), group("/a"), group("/a/x")),
        (group("/n"),),
        (("NewNodeInInvalidGroup", "/a", ()),),
    ),
    "everything at once": Row(
        (
            group("/n"),
            group("/g", mine=1),
            array("/a", mine=1),
            chunk("/a", 0, 5),
            drop("/g/b"),
        ),
        (
            group("/n"),
            group("/g", their=1),
            array("/a", their=1),
            chunk("/a", 0, 6),
            array("/g/b", their=1),
        ),
        (
            ("NewNodeConflictsWithExistingNode", "/n", ()),
            ("ZarrMetadataDoubleUpdate", "/a", ()),
            ("ZarrMetadataDoubleUpdate", "/g", ()),
            ("ChunksUpdatedInUpdatedArray", "/a", ()),
            ("ChunkDoubleUpdate", "/a", (0,)),
            ("DeleteOfUpdatedArray", "/g/b", ()),
        ),
    ),
    "a conflict that has a solution beside one that has none": Row(
        (chunk("/a", 0, 5), group("/g", mine=1)),
        (chunk("/a", 0, 6), group("/g", their=1)),
        (("ChunkDoubleUpdate", "/a", (0,)), ("ZarrMetadataDoubleUpdate", "/g", ())),
    ),
    "nothing of ours": Row((), (chunk("/a", 0, 6), group("/g", their=1))),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "our chunks win": {},
    "their chunks win": {"on_chunk_conflict": "UseTheirs"},
    "no chunks win": {"on_chunk_conflict": "Fail"},
    "updated arrays stay": {"fail_on_delete_of_updated_array": True},
    "updated groups stay": {"fail_on_delete_of_updated_group": True},
}
REFUSED = {
    "our chunks win": set[str](),
    "their chunks win": set[str](),
    "no chunks win": {"ChunkDoubleUpdate"},
    "updated arrays stay": {"DeleteOfUpdatedArray"},
    "updated groups stay": {"DeleteOfUpdatedGroup"},
}
SOLVABLE = {"ChunkDoubleUpdate", "DeleteOfUpdatedArray", "DeleteOfUpdatedGroup"}


@pytest.fixture(scope="module", params=SPEC_VERSIONS, ids=lambda version: f"v{version}")
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that the cases copy."""
    place = tmp_path_factory.mktemp("base") / "repository"
    commit(create(REFERENCE, place, request.param), *BASE)
    return place


def solver(library: ModuleType, options: dict[str, Any] | None) -> Any:
    if options is None:
        return library.ConflictDetector()
    chosen = dict(options)
    if "on_chunk_conflict" in chosen:
        chosen["on_chunk_conflict"] = getattr(library.VersionSelection, chosen["on_chunk_conflict"])
    return library.BasicConflictSolver(**chosen)


def outcome(
    place: Path, libraries: tuple[ModuleType, ModuleType], row: Row, options: dict[str, Any] | None
) -> Any:
    """What became of a session of the first library over a commit of the second."""
    first, second = libraries
    repository, other = opened(first, place), opened(second, place)
    session = begin(repository, row.ours)
    before = [session.snapshot_id, plain_diff(session.status())]
    theirs = commit(other, *row.theirs)
    failure = None
    try:
        session.rebase(solver(first, options))
    except first.RebaseFailedError as error:
        failure = error
    if failure is None:
        return rebased(session, theirs, opened(REFERENCE, place))
    assert [session.snapshot_id, plain_diff(session.status())] == before
    assert failure.snapshot == theirs
    return plain_conflicts(first, failure.conflicts)


def rebased(session: Any, theirs: str, reader: Any) -> Any:
    """What the session holds on the new base, and what its commit then makes of it."""
    assert session.snapshot_id == theirs
    status = plain_diff(session.status())
    if not session.has_uncommitted_changes:
        return [status]
    id = session.commit("rebased")
    assert reader.lookup_branch("main") == id
    return [status, contents(reader), plain_diff(diff(reader, theirs, id))]


def diff(repository: Any, older: str, newer: str) -> Any:
    return repository.diff(from_snapshot_id=older, to_snapshot_id=newer)


def outcomes(base: Path, row: Row, options: dict[str, Any] | None, tmp_path: Path) -> list[Any]:
    """Both libraries in both roles."""
    found = []
    for number, libraries in enumerate(product(LIBRARIES, LIBRARIES)):
        place = tmp_path / str(number)
        shutil.copytree(base, place)
        found.append(outcome(place, libraries, row, options))
    return found


def assert_one(found: list[Any]) -> None:
    for libraries, each in zip(product(LIBRARIES, LIBRARIES), found, strict=True):
        names = " over ".join(NAMES[library] for library in libraries)
        assert each == found[-1], f"{names} differs from the reference alone"


def expected(row: Row) -> list[Any]:
    return sorted([kind, path, [[at] for at in chunks]] for kind, path, chunks in row.conflicts)


@pytest.mark.parametrize("name", ROWS)
def test_the_detector_finds_the_conflicts(base: Path, name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    found = outcomes(base, row, None, tmp_path)
    assert_one(found)
    if row.conflicts:
        assert found[0] == expected(row)
    else:
        assert isinstance(found[0][0], dict)


SOLVING = [
    (name, options)
    for name, row in ROWS.items()
    for options in OPTIONS
    # What no solver solves is asked for once.
    if {kind for kind, _, _ in row.conflicts} & SOLVABLE or options == "our chunks win"
]


@pytest.mark.parametrize(("name", "options"), SOLVING)
def test_the_solver_solves_what_it_is_told_to(
    base: Path, name: str, options: str, tmp_path: Path
) -> None:
    row = ROWS[name]
    found = outcomes(base, row, OPTIONS[options], tmp_path)
    assert_one(found)
    kinds = {kind for kind, _, _ in row.conflicts}
    if kinds <= SOLVABLE - REFUSED[options]:
        assert isinstance(found[0][0], dict)
    else:
        assert found[0] == expected(row)
