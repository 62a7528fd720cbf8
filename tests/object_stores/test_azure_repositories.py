"""Repositories on Azure read as the reference reads them there, under the names that it gives."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from obstore.store import AzureStore

import icechunk_stream
from icechunk_stream.storage import LocalStorage
from icechunk_stream.storage.object_store import ObjectStoreStorage
from tests.object_stores.azure import storage_of
from tests.object_stores.buckets import create_container
from tests.object_stores.servers import AzureServer
from tests.oracle import plans
from tests.oracle.compare import assert_same
from tests.oracle.dump import OPTIONAL, dump_repository
from tests.oracle.libraries import KNOWS_V2, REFERENCE, SPEC_VERSIONS
from tests.oracle.maker import make_repository
from tests.oracle.random_repositories import repository_plans, write_files

pytestmark = pytest.mark.compat

V1 = ("test-repo-v1", "split-repo-v1", "expire-repo-v1-by-1.1.21")
V2 = ("test-repo-v2", "split-repo-v2", "expire-repo-v2-by-working-copy")
UNKNOWN_TO_THE_REFERENCE: frozenset[str] = frozenset() if KNOWS_V2 else OPTIONAL
PREFIXES = ("/", "a", "a/", "/a//b", "a b/é", "x%2Fy", "a#b~", "..", "a/./b")
TAGS = ("é ü", "t+~#%", ".", "a-b")


def reference_storage(server: AzureServer, container: str, prefix: str) -> Any:
    return REFERENCE.azure_storage(
        account=server.account,
        container=container,
        prefix=prefix,
        access_key=server.access_key,
        config={"azure_storage_endpoint": server.endpoint, "allow_http": "true"},
    )


def upload(location: Path, storage: ObjectStoreStorage) -> None:
    local = LocalStorage(location)
    storage.put_many([(info.key, local.get(info.key)) for info in local.list()])


def assert_reads_alike(
    location: Path, server: AzureServer, container: str, prefixes: tuple[str, ...] = ()
) -> None:
    """Both libraries say the same of the copy of a local repository."""
    theirs = reference_storage(server, container, "a b/é")
    ours = storage_of(server, container, "a b/é")
    upload(location, ours)
    expected = dump_repository(REFERENCE, location, prefixes, theirs)
    found = dump_repository(icechunk_stream, location, prefixes, ours)
    assert_same(expected, found, ("reference", "icechunk_stream"), UNKNOWN_TO_THE_REFERENCE)


@pytest.mark.parametrize("name", (*V1, *V2) if KNOWS_V2 else V1)
def test_a_fixture_says_what_it_says_to_the_reference(
    name: str, fixtures_folder: Path, azurite: AzureServer, azure_container: str
) -> None:
    assert_reads_alike(fixtures_folder / name, azurite, azure_container)


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> plans.Containers:
    return write_files(tmp_path_factory.mktemp("virtual"))


@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
@settings(
    max_examples=settings.get_profile(settings.get_current_profile_name()).max_examples // 20,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)
@given(data=st.data())
def test_a_random_repository_says_what_it_says_to_the_reference(
    data: st.DataObject, spec_version: int, containers: plans.Containers, azurite: AzureServer
) -> None:
    plan = data.draw(repository_plans(containers, spec_version))
    with tempfile.TemporaryDirectory() as folder:
        location = Path(folder) / "repository"
        make_repository(REFERENCE, plan, str(location), containers)
        container = create_container(azurite, Path(folder).name.lower().replace("_", "0"))
        assert_reads_alike(location, azurite, container, (containers.prefix,))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_keys_get_the_names_that_the_reference_gives(
    prefix: str, azurite: AzureServer, azure_container: str
) -> None:
    theirs = reference_storage(azurite, azure_container, prefix)
    repository = REFERENCE.Repository.create(theirs, **({"spec_version": 1} if KNOWS_V2 else {}))
    (first,) = [snapshot.id for snapshot in repository.ancestry(branch="main")]
    for tag in TAGS:
        repository.create_tag(tag, snapshot_id=first)
    made = names_in(azurite, azure_container)
    storage = storage_of(azurite, azure_container, prefix)
    keys = [f"refs/tag.{tag}/ref.json" for tag in TAGS]
    keys += ["refs/branch.main/ref.json", f"snapshots/{first}"]
    assert [info.key for info in storage.list()] == sorted(keys, key=str.encode)
    contents = [(key, storage.get(key)) for key in keys]
    assert storage.delete_many(keys) == []
    assert names_in(azurite, azure_container) == []
    storage.put_many(contents)
    assert names_in(azurite, azure_container) == made


def names_in(server: AzureServer, container: str) -> list[str]:
    """What the server itself lists."""
    store = AzureStore(
        container,
        account_name=server.account,
        account_key=server.access_key,
        endpoint=server.endpoint,
        client_options={"allow_http": True},
    )
    return [meta["path"] for meta in store.list().collect()]
