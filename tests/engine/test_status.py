"""Status, feature flags and metadata of repositories of spec v2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

import icechunk_stream as ic
from icechunk_stream.format.ids import INITIAL_SNAPSHOT

FIRST = str(INITIAL_SNAPSHOT)
READ_ONLY = ic.RepoStatus(ic.RepoAvailability.read_only, limited_availability_reason="moving")


@pytest.fixture
def repository() -> ic.Repository:
    return ic.Repository.create(ic.in_memory_storage())


CHANGES: dict[str, Callable[[ic.Repository], object]] = {
    "create_branch": lambda it: it.create_branch("new", FIRST),
    "reset_branch": lambda it: it.reset_branch("main", FIRST),
    "delete_branch": lambda it: it.delete_branch("b"),
    "create_tag": lambda it: it.create_tag("new", FIRST),
    "delete_tag": lambda it: it.delete_tag("t"),
    "set_metadata": lambda it: it.set_metadata({}),
    "update_metadata": lambda it: it.update_metadata({}),
    "set_feature_flag": lambda it: it.set_feature_flag("move_node", False),
    "save_config": lambda it: it.save_config(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_read_only_repository_refuses_changes_and_says_why(
    repository: ic.Repository, change: str
) -> None:
    repository.create_branch("b", FIRST)
    repository.create_tag("t", FIRST)
    repository.set_status(READ_ONLY)
    before = list(repository.ops_log())
    with pytest.raises(ic.ReadOnlyError, match="moving") as caught:
        CHANGES[change](repository)

    assert caught.value.kind == "read-only-repository"
    assert list(repository.ops_log()) == before


def test_a_read_only_repository_is_read_and_set_online_again(repository: ic.Repository) -> None:
    repository.set_status(READ_ONLY)
    assert repository.status == READ_ONLY
    assert repository.lookup_branch("main") == FIRST
    online = ic.RepoStatus(ic.RepoAvailability.online, datetime(2024, 2, 3, tzinfo=UTC))
    repository.set_status(online)

    assert ic.Repository.open(repository.storage).get_status() == online
    repository.create_branch("b", FIRST)
    assert [type(update.kind).__name__ for update in repository.ops_log()] == [
        "BranchCreated",
        "RepoStatusChanged",
        "RepoStatusChanged",
        "RepoInitialized",
    ]


def test_only_a_status_is_a_status(repository: ic.Repository) -> None:
    with pytest.raises(TypeError, match="RepoStatus"):
        repository.set_status("online")  # type: ignore[arg-type]


def test_a_flag_is_set_reset_and_obeyed(repository: ic.Repository) -> None:
    repository.set_feature_flag("create_tag", False)
    with pytest.raises(ic.SessionStateError, match="create_tag") as caught:
        repository.create_tag("t", FIRST)
    assert caught.value.kind == "feature-flag-disabled"
    assert [flag.name for flag in repository.disabled_feature_flags()] == ["create_tag"]
    repository.set_feature_flag("create_tag", True)
    repository.create_tag("t", FIRST)
    assert {flag.name: flag.setting for flag in repository.feature_flags()} == {
        "move_node": None,
        "create_tag": True,
        "delete_tag": None,
    }
    repository.set_feature_flag("create_tag", None)
    repository.set_feature_flag("delete_tag", False)
    with pytest.raises(ic.SessionStateError, match="delete_tag"):
        repository.delete_tag("t")

    assert repository.list_tags() == {"t"}
    assert {flag.name: flag.setting for flag in repository.feature_flags()} == {
        "move_node": None,
        "create_tag": None,
        "delete_tag": False,
    }


def test_an_unknown_flag_is_refused(repository: ic.Repository) -> None:
    with pytest.raises(ic.InvalidInputError, match="move_node, create_tag, delete_tag") as caught:
        repository.set_feature_flag("move_nodes", False)
    assert caught.value.kind == "invalid-feature-flag"


def test_metadata_are_replaced_and_updated(repository: ic.Repository) -> None:
    repository.set_metadata({"a": 1, "b": {"c": [1, 2.5, None, True]}})
    assert repository.metadata == {"a": 1, "b": {"c": [1, 2.5, None, True]}}
    updated = repository.update_metadata({"b": {"d": "é"}, "e": None})
    assert updated == {"a": 1, "b": {"d": "é"}, "e": None} == repository.get_metadata()
    repository.set_metadata({"f": 2})

    assert ic.Repository.open(repository.storage).metadata == {"f": 2}


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes"])
def test_what_is_not_json_is_no_metadata(repository: ic.Repository, value: object) -> None:
    with pytest.raises(ValueError, match="'a'"):
        repository.set_metadata({"a": value})
    assert repository.metadata == {}


@pytest.mark.parametrize(
    "change", ["set_metadata", "update_metadata", "set_status", "set_feature_flag"]
)
def test_spec_v1_has_neither_status_nor_flags_nor_metadata(change: str) -> None:
    repository = ic.Repository.create(ic.in_memory_storage(), spec_version=1)
    calls: dict[str, Callable[[], object]] = {
        "set_metadata": lambda: repository.set_metadata({}),
        "update_metadata": lambda: repository.update_metadata({}),
        "set_status": lambda: repository.set_status(READ_ONLY),
        "set_feature_flag": lambda: repository.set_feature_flag("nothing", False),
    }
    with pytest.raises(ic.FormatError, match="spec v2") as caught:
        calls[change]()
    assert caught.value.kind == "unsupported-spec-version"


def test_the_asynchronous_twins_do_the_same(repository: ic.Repository) -> None:
    async def run() -> object:
        await repository.set_metadata_async({"a": 1})
        await repository.set_feature_flag_async("move_node", True)
        updated = await repository.update_metadata_async({"b": 2})
        await repository.set_status_async(READ_ONLY)
        return updated

    assert asyncio.run(run()) == {"a": 1, "b": 2} == repository.metadata
    assert [flag.name for flag in repository.feature_flags() if flag.setting] == ["move_node"]
    assert repository.status == READ_ONLY
