"""Storing a configuration: what is kept, and what happens when somebody else stored one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import icechunk_stream as ic
from icechunk_stream.storage import Storage
from tests.engine.altered import Interrupted

both_specs = pytest.mark.parametrize("spec_version", [1, 2])


def config(threshold: int) -> ic.RepositoryConfig:
    return ic.RepositoryConfig(inline_chunk_threshold_bytes=threshold)


def backups(storage: Storage) -> list[str]:
    return [info.key for info in storage.list("overwritten/")]


@both_specs
def test_settings_given_on_opening_are_saved(spec_version: int) -> None:
    storage = ic.in_memory_storage()
    ic.Repository.create(storage, spec_version=spec_version)
    ic.Repository.open(storage, config(7)).save_config()

    assert ic.Repository.fetch_config(storage) == config(7)
    assert ic.Repository.open(storage).config == config(7)


@both_specs
def test_a_repository_saves_again_and_again(spec_version: int) -> None:
    storage = ic.in_memory_storage()
    repository = ic.Repository.create(storage, config(1), spec_version=spec_version)
    for threshold in (2, 3):
        repository = repository.reopen(config(threshold))
        repository.save_config()
        repository.save_config()

    assert ic.Repository.fetch_config(storage) == config(3)


@both_specs
def test_settings_of_a_newer_library_are_kept(spec_version: int) -> None:
    storage = ic.in_memory_storage()
    given = config(1)
    given.unknown = {"of_the_future": {"deep": [1, "two"]}}
    ic.Repository.create(storage, given, spec_version=spec_version)
    before = ic.Repository.fetch_config(storage)
    ic.Repository.open(storage, config(2)).save_config()
    after = ic.Repository.fetch_config(storage)

    assert before is not None
    assert after is not None
    assert after.inline_chunk_threshold_bytes == 2
    assert dict(after.unknown) == dict(before.unknown) != {}


def test_spec_v1_keeps_each_configuration_that_is_replaced() -> None:
    storage = ic.in_memory_storage()
    repository = ic.Repository.create(storage, spec_version=1).reopen(config(1))
    repository.save_config()
    assert backups(storage) == []
    first = storage.get("config.yaml")
    repository.reopen(config(2)).save_config()
    [kept] = backups(storage)

    name = kept.split(".")
    assert name[:2] == ["overwritten/config", "yaml"]
    assert (len(name[2]), name[2].isdigit(), len(name[3])) == (14, True, 20)
    assert storage.get(kept) == first != storage.get("config.yaml")


def test_spec_v2_logs_the_change() -> None:
    repository = ic.Repository.create(ic.in_memory_storage()).reopen(config(1))
    repository.save_config()

    newest, oldest = repository.ops_log()
    assert newest.kind == ic.UpdateType.ConfigChanged()
    assert [f"overwritten/{oldest.backup_path}"] == backups(repository.storage)


@both_specs
@pytest.mark.parametrize("stored", [None, config(1)])
def test_a_configuration_that_others_changed_is_not_overwritten(
    spec_version: int, stored: ic.RepositoryConfig | None
) -> None:
    storage = ic.in_memory_storage()
    ic.Repository.create(storage, stored, spec_version=spec_version)
    ours = ic.Repository.open(storage, config(2))
    ic.Repository.open(storage, config(3)).save_config()
    for _ in range(2):
        with pytest.raises(ic.ConflictError, match="open it again") as caught:
            ours.save_config()
        assert caught.value.kind == "config-updated"

    assert ic.Repository.fetch_config(storage) == config(3)
    ic.Repository.open(storage, config(2)).save_config()
    assert ic.Repository.fetch_config(storage) == config(2)


@pytest.mark.parametrize(("spec_version", "key"), [(1, "config.yaml"), (2, "repo")])
def test_a_configuration_that_comes_between_is_not_overwritten(spec_version: int, key: str) -> None:
    storage = Interrupted(key, lambda _: None)
    ic.Repository.create(storage, config(1), spec_version=spec_version)
    ours = ic.Repository.open(storage, config(2))
    storage.before = lambda there: ic.Repository.open(there, config(3)).save_config()
    with pytest.raises(ic.ConflictError) as caught:
        ours.save_config()

    assert caught.value.kind == "config-updated"
    assert ic.Repository.fetch_config(storage) == config(3)


def test_changes_of_refs_do_not_disturb_a_configuration() -> None:
    storage = ic.in_memory_storage()
    repository = ic.Repository.create(storage, config(1))
    ours = ic.Repository.open(storage, config(2))
    repository.create_branch("b", repository.lookup_branch("main"))
    ours.save_config()

    assert ic.Repository.open(storage).config == config(2)
    assert repository.list_branches() == {"main", "b"}


@both_specs
def test_a_configuration_is_saved_on_disk(tmp_path: Path, spec_version: int) -> None:
    storage = ic.local_filesystem_storage(tmp_path)
    repository = ic.Repository.create(storage, spec_version=spec_version)
    asyncio.run(repository.reopen(config(5)).save_config_async())

    assert (tmp_path / "config.yaml").is_file() == (spec_version == 1)
    assert ic.Repository.open(storage).config == config(5)
