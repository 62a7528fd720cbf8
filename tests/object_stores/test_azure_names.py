"""Objects on Azure have the names that the reference gives them there."""

from typing import Any

import pytest
from obstore.store import AzureStore

from tests.object_stores.azure import storage_of
from tests.object_stores.servers import AzureServer
from tests.oracle.libraries import KNOWS_V2, REFERENCE

pytestmark = pytest.mark.compat

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
