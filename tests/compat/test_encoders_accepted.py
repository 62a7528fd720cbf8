"""Objects that our encoders wrote mean to the reference what they mean to us."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import icechunk_stream
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.repo_info import decode_repo_info
from icechunk_stream.format.repo_info_encode import RepoState, encode_repo_info
from icechunk_stream.format.updates import BranchCreated, MetadataChanged, TagCreated, Update
from tests.compat import handmade
from tests.compat.committing import WRITTEN, exercise, history, legacy_exercise, values
from tests.compat.reencoding import re_encode
from tests.oracle.compare import assert_same
from tests.oracle.dump import dump_repository, open_repository
from tests.oracle.libraries import (
    KNOWS_V2,
    REFERENCE,
    SPEC_VERSIONS,
    legacy_dumps,
    legacy_repositories,
)
from tests.oracle.maker import make_repository
from tests.oracle.outcomes import is_failure
from tests.oracle.random_repositories import repository_plans, write_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.format.updates import UpdateKind
    from tests.oracle import plans

pytestmark = pytest.mark.compat

V1 = {"test-repo-v1": 15, "split-repo-v1": 44, "expire-repo-v1-by-1.1.21": 11}
V2 = {"test-repo-v2": 27, "split-repo-v2": 51, "expire-repo-v2-by-working-copy": 45}
FIXTURES = V1 | V2 if KNOWS_V2 else V1
# What re-encoding changes: who wrote an object, how long it is, and how it packs locations.
REWRITTEN = frozenset({"written_by", "app_name", "app_version", "size_bytes", "compression"})
NAMES = ("before", "after our encoding")
RANDOM = settings.get_profile(settings.get_current_profile_name()).max_examples // 10


def settled(dumped: Any) -> Any:
    """A dump without what re-encoding changes."""
    match dumped:
        case dict():
            kept = {name: settled(item) for name, item in dumped.items() if name not in REWRITTEN}
            if isinstance(kept.get("manifest_files"), list):
                kept["manifest_files"] = [[id, refs] for id, _, refs in kept["manifest_files"]]
            return kept
        case list():
            return [settled(item) for item in dumped]
        case _:
            return dumped


@pytest.mark.parametrize("name", FIXTURES)
def test_the_reference_sees_no_change_where_we_encode_everything_again(
    name: str, fixture_copy: Callable[[str], Path]
) -> None:
    location = fixture_copy(name)
    expected = dump_repository(REFERENCE, location)
    assert re_encode(location) == FIXTURES[name]
    assert_same(settled(expected), settled(dump_repository(REFERENCE, location)), NAMES)


@pytest.mark.parametrize("name", V1)
def test_the_old_reference_sees_no_change_where_we_encode_everything_again(
    name: str, fixture_copy: Callable[[str], Path]
) -> None:
    location = fixture_copy(name)
    (expected,) = legacy_dumps([(str(location), ())])
    re_encode(location)
    (found,) = legacy_dumps([(str(location), ())])
    assert_same(settled(expected), settled(found), NAMES)


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> plans.Containers:
    return write_files(tmp_path_factory.mktemp("virtual"))


@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
@settings(max_examples=RANDOM, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_the_reference_sees_no_change_in_random_repositories(
    data: st.DataObject, spec_version: int, containers: plans.Containers
) -> None:
    plan = data.draw(repository_plans(containers, spec_version))
    with tempfile.TemporaryDirectory() as folder:
        location = Path(folder) / "repository"
        make_repository(REFERENCE, plan, str(location), containers)
        expected = dump_repository(REFERENCE, location, [containers.prefix])
        re_encode(location)
        found = dump_repository(REFERENCE, location, [containers.prefix])
    assert_same(settled(expected), settled(found), NAMES)


@settings(max_examples=2, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_the_old_reference_sees_no_change_in_random_repositories(
    data: st.DataObject, containers: plans.Containers
) -> None:
    made = [data.draw(repository_plans(containers, 1)) for _ in range(5)]
    with tempfile.TemporaryDirectory() as folder:
        locations = [Path(folder) / str(number) for number in range(len(made))]
        legacy_repositories(
            [(plan, str(location)) for plan, location in zip(made, locations, strict=True)],
            containers,
        )
        places = [(str(location), (containers.prefix,)) for location in locations]
        expected = legacy_dumps(places)
        for location in locations:
            re_encode(location)
        found = legacy_dumps(places)
    assert_same(settled(expected), settled(found), NAMES)


@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
def test_the_reference_reads_and_continues_what_we_wrote(spec_version: int, tmp_path: Path) -> None:
    made = handmade.make(REFERENCE, tmp_path, spec_version)
    seen = exercise(REFERENCE, str(made.location), made.prefix)
    assert_right(seen, made)


def test_the_old_reference_reads_and_continues_what_we_wrote(tmp_path: Path) -> None:
    made = handmade.make(REFERENCE, tmp_path, 1)
    seen = legacy_exercise(str(made.location), made.prefix)
    assert_right(seen, made)


def assert_right(seen: dict[str, Any], made: handmade.Handmade) -> None:
    """Everything is as the handmade commit says, before and after a commit of the reference."""
    ours = open_repository(icechunk_stream, made.location, [made.prefix])
    assert_history(seen["history"], history(ours), seen["committed"])
    chunks = {f"/{name}": sorted(map(list, refs)) for name, refs in made.refs.items()}
    assert seen["changes"] == {"updated_chunks": chunks, "updated_groups": ["/"]}
    assert_values(seen["values"], handmade.VALUES)
    assert is_failure(seen["values"]["stale"])
    for step in ("values_after_commit", "values_after_collection"):
        assert_values(seen[step], written_over())
        assert is_failure(seen[step]["stale"])
    assert_values(values(ours), written_over())


def assert_history(seen: dict[str, Any], afterwards: dict[str, Any], committed: str) -> None:
    messages = [message for _, _, message, *_ in seen["ancestry"]]
    assert messages == ["references", "arrays", "Repository initialized"]
    assert seen["ancestry"][0][4] == {"step": 2, "more": [1.5, None]}
    assert seen["branches"].keys() == {"main", "dev"}
    assert seen["branches"]["dev"] == seen["tags"]["v1"] == seen["ancestry"][1][0]
    assert afterwards["branches"] == seen["branches"] | {"main": committed}
    assert afterwards["tags"] == seen["tags"]
    assert [info[:3] for info in afterwards["ancestry"][1:]] == [
        info[:3] for info in seen["ancestry"]
    ]


def assert_values(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert {name: found[name] for name in expected} == expected


def written_over() -> dict[str, Any]:
    """The values after the first chunk of every array was written."""
    w = WRITTEN
    return {
        "packed": [w, w, *handmade.VALUES["packed"][2:]],
        "mixed": [[w, w, 130, 131], [w, w, 132, 133], *handmade.VALUES["mixed"][2:]],
        "virtual": [w, w, *handmade.VALUES["virtual"][2:]],
        "tagged": [w, w],
        "point": w,
    }


def change_tip(location: Path, tip: SnapshotId) -> None:
    """Add refs, metadata, a flag and the entries of the operations log that go with them."""
    path = location / "repo"
    before = path.read_bytes()
    info = decode_repo_info(before, "repo")
    state, logged = RepoState.of(info), info.updates()
    backup = "repo.30000000000000.00000000000000000000"
    (location / "overwritten" / backup).write_bytes(before)
    newest = logged[0]
    added: list[UpdateKind] = [TagCreated("ours"), BranchCreated("ours/é"), MetadataChanged()]
    updates = [Update(kind, newest.updated_at + 3 - at) for at, kind in enumerate(added)]
    updates[1:] = [replace(update, backup=backup) for update in updates[1:]]
    changed = replace(
        state,
        tags=dict(state.tags) | {"ours": tip},
        branches=dict(state.branches) | {"ours/é": tip},
        deleted_tags=["gone"],
        metadata={"owner": ["é", 1.5]},
        disabled_flags=frozenset({3}),
        updates=[*updates, replace(newest, backup=backup), *logged[1:]],
        older=None,
    )
    path.write_bytes(encode_repo_info(changed))


if KNOWS_V2:

    def test_the_reference_goes_on_from_a_tip_that_we_changed(tmp_path: Path) -> None:
        made = handmade.make(REFERENCE, tmp_path, 2)
        tip = open_repository(REFERENCE, made.location).lookup_branch("main")
        logged = _log(open_repository(REFERENCE, made.location))
        change_tip(made.location, SnapshotId.parse(tip))
        repository = open_repository(REFERENCE, made.location, [made.prefix])
        assert repository.lookup_tag("ours") == repository.lookup_branch("ours/é") == tip
        assert repository.get_metadata() == {"owner": ["é", 1.5]}
        assert [flag.name for flag in repository.disabled_feature_flags()] == ["move_node"]
        assert _log(repository) == ["TagCreated", "BranchCreated", "MetadataChanged", *logged]
        with pytest.raises(REFERENCE.IcechunkError, match="gone"):
            repository.create_tag("gone", tip)
        repository.create_tag("theirs", tip)
        session = repository.writable_session("ours/é")
        committed = session.commit("empty", allow_empty=True)
        assert repository.lookup_branch("ours/é") == committed
        assert _log(repository)[:3] == ["NewCommit", "TagCreated", "TagCreated"]
        assert repository.list_tags() == {"v1", "ours", "theirs"}


def _log(repository: Any) -> list[str]:
    return [type(update.kind).__name__ for update in repository.ops_log()]
