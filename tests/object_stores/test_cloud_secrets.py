"""Credentials of clouds: where they go, and where they must not show."""

import asyncio
import logging
import pickle
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from icechunk_stream import cloud_credentials as credentials
from icechunk_stream.errors import ErrorKind, InvalidInputError, StorageError
from icechunk_stream.storage import BytesLike, Span
from icechunk_stream.storage.azure import azure_storage
from icechunk_stream.storage.gcs import gcs_storage
from icechunk_stream.storage.http import http_storage
from icechunk_stream.storage.object_store import ObjectStoreStorage
from icechunk_stream.testing.http_faults import Reply
from icechunk_stream.testing.http_proxy import HttpProxy
from tests.object_stores.azure import IMPATIENT, storage_of
from tests.object_stores.buckets import account_signature
from tests.object_stores.servers import AzureServer
from tests.secret_marker import MARKER

WRONG = "no-secret-but-wrong"
SAS = f"sv=2023-11-03&se=2040-01-01&sig={MARKER}"


def fetch_marker() -> Any:
    return credentials.GcsBearerCredential(MARKER)


def azure(**more: Any) -> ObjectStoreStorage:
    return azure_storage(account="account", container="container", prefix="p", **more)


def gcs(**more: Any) -> ObjectStoreStorage:
    return gcs_storage(bucket="bucket", prefix="p", **more)


SECRETIVE = {
    "azure key": azure(access_key=MARKER),
    "azure sas": azure(sas_token=SAS),
    "azure token": azure(bearer_token=MARKER),
    "azure option": azure(anonymous=True, config={"azure_storage_account_key": MARKER}),
    "gcs token": gcs(bearer_token=MARKER),
    "gcs key": gcs(service_account_key=f'{{"private_key": "{MARKER}"}}'),
    "gcs header": gcs(anonymous=True, headers={"x-goog-encryption-key": MARKER}),
    "http header": http_storage("http://127.0.0.1:1/r", headers={"authorization": MARKER}),
    "http option": http_storage("http://127.0.0.1:1/r", {"proxy_url": f"http://u:{MARKER}@h"}),
}
HOLDERS = pytest.mark.parametrize("name", SECRETIVE)


@HOLDERS
def test_secrets_show_in_no_representation(name: str) -> None:
    storage = SECRETIVE[name]
    assert MARKER not in repr(storage) + str(storage) + repr(storage.spec) + repr(vars(storage))


@HOLDERS
def test_secrets_go_into_no_pickle(name: str) -> None:
    pickled = pickle.dumps(SECRETIVE[name])
    assert MARKER.encode() not in pickled
    copy = pickle.loads(pickled)
    assert copy == SECRETIVE[name]
    with pytest.raises(StorageError, match="was left out when it was pickled") as caught:
        copy.get("repo")
    assert caught.value.kind == ErrorKind.INVALID_CREDENTIALS


@HOLDERS
def test_secrets_go_into_pickles_that_are_asked_for(name: str) -> None:
    pickled = pickle.dumps(SECRETIVE[name].with_pickled_credentials())
    assert MARKER.encode() in pickled
    copy = pickle.loads(pickled)
    assert copy.spec == SECRETIVE[name].spec
    assert MARKER.encode() in pickle.dumps(copy)


def test_what_holds_no_secret_is_pickled_whole(azurite: AzureServer, azure_container: str) -> None:
    for storage in (azure(anonymous=True), gcs(service_account_file="/key.json"), azure()):
        assert pickle.loads(pickle.dumps(storage)).spec == storage.spec


class FromHere:
    """The credentials of the server that a test runs against."""

    server: AzureServer
    calls = 0
    ends: datetime | None = None


def fetch_key() -> Any:
    FromHere.calls += 1
    key = FromHere.server.access_key
    return credentials.AzureRefreshableCredential.AccessKey(key, expires_after=FromHere.ends)


@pytest.fixture
def from_here(azurite: AzureServer) -> None:
    FromHere.server, FromHere.calls, FromHere.ends = azurite, 0, None


@pytest.mark.usefixtures("from_here")
def test_a_function_is_called_once_for_all_storages_of_a_process(
    azurite: AzureServer, azure_container: str
) -> None:
    storage = storage_of(azurite, azure_container, get_credentials=fetch_key)
    storage.put_many([(f"chunks/{number}", b"") for number in range(50)])
    assert FromHere.calls == 1
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.get("chunks/1") == b""
    assert FromHere.calls == 1


@pytest.mark.usefixtures("from_here")
def test_a_function_is_called_again_when_its_credential_ends(
    azurite: AzureServer, azure_container: str
) -> None:
    FromHere.ends = datetime.now(UTC) + timedelta(seconds=1)
    storage = storage_of(azurite, azure_container, get_credentials=fetch_key)
    storage.put("chunks/A", b"")
    first = FromHere.calls
    FromHere.ends = None
    time.sleep(1.5)
    storage.put_many([(f"chunks/{number}", b"") for number in range(50)])
    assert FromHere.calls == first + 1


@pytest.mark.usefixtures("from_here")
def test_the_first_credential_may_be_fetched_at_once(
    azurite: AzureServer, azure_container: str
) -> None:
    storage = storage_of(
        azurite, azure_container, get_credentials=fetch_key, scatter_initial_credentials=True
    )
    assert FromHere.calls == 1
    assert azurite.access_key.encode() not in pickle.dumps(storage)
    storage.put("chunks/A", b"")
    assert FromHere.calls == 1


def fail_to_fetch() -> Any:
    raise ValueError(MARKER)


def fetch_something_else() -> Any:
    return MARKER


def fetch_the_expired() -> Any:
    ends = datetime.now(UTC) - timedelta(minutes=1)
    return credentials.AzureRefreshableCredential.BearerToken(MARKER, expires_after=ends)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (fail_to_fetch, "fail_to_fetch failed with ValueError"),
        (fetch_something_else, "fetch_something_else returned a str"),
        (fetch_the_expired, "fetch_the_expired returned an expired credential"),
    ],
)
def test_a_function_that_gives_no_credential_is_named(
    function: Any, reason: str, azurite: AzureServer, azure_container: str
) -> None:
    storage = storage_of(azurite, azure_container, get_credentials=function)
    reads: tuple[Callable[[], object], ...] = (
        lambda: storage.get("repo"),
        lambda: awaited(storage),
    )
    for act in reads:
        with pytest.raises(StorageError, match=reason) as caught:
            act()
        assert caught.value.kind == ErrorKind.INVALID_CREDENTIALS
        assert MARKER not in "".join(traceback.format_exception(caught.value))


def awaited(storage: ObjectStoreStorage) -> BytesLike:
    return asyncio.run(storage.get_async("repo", Span(0, 1)))


def test_a_shared_access_signature_is_enough(azurite: AzureServer, azure_container: str) -> None:
    sas = account_signature(azurite)
    for token in (sas, f"?{sas}"):
        storage = storage_of(azurite, azure_container, sas_token=token)
        storage.put("chunks/A", b"1")
        # Deleting is left out: this server answers 500 to batches of signed requests.
        assert [info.key for info in storage.list()] == ["chunks/A"]


def test_a_wrong_key_is_refused_at_once(azurite: AzureServer, azure_container: str) -> None:
    storage = storage_of(azurite, azure_container, access_key=MARKER)
    with pytest.raises(StorageError, match="credentials do not allow it") as caught:
        storage.get("repo")
    assert MARKER not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(StorageError, match="credentials do not allow it"):
        list(storage.list())


@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_no_error_and_no_log_holds_a_signature(
    status: int, azurite: AzureServer, azure_container: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with HttpProxy(azurite.endpoint) as proxy:
        storage = storage_of(
            azurite, azure_container, endpoint=proxy.endpoint, settings=IMPATIENT, sas_token=SAS
        )
        body = f"<Error><Code>Odd</Code><Message>{MARKER}</Message></Error>".encode()
        proxy.disturb(Reply(status, body), times=10_000)
        for act in (
            lambda: storage.get("repo"),
            lambda: storage.put("repo", b""),
            lambda: storage.put_if("repo", b"", None),
            lambda: list(storage.list()),
        ):
            with pytest.raises(StorageError) as caught:
                act()
            said = "".join(traceback.format_exception(caught.value))
            assert MARKER not in said + repr(caught.value) + repr(pickle.dumps(caught.value))
        assert MARKER not in repr(storage.delete_many(["repo"]))
        assert MARKER not in repr(proxy.requests)
    assert MARKER not in caplog.text


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: azure(access_key="no base64!", config={}), "the access key, which must be base64"),
        (lambda: azure(access_key=MARKER, config={"bogus": WRONG}), "the option 'bogus'"),
        (lambda: azure(access_key=MARKER, config={"timeout": WRONG}), "the time-outs"),
        (lambda: gcs(service_account_key=MARKER), "the service account"),
        (lambda: gcs(service_account_file=f"/{WRONG}/no"), "the service account"),
        (lambda: gcs(bearer_token="t", config={"google_bogus": WRONG}), "'google_bogus'"),
    ],
)
def test_a_wrong_option_is_named_and_its_value_is_not(make: Any, named: str) -> None:
    with pytest.raises(InvalidInputError, match=named) as caught:
        make().get("repo")
    said = "".join(traceback.format_exception(caught.value))
    assert MARKER not in said
    assert WRONG not in said


@pytest.mark.parametrize(
    "make",
    [
        lambda: azure(config={"endpoint": "http://h/account"}),
        lambda: azure(config={"endpoint": f"https://u:{MARKER}@h"}),
        lambda: azure(config={"endpoint": MARKER}),
        lambda: gcs(config={"base_url": f"http://{MARKER}"}),
        lambda: http_storage(f"https://u:{MARKER}@h/"),
        lambda: http_storage(f"https://h/?token={MARKER}"),
        lambda: http_storage("ftp://h/"),
        lambda: http_storage("https://h/", {"bogus": MARKER}),
        lambda: azure(access_key=MARKER, sas_token=MARKER),
        lambda: azure(access_key=MARKER, from_env=True),
        lambda: gcs(bearer_token=MARKER, anonymous=True),
        lambda: gcs(bearer_token=MARKER, service_account_key=MARKER),
        lambda: gcs(bearer_token=MARKER, get_credentials=fetch_marker),
        lambda: azure_storage(account="", container="c", prefix="p"),
        lambda: gcs_storage(bucket="", prefix="p"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(make: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make()
    assert MARKER not in str(caught.value)


def test_credentials_show_nothing_of_themselves() -> None:
    made = [
        credentials.azure_credentials(access_key=MARKER),
        credentials.azure_credentials(sas_token=MARKER),
        credentials.azure_credentials(bearer_token=MARKER),
        credentials.gcs_credentials(service_account_key=MARKER),
        credentials.gcs_credentials(bearer_token=MARKER),
        credentials.gcs_refreshable_credentials(fetch_marker, scatter_initial_credentials=True),
        credentials.AzureRefreshableCredential.AccessKey(MARKER),
        credentials.AzureRefreshableCredential.SasToken(MARKER),
        credentials.AzureRefreshableCredential.BearerToken(MARKER),
    ]
    assert MARKER not in repr(made)
    assert [pickle.loads(pickle.dumps(one)) for one in made] == made
