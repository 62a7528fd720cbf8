"""Creating repositories: what is refused, what is left behind, and who wins."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

import icechunk_stream as ic
from icechunk_stream.effects import now_micros
from icechunk_stream.format.ids import INITIAL_SNAPSHOT
from icechunk_stream.storage import Storage
from tests.engine.altered import Careless, Counting, Interrupted, OtherClock

FIRST = str(INITIAL_SNAPSHOT)
MINUTE = 60 * 1_000_000

both_specs = pytest.mark.parametrize("spec_version", [1, 2])


def keys(storage: Storage) -> list[str]:
    return [info.key for info in storage.list()]


@both_specs
def test_a_new_repository_has_one_branch_at_one_snapshot(spec_version: int) -> None:
    storage = ic.in_memory_storage()
    before = now_micros()
    repository = ic.Repository.create(storage, spec_version=spec_version)

    assert repository.spec_version == spec_version
    assert ic.Repository.fetch_spec_version(storage) == spec_version
    assert repository.list_branches() == {"main"}
    assert repository.list_tags() == set()
    assert repository.lookup_branch("main") == FIRST
    [info] = repository.ancestry(branch="main")
    assert (info.id, info.parent_id, info.message) == (FIRST, None, "Repository initialized")
    assert info.metadata == {"__icechunk": {"is_root": True}}
    assert before <= info.written_at.timestamp() * 1e6 + 1
    assert list(repository.readonly_session("main").reader.nodes) == []


def test_spec_v1_is_a_ref_and_a_snapshot() -> None:
    storage = ic.in_memory_storage()
    ic.Repository.create(storage, spec_version=1)

    assert keys(storage) == ["refs/branch.main/ref.json", f"snapshots/{FIRST}"]
    assert storage.get("refs/branch.main/ref.json") == b'{"snapshot":"%s"}' % FIRST.encode()


def test_spec_v2_is_a_repo_object_and_a_snapshot_with_its_log() -> None:
    storage = ic.in_memory_storage()
    repository = ic.Repository.create(storage)

    assert keys(storage) == ["repo", f"snapshots/{FIRST}", f"transactions/{FIRST}"]
    assert repository.spec_version == ic.SpecVersion.v2
    [update] = repository.ops_log()
    assert update.kind == ic.UpdateType.RepoInitialized()
    assert update.backup_path is None
    assert repository.status.availability == ic.RepoAvailability.online
    assert repository.metadata == {}


@both_specs
def test_a_repository_is_created_in_a_folder_that_does_not_exist(
    tmp_path: Path, spec_version: int
) -> None:
    storage = ic.local_filesystem_storage(tmp_path / "new" / "place")
    ic.Repository.create(storage, spec_version=spec_version)

    assert ic.Repository.open(storage).list_branches() == {"main"}


@both_specs
def test_a_place_that_holds_anything_is_refused(spec_version: int) -> None:
    storage = ic.in_memory_storage()
    storage.put("notes.txt", b"")

    with pytest.raises(ic.InvalidInputError, match=r"notes\.txt") as caught:
        ic.Repository.create(storage, spec_version=spec_version)
    assert caught.value.kind == "parent-directory-not-clean"
    assert keys(storage) == ["notes.txt"]


@both_specs
def test_a_repository_is_created_beside_other_things_where_that_is_asked_for(
    spec_version: int,
) -> None:
    storage = ic.in_memory_storage()
    storage.put("notes.txt", b"")
    ic.Repository.create(storage, spec_version=spec_version, check_clean_root=False)

    assert ic.Repository.open(storage).spec_version == spec_version


@pytest.mark.parametrize("check_clean_root", [True, False])
@pytest.mark.parametrize("wanted", [1, 2])
@pytest.mark.parametrize(
    ("there", "kind"), [(1, "branch-update-conflict"), (2, "repo-info-updated")]
)
def test_no_repository_is_created_on_another_one(
    there: int, kind: str, wanted: int, check_clean_root: bool
) -> None:
    storage = ic.in_memory_storage()
    ic.Repository.create(storage, spec_version=there)
    before = keys(storage)

    with pytest.raises(ic.IcechunkError) as caught:
        ic.Repository.create(storage, spec_version=wanted, check_clean_root=check_clean_root)
    assert caught.value.kind == ("parent-directory-not-clean" if check_clean_root else kind)
    assert keys(storage) == before


@pytest.mark.parametrize("prefix", [None, "", "/"])
def test_the_root_of_a_bucket_is_refused_before_anything_is_sent(prefix: str | None) -> None:
    storage = ic.s3_storage(
        bucket="b", prefix=prefix, access_key_id="a", secret_access_key="b", region="us-east-1"
    )
    with pytest.raises(ic.InvalidInputError, match="prefix") as caught:
        ic.Repository.create(storage)
    assert caught.value.kind == "empty-prefix-creation"


@pytest.mark.parametrize("spec_version", [0, 3, "2"])
def test_an_unknown_spec_version_is_refused(spec_version: int) -> None:
    storage = ic.in_memory_storage()
    with pytest.raises(ValueError, match="spec version"):
        ic.Repository.create(storage, spec_version=spec_version)
    with pytest.raises(ValueError, match="spec version"):
        ic.Repository.open_or_create(storage, create_version=spec_version)
    assert keys(storage) == []


# -- configuration -------------------------------------------------------------------------------


@both_specs
@pytest.mark.parametrize("config", [None, ic.RepositoryConfig()])
def test_a_configuration_without_settings_is_not_stored(
    config: ic.RepositoryConfig | None, spec_version: int
) -> None:
    storage = ic.in_memory_storage()
    ic.Repository.create(storage, config, spec_version=spec_version)

    assert ic.Repository.fetch_config(storage) is None


@both_specs
def test_settings_are_stored_and_nothing_else(spec_version: int) -> None:
    storage = ic.in_memory_storage()
    config = ic.RepositoryConfig(inline_chunk_threshold_bytes=512)
    config.unknown = {"of_the_future": 7}
    repository = ic.Repository.create(storage, config, spec_version=spec_version)

    stored = ic.Repository.fetch_config(storage)
    assert stored == config == repository.config
    assert list(stored.unknown) == ["of_the_future"]
    assert ic.Repository.open(storage).config == config


def test_a_configuration_that_is_changed_later_is_not_the_repositorys() -> None:
    config = ic.RepositoryConfig(inline_chunk_threshold_bytes=1)
    repository = ic.Repository.create(ic.in_memory_storage(), config)
    config.inline_chunk_threshold_bytes = 2
    repository.config.inline_chunk_threshold_bytes = 3

    assert repository.config.inline_chunk_threshold_bytes == 1


def test_the_winner_replaces_the_configuration_that_a_loser_left() -> None:
    def leave(storage: Storage) -> None:
        storage.put("config.yaml", b"inline_chunk_threshold_bytes: 7")

    storage = Interrupted("refs/branch.main/ref.json", leave)
    config = ic.RepositoryConfig(inline_chunk_threshold_bytes=8)
    ic.Repository.create(storage, config, spec_version=1)

    assert ic.Repository.fetch_config(storage) == config


# -- open or create ------------------------------------------------------------------------------


@both_specs
def test_open_or_create_creates_once(spec_version: int) -> None:
    storage = ic.in_memory_storage()
    config = ic.RepositoryConfig(num_updates_per_repo_info_file=9)
    made = ic.Repository.open_or_create(storage, config, create_version=spec_version)
    opened = ic.Repository.open_or_create(storage, create_version=3 - spec_version)

    assert made.spec_version == opened.spec_version == spec_version
    assert opened.config == config


def test_open_or_create_refuses_a_place_with_other_things() -> None:
    storage = ic.in_memory_storage()
    storage.put("notes.txt", b"")
    with pytest.raises(ic.InvalidInputError, match=r"notes\.txt"):
        ic.Repository.open_or_create(storage)

    beside = ic.Repository.open_or_create(storage, check_clean_root=False)
    assert beside.list_branches() == {"main"}


@pytest.mark.parametrize("theirs", [1, 2])
@both_specs
def test_open_or_create_opens_what_somebody_else_creates_meanwhile(
    spec_version: int, theirs: int
) -> None:
    def create(storage: Storage) -> None:
        ic.Repository.create(storage, spec_version=theirs)

    storage = Interrupted(f"snapshots/{FIRST}", create)
    opened = ic.Repository.open_or_create(storage, create_version=spec_version)

    assert opened.spec_version == theirs == ic.Repository.open(storage).spec_version


def test_the_asynchronous_twins_do_the_same() -> None:
    storage = ic.in_memory_storage()

    async def run() -> list[ic.Repository]:
        made = await ic.Repository.create_async(storage, spec_version=1)
        again = await ic.Repository.open_or_create_async(storage)
        await again.create_branch_async("b", FIRST)
        return [made, await again.reopen_async()]

    assert [found.list_branches() for found in asyncio.run(run())] == [{"main", "b"}] * 2


# -- what is asked of a storage --------------------------------------------------------------------


@both_specs
def test_a_storage_that_ignores_conditions_is_refused(spec_version: int) -> None:
    storage = Careless()
    with pytest.raises(ic.StorageError, match="conditions of writes"):
        ic.Repository.create(storage, spec_version=spec_version)

    assert keys(storage) == []


@pytest.mark.parametrize("off", [-11 * MINUTE, 11 * MINUTE])
def test_a_clock_that_is_off_is_refused_by_name(off: int) -> None:
    storage = OtherClock(off)
    with pytest.raises(ic.StorageError, match=r"clock of this machine says .* 600 s") as caught:
        ic.Repository.create(storage)

    assert caught.value.kind == "snapshot-timestamp"
    assert keys(storage) == []


@pytest.mark.parametrize("off", [-9 * MINUTE, 9 * MINUTE])
def test_a_clock_that_is_a_little_off_is_accepted(off: int) -> None:
    assert ic.Repository.create(OtherClock(off)).list_branches() == {"main"}


def test_a_storage_is_probed_once() -> None:
    storage = Counting()
    repository = ic.Repository.create(storage)
    once = storage.probes
    repository.create_branch("b", FIRST)
    ic.Repository.open(storage).create_tag("t", FIRST)

    assert once == storage.probes == 4


def test_reading_probes_nothing() -> None:
    storage = Counting()
    storage.put_many(_objects())
    repository = ic.Repository.open(storage)
    list(repository.ancestry(branch="main"))

    assert storage.probes == 0


def _objects() -> list[tuple[str, bytes]]:
    made = ic.in_memory_storage()
    ic.Repository.create(made)
    return [(info.key, made.get(info.key)) for info in made.list()]


@both_specs
@pytest.mark.parametrize("name", ["unsafe_use_conditional_create", "unsafe_use_conditional_update"])
def test_a_setting_that_reference_writers_obey_and_we_do_not_is_told_once(
    name: str, spec_version: int
) -> None:
    storage = ic.in_memory_storage()
    settings = ic.StorageSettings()
    setattr(settings, name, False)
    config = ic.RepositoryConfig(storage=settings)
    with pytest.warns(UserWarning, match=f"{name} = False.*overwrite"):
        repository = ic.Repository.create(storage, config, spec_version=spec_version)

    repository.create_branch("b", FIRST)
    with pytest.raises(ic.IcechunkError):
        repository.create_branch("b", FIRST)


# -- pickles and reopening -------------------------------------------------------------------------


@both_specs
def test_a_pickled_repository_keeps_its_settings(tmp_path: Path, spec_version: int) -> None:
    config = ic.RepositoryConfig(inline_chunk_threshold_bytes=7)
    storage = ic.local_filesystem_storage(tmp_path)
    repository = ic.Repository.create(storage, config, spec_version=spec_version)
    repository.set_default_commit_metadata({"by": "me"})
    copy = pickle.loads(pickle.dumps(repository))

    assert copy.default_commit_metadata() == {"by": "me"}
    assert copy.config == config
    copy.create_branch("b", FIRST)
    assert repository.list_branches() == {"main", "b"}
    copy.save_config()


def test_default_commit_metadata_are_a_copy_of_what_can_be_stored() -> None:
    repository = ic.Repository.create(ic.in_memory_storage())
    given = {"list": [1]}
    repository.set_default_commit_metadata(given)
    given["list"].append(2)
    repository.default_commit_metadata()["list"].append(3)

    assert repository.default_commit_metadata() == {"list": [1]}
    with pytest.raises(ValueError, match="'k'"):
        repository.set_default_commit_metadata({"k": object()})
    with pytest.raises(TypeError):
        repository.set_default_commit_metadata(None)  # type: ignore[arg-type]
    repository.set_default_commit_metadata({})
    assert repository.default_commit_metadata() == {}


def test_reopening_merges_settings_and_replaces_credentials() -> None:
    config = ic.RepositoryConfig(inline_chunk_threshold_bytes=7, num_updates_per_repo_info_file=3)
    storage = ic.in_memory_storage()
    first = ic.containers_credentials({"s3://a/": ic.s3_anonymous_credentials()})
    repository = ic.Repository.create(storage, config, first)
    second = ic.containers_credentials({"s3://b/": ic.s3_anonymous_credentials()})
    other = repository.reopen(ic.RepositoryConfig(inline_chunk_threshold_bytes=8), second)

    assert repository.reopen().config == config
    assert repository.reopen().authorized_virtual_container_prefixes == {"s3://a/"}
    assert other.config.inline_chunk_threshold_bytes == 8
    assert other.config.num_updates_per_repo_info_file == 3
    assert other.authorized_virtual_container_prefixes == {"s3://b/"}
    assert ic.Repository.fetch_config(storage) == config
