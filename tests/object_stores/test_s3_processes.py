"""Many processes on one bucket: races, forks, pickles."""

import pickle

import pytest

from icechunk_stream.config import StorageRetriesSettings, StorageSettings
from icechunk_stream.storage.retry import Waiting
from tests.object_stores import racers
from tests.object_stores.s3_storages import BULKS, SETTINGS, Bulk, storage_on
from tests.object_stores.servers import S3Server

BUSY = StorageSettings(retries=StorageRetriesSettings(10, 20, 1000))

both_clients = pytest.mark.parametrize("bulk", BULKS)


@both_clients
def test_eight_processes_lose_no_update(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk
) -> None:
    storage = storage_on(versitygw, versitygw_bucket, bulk=bulk, settings=BUSY, waiting=Waiting())
    written, final = racers.run("increments", storage)
    assert [len(numbers) for numbers in written] == [50] * 8
    assert sorted(number for numbers in written for number in numbers) == list(range(1, 401))
    assert final == 400


@both_clients
def test_one_of_eight_processes_creates(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk
) -> None:
    storage = storage_on(versitygw, versitygw_bucket, bulk=bulk, settings=BUSY, waiting=Waiting())
    wins, contents = racers.run("creations", storage)
    winners = [[me for me in range(8) if wins[me][number]] for number in range(100)]
    assert winners == [[content] for content in contents]


@both_clients
def test_forked_children_have_connections_of_their_own(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk
) -> None:
    storage = storage_on(
        versitygw, versitygw_bucket, bulk=bulk, settings=SETTINGS, waiting=Waiting()
    )
    found, after = racers.run("fork_before_and_after_use", storage)
    assert found == [[["parent", "7"], [["parent", "7"]]]] * 2
    assert after == ["parent", "7"]


@both_clients
def test_a_pickle_with_credentials_works_where_it_lands(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk
) -> None:
    storage = storage_on(versitygw, versitygw_bucket, bulk=bulk, waiting=Waiting())
    storage.put("chunks/A", b"0")
    landed = pickle.loads(pickle.dumps(storage.with_pickled_credentials()))
    assert landed == storage
    assert landed.get("chunks/A") == b"0"
    again = pickle.loads(pickle.dumps(landed))
    assert again.get("chunks/A") == b"0"
