"""Azure Blob Storage, on a real local server."""

import pytest

from icechunk_stream.storage import Storage, probe_conditional_writes
from icechunk_stream.testing.storage_contract import StorageContract
from tests.object_stores import racers
from tests.object_stores.azure import storage_of
from tests.object_stores.servers import AzureServer


class TestAzureStorage(StorageContract):
    @pytest.fixture
    def storage(self, azurite: AzureServer, azure_container: str) -> Storage:
        return storage_of(azurite, azure_container)


def test_eight_processes_lose_no_update(azurite: AzureServer, azure_container: str) -> None:
    written, final = racers.run("increments", storage_of(azurite, azure_container))
    assert [len(numbers) for numbers in written] == [50] * 8
    assert sorted(number for numbers in written for number in numbers) == list(range(1, 401))
    assert final == 400


def test_one_of_eight_processes_creates(azurite: AzureServer, azure_container: str) -> None:
    wins, contents = racers.run("creations", storage_of(azurite, azure_container))
    winners = [[me for me in range(8) if wins[me][number]] for number in range(100)]
    assert winners == [[content] for content in contents]


def test_forked_children_use_the_storage_of_their_parent(
    azurite: AzureServer, azure_container: str
) -> None:
    found, after = racers.run("fork_before_and_after_use", storage_of(azurite, azure_container))
    seen = ["parent", "7"]
    assert found == [[seen, [seen]], [seen, [seen]]]
    assert after == seen


def test_the_probe_is_content_and_leaves_nothing(
    azurite: AzureServer, azure_container: str
) -> None:
    storage = storage_of(azurite, azure_container)
    probe_conditional_writes(storage)
    assert list(storage.list()) == []
