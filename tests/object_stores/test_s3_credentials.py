"""Where access keys come from, when they are renewed, and where they never appear."""

import asyncio
import copy
import logging
import os
import pickle
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from icechunk_stream.config.redact import HIDDEN
from icechunk_stream.credentials import (
    S3StaticCredentials,
    s3_anonymous_credentials,
    s3_from_env_credentials,
    s3_refreshable_credentials,
    s3_static_credentials,
)
from icechunk_stream.errors import (
    CommitStateUnknownError,
    ErrorKind,
    InvalidInputError,
    StorageError,
)
from icechunk_stream.storage import S3Access, S3Storage, Span, Version, s3_storage
from icechunk_stream.storage.retry import Waiting
from icechunk_stream.storage.s3_credentials import S3Secret
from icechunk_stream.testing.http_faults import AlterAnswer, DropAnswer, Reply
from icechunk_stream.testing.http_messages import Answer
from icechunk_stream.testing.http_proxy import HttpProxy
from icechunk_stream.testing.storage_steps import create, keys
from tests.object_stores.buckets import s3_client
from tests.object_stores.s3_storages import (
    BULKS,
    SETTINGS,
    Bulk,
    Hourglass,
    access_to,
    key_of,
    storage_on,
)
from tests.object_stores.servers import S3Server
from tests.secret_marker import MARKER, marked

SECRET = f"{MARKER}-given"

both_clients = pytest.mark.parametrize("bulk", BULKS)


def versitygw_key() -> S3StaticCredentials:
    return S3StaticCredentials(f"versity{MARKER}", f"secret{MARKER}")


def expired_key() -> S3StaticCredentials:
    return S3StaticCredentials("a", "b", None, datetime(2020, 1, 1, tzinfo=UTC))


def failing() -> S3StaticCredentials:
    raise RuntimeError(MARKER)


def forgetful() -> Any:
    return None


def with_secret(server: S3Server, bucket: str, secret: S3Secret, **more: Any) -> S3Storage:
    access = access_to(server, **more)
    return S3Storage(bucket, "p", access, secret, SETTINGS, Hourglass().waiting())


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No credentials from whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return monkeypatch


def write_own(path: Path, text: str) -> None:
    """Write a file that is to hold secrets."""
    marked.own_paths.add(path)
    path.write_text(text)


@both_clients
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (failing, "failing failed with RuntimeError"),
        (forgetful, "forgetful returned a NoneType: return S3StaticCredentials"),
        (expired_key, "expired_key returned an expired key"),
    ],
)
def test_a_function_that_gives_no_key_is_named(
    versitygw: S3Server, bulk: Bulk, function: Callable[[], Any], message: str
) -> None:
    storage = with_secret(versitygw, "bucket", s3_refreshable_credentials(function), bulk=bulk)
    reads: tuple[Callable[[], object], ...] = (
        lambda: storage.read("repo"),
        lambda: storage.get("chunks/A"),
        lambda: awaited(storage),
    )
    for act in reads:
        with pytest.raises(StorageError, match=message) as caught:
            act()
        assert caught.value.kind == ErrorKind.INVALID_CREDENTIALS


@both_clients
def test_an_importable_function_gives_keys_where_the_pickle_lands(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk
) -> None:
    secret = s3_refreshable_credentials(versitygw_key)
    access = access_to(versitygw, bulk=bulk)
    storage = S3Storage(versitygw_bucket, "p", access, secret)
    storage.put("chunks/A", b"0")
    landed = pickle.loads(pickle.dumps(storage))
    assert landed.get("chunks/A") == b"0"
    create(landed, "repo", b"1")


def test_keys_of_a_pickle_are_withheld_unless_asked_for(
    versitygw: S3Server, versitygw_bucket: str
) -> None:
    storage = storage_on(versitygw, versitygw_bucket, waiting=Waiting())
    storage.put("chunks/A", b"0")
    state = pickle.dumps(storage)
    assert versitygw.secret_access_key.encode() not in state
    assert versitygw.access_key_id.encode() not in state
    landed = pickle.loads(state)
    with pytest.raises(StorageError, match="with_pickled_credentials") as caught:
        landed.get("chunks/A")
    assert caught.value.kind == ErrorKind.INVALID_CREDENTIALS
    assert versitygw.secret_access_key.encode() in pickle.dumps(storage.with_pickled_credentials())
    for duplicate in (copy.copy, copy.deepcopy):
        assert duplicate(storage).get("chunks/A") == b"0"


def test_a_scattered_key_is_withheld_too(versitygw: S3Server, versitygw_bucket: str) -> None:
    secret = s3_refreshable_credentials(versitygw_key, scatter_initial_credentials=True)
    storage = S3Storage(versitygw_bucket, "p", access_to(versitygw), secret)
    assert MARKER.encode() not in pickle.dumps(storage)
    assert MARKER.encode() in pickle.dumps(storage.with_pickled_credentials())
    pickle.loads(pickle.dumps(storage)).put("chunks/A", b"0")


@both_clients
def test_anonymous_requests_are_not_signed(moto: S3Server, moto_bucket: str, bulk: Bulk) -> None:
    with HttpProxy(moto.endpoint) as proxy:
        access = access_to(moto, proxy.endpoint, bulk=bulk)
        client = s3_client(moto)
        client.put_object(Bucket=moto_bucket, Key="p/chunks/A", Body=b"0", ACL="public-read")
        storage = S3Storage(moto_bucket, "p", access, s3_anonymous_credentials())
        assert storage.get("chunks/A") == b"0"
        for act in acts(storage):
            with suppress(StorageError):
                act()
        assert len(proxy.requests) >= 8
        assert all("authorization" not in seen.headers for seen in proxy.requests)


@both_clients
def test_the_environment_gives_keys(
    versitygw: S3Server, versitygw_bucket: str, bare_environment: pytest.MonkeyPatch, bulk: Bulk
) -> None:
    secret = s3_from_env_credentials()
    lacking = with_secret(versitygw, versitygw_bucket, secret, bulk=bulk)
    with pytest.raises(StorageError, match="give an access key") as caught:
        lacking.get("chunks/A")
    assert caught.value.kind == ErrorKind.INVALID_CREDENTIALS
    bare_environment.setenv("AWS_ACCESS_KEY_ID", versitygw.access_key_id)
    bare_environment.setenv("AWS_SECRET_ACCESS_KEY", versitygw.secret_access_key)
    storage = with_secret(versitygw, versitygw_bucket, secret, bulk=bulk)
    storage.put("chunks/A", b"0")
    assert storage.get("chunks/A") == b"0"
    create(storage, "repo", b"1")


@both_clients
def test_a_profile_gives_keys(
    versitygw: S3Server,
    versitygw_bucket: str,
    bare_environment: pytest.MonkeyPatch,
    tmp_path: Path,
    bulk: Bulk,
) -> None:
    write_own(
        tmp_path / "credentials",
        "[observer]\n"
        f"aws_access_key_id = {versitygw.access_key_id}\n"
        f"aws_secret_access_key = {versitygw.secret_access_key}\n",
    )
    secret = s3_from_env_credentials("observer")
    storage = with_secret(versitygw, versitygw_bucket, secret, bulk=bulk)
    storage.put("chunks/A", b"0")
    assert storage.get("chunks/A") == b"0"
    missing = with_secret(versitygw, versitygw_bucket, s3_from_env_credentials("nobody"))
    with pytest.raises(StorageError, match="ProfileNotFound"):
        missing.get("chunks/A")


@both_clients
def test_a_profile_takes_on_a_role(
    moto: S3Server,
    moto_bucket: str,
    bare_environment: pytest.MonkeyPatch,
    tmp_path: Path,
    bulk: Bulk,
) -> None:
    write_own(
        tmp_path / "config",
        "[profile observer]\n"
        "role_arn = arn:aws:iam::123456789012:role/observer\n"
        "source_profile = base\n"
        "[profile base]\n"
        f"aws_access_key_id = {moto.access_key_id}\n"
        f"aws_secret_access_key = {moto.secret_access_key}\n"
        "region = us-east-1\n",
    )
    with HttpProxy(moto.endpoint) as sts, HttpProxy(moto.endpoint) as proxy:
        sts.disturb(AlterAnswer(mark_session))
        bare_environment.setenv("AWS_ENDPOINT_URL_STS", sts.endpoint)
        access = access_to(moto, proxy.endpoint, bulk=bulk)
        storage = S3Storage(moto_bucket, "p", access, s3_from_env_credentials("observer"))
        storage.put("chunks/A", b"0")
        create(storage, "repo", b"1")
        assert storage.get("chunks/A") == b"0"
        assert all("x-amz-security-token" in seen.headers for seen in proxy.requests)
        assert len(sts.requests) == 1


def mark_session(answer: Answer) -> Answer:
    """The key of a role, which a server makes up, with the marker in all its parts."""
    fields = b"AccessKeyId|SecretAccessKey|SessionToken"
    body = re.sub(rb"<(%s)>[^<]+" % fields, rb"<\1>\1" + MARKER.encode(), answer.body)
    assert body.count(MARKER.encode()) == 3
    return replace(answer, body=body)


@both_clients
def test_nobody_asks_for_a_metadata_service_where_credentials_are_given(
    moto: S3Server, moto_bucket: str, bare_environment: pytest.MonkeyPatch, bulk: Bulk
) -> None:
    with HttpProxy(moto.endpoint) as service:
        bare_environment.setenv("AWS_EC2_METADATA_DISABLED", "false")
        bare_environment.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.endpoint)
        bare_environment.setenv("AWS_METADATA_ENDPOINT", service.endpoint)
        given = (key_of(moto), s3_anonymous_credentials(), s3_refreshable_credentials(moto_key))
        for secret in given:
            storage = with_secret(moto, moto_bucket, secret, bulk=bulk)
            for act in acts(storage):
                with suppress(StorageError):
                    act()
        assert service.requests == []
        with suppress(StorageError):
            with_secret(moto, moto_bucket, s3_from_env_credentials(), bulk=bulk).read("repo")
        assert service.requests != []


def moto_key() -> S3StaticCredentials:
    return S3StaticCredentials(f"moto{MARKER}", f"secret{MARKER}")


@both_clients
def test_a_wrong_key_is_an_error_that_says_so(
    versitygw: S3Server, versitygw_bucket: str, bulk: Bulk
) -> None:
    key = s3_static_credentials(
        access_key_id=f"versity{MARKER}", secret_access_key=f"wrong{MARKER}"
    )
    storage = with_secret(versitygw, versitygw_bucket, key, bulk=bulk)
    for act in (lambda: storage.get("chunks/A"), lambda: storage.put("chunks/A", b"")):
        with pytest.raises(StorageError, match="secret access key is wrong"):
            act()
    nobody = s3_static_credentials(
        access_key_id=f"nobody{MARKER}", secret_access_key=f"wrong{MARKER}"
    )
    unknown = with_secret(versitygw, versitygw_bucket, nobody, bulk=bulk)
    with pytest.raises(StorageError, match="404 XAdminUserNotFound") as caught:
        unknown.get("chunks/A")
    assert type(caught.value) is StorageError


@pytest.mark.parametrize(
    "url",
    [
        f"https://{SECRET}@host",
        f"https://user:{SECRET}@host",
        f"https://host/?token={SECRET}",
        f"https://host/#{SECRET}",
    ],
    ids=["user", "password", "query", "fragment"],
)
def test_an_endpoint_that_holds_a_secret_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="must not hold") as caught:
        s3_storage(bucket="b", prefix="p", endpoint_url=url)
    assert SECRET not in traces(caught.value)


def traces(error: BaseException) -> str:
    """All that an error could show of itself, and of those that it comes from."""
    shown = ["".join(traceback.format_exception(error))]
    link: BaseException | None = error
    while link is not None:
        shown += [str(link), repr(link), repr(link.args), repr(vars(link))]
        link = link.__cause__ or link.__context__
    return "\n".join(shown) + str(pickle.dumps(error))


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


@both_clients
def test_secrets_appear_nowhere(
    versitygw: S3Server,
    versitygw_bucket: str,
    everything_logged: pytest.LogCaptureFixture,
    bulk: Bulk,
) -> None:
    key = s3_static_credentials(
        access_key_id=f"{SECRET}-id",
        secret_access_key=f"{SECRET}-secret",
        session_token=f"{SECRET}-token",
    )
    with HttpProxy(versitygw.endpoint) as proxy:
        access = access_to(
            versitygw,
            proxy.endpoint,
            bulk=bulk,
            write_headers=(("x-amz-server-side-encryption-customer-key", f"{SECRET}-header"),),
            read_headers=(("x-secret", f"{SECRET}-header"),) if bulk == "boto3" else (),
        )
        storage = S3Storage(versitygw_bucket, "p", access, key, SETTINGS, Hourglass().waiting())
        errors = [error_of(act) for act in acts(storage)]
        proxy.disturb(DropAnswer(), times=10_000)
        errors += [error_of(act) for act in acts(storage)]
        proxy.calm()
        proxy.disturb(Reply(503), times=10_000)
        errors += [error_of(act) for act in acts(storage)]
    errors += [error_of(act) for act in acts(storage)]
    assert any(isinstance(error, CommitStateUnknownError) for error in errors)
    shown = "\n".join(traces(error) for error in errors)
    shown += repr(storage) + repr(access) + repr(key) + repr(vars(storage))
    shown += everything_logged.text
    assert SECRET not in shown
    assert HIDDEN in everything_logged.text
    assert "botocore.auth" in everything_logged.text
    assert SECRET.encode() not in pickle.dumps(
        S3Storage(versitygw_bucket, "p", access, key, SETTINGS)
    )


def awaited(storage: S3Storage) -> object:
    return asyncio.run(storage.get_async("chunks/A", Span(0, 1)))


def acts(storage: S3Storage) -> list[Callable[[], object]]:
    return [
        lambda: storage.get("chunks/A"),
        lambda: awaited(storage),
        lambda: storage.put("chunks/A", b"0"),
        lambda: storage.read("repo"),
        lambda: storage.stat("repo"),
        lambda: keys(storage),
        lambda: storage.put_if("repo", b"0", None),
        lambda: storage.copy_if("repo", "overwritten/repo.1", Version('"0"')),
    ]


def error_of(act: Callable[[], object]) -> StorageError:
    with pytest.raises(StorageError) as caught:
        act()
    return caught.value


def test_a_secret_header_that_a_pickle_leaves_out_is_missed(
    versitygw: S3Server, versitygw_bucket: str
) -> None:
    headers = (("authorization-extra", SECRET), ("x-plain", "1"))
    access = access_to(versitygw, write_headers=headers)
    storage = S3Storage(
        versitygw_bucket, "p", access, s3_refreshable_credentials(versitygw_key), SETTINGS
    )
    state = pickle.dumps(storage)
    assert SECRET.encode() not in state
    landed = pickle.loads(state)
    assert landed.access.write_headers == (("x-plain", "1"),)
    with pytest.raises(StorageError, match="secret header"):
        landed.put("chunks/A", b"")
    assert SECRET.encode() in pickle.dumps(storage.with_pickled_credentials())


def test_access_shows_no_header_values() -> None:
    access = S3Access(read_headers=(("x-plain", SECRET),))
    assert SECRET not in repr(access)
    assert "x-plain" in repr(access)
