"""Both libraries, opened afresh, say what the model says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import icechunk_stream
from tests.alternation.places import LIBRARIES, OURS, THEIRS
from tests.alternation.seen import expected, seen
from tests.oracle.compare import assert_same
from tests.oracle.dump import dump_repository
from tests.oracle.libraries import REFERENCE
from tests.oracle.outcomes import outcome, plain_time

if TYPE_CHECKING:
    from tests.alternation.history import History
    from tests.alternation.places import Place
    from tests.alternation.states import State

_DIFF_PARTS = (
    *("new_groups", "new_arrays", "deleted_groups", "deleted_arrays"),
    *("updated_groups", "updated_arrays", "updated_chunks", "moved_nodes"),
)


def check_refs(place: Place, history: History) -> None:
    for library in LIBRARIES:
        repository = place.fresh(library)
        branches = {name: repository.lookup_branch(name) for name in repository.list_branches()}
        tags = {name: repository.lookup_tag(name) for name in repository.list_tags()}
        assert (library, branches) == (library, history.branches)
        assert (library, tags) == (library, history.tags)
        if history.spec_version == 2:
            assert (library, repository.get_metadata()) == (library, history.metadata)


def check_branch(place: Place, history: History, branch: str) -> None:
    """Values, ancestry and the last commit's diff."""
    told = {library: _told(place.fresh(library), history, branch) for library in LIBRARIES}
    assert_same(told[THEIRS], told[OURS], (THEIRS, OURS))
    _check_ancestry(told[OURS]["ancestry"], history, branch)
    assert_same(expected(history.tip(branch).state), told[OURS]["seen"], ("model", OURS))


def check_snapshot(place: Place, history: History, id: str) -> None:
    for library in LIBRARIES:
        found = seen(place.fresh(library).readonly_session(snapshot_id=id))
        assert_same(expected(history.commits[id].state), found, ("model", library))


def check_session(session: Any, state: State) -> None:
    """What a session shows before it is committed."""
    assert_same(expected(state), seen(session), ("model", "session"))


def check_dumps(place: Place) -> None:
    """Everything that is stored, through both libraries."""
    theirs = dump_repository(REFERENCE, place.location, [place.prefix])
    ours = dump_repository(icechunk_stream, place.location, [place.prefix])
    assert_same(theirs, ours, (THEIRS, OURS))


def plain_diff(diff: Any) -> dict[str, Any]:
    parts = {name: getattr(diff, name) for name in _DIFF_PARTS}
    return {name: _sorted(part) for name, part in parts.items()}


def _sorted(part: Any) -> Any:
    return sorted(part) if isinstance(part, set) else part


def _told(repository: Any, history: History, branch: str) -> dict[str, Any]:
    parent = history.tip(branch).parent
    told: dict[str, Any] = {
        "seen": seen(repository.readonly_session(branch)),
        "ancestry": [_info(info) for info in repository.ancestry(branch=branch)],
    }
    if parent is not None:
        told["diff"] = outcome(_diff, repository, parent, branch)
    return told


def _diff(repository: Any, parent: str, branch: str) -> dict[str, Any]:
    return plain_diff(repository.diff(from_snapshot_id=parent, to_branch=branch))


def _info(info: Any) -> dict[str, Any]:
    return {
        "id": info.id,
        "parent": info.parent_id,
        "message": info.message,
        "time": plain_time(info.written_at),
        "metadata": info.metadata,
    }


def _check_ancestry(found: list[dict[str, Any]], history: History, branch: str) -> None:
    modelled = history.ancestry(history.branches[branch])
    assert [info["id"] for info in found] == [commit.id for commit in modelled]
    assert [info["parent"] for info in found] == [commit.parent for commit in modelled]
    for info, commit in zip(found, modelled, strict=True):
        assert info["message"] == commit.message
        assert commit.metadata is None or info["metadata"] == commit.metadata
