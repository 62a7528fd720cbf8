"""Pickles of repositories, sessions and stores, and what they must not carry."""

from __future__ import annotations

import logging
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest
import zarr

import icechunk_stream as ic
from tests.secret_marker import MARKER

PREFIX = "s3://private/"


def _key() -> ic.S3StaticCredentials:
    return ic.S3StaticCredentials(f"{MARKER}-id", f"{MARKER}-key", f"{MARKER}-token")


@pytest.fixture
def repository(fixture_repository: Path) -> ic.Repository:
    credentials = ic.s3_static_credentials(
        access_key_id=f"{MARKER}-id",
        secret_access_key=f"{MARKER}-key",
        session_token=f"{MARKER}-token",
    )
    storage = ic.local_filesystem_storage(fixture_repository)
    authorized = ic.containers_credentials({PREFIX: credentials})
    return ic.Repository.open(storage, authorize_virtual_chunk_access=authorized)


def _values(store: ic.IcechunkStore) -> list[Any]:
    return zarr.open_array(store, path="group1/small_chunks", mode="r")[...].tolist()  # type: ignore[union-attr, no-any-return]


def test_a_pickled_repository_opens_the_same_repository(repository: ic.Repository) -> None:
    copy = pickle.loads(pickle.dumps(repository))

    assert copy.list_branches() == repository.list_branches()
    assert copy.config == repository.config
    assert copy.spec_version == repository.spec_version


def test_a_pickled_session_reads_the_same_snapshot(repository: ic.Repository) -> None:
    session = repository.readonly_session("main")
    copy = pickle.loads(pickle.dumps(session))

    assert copy == session
    assert copy.snapshot_id == session.snapshot_id
    assert _values(copy.store) == _values(session.store)


def test_a_pickled_store_reads_the_same_values(repository: ic.Repository) -> None:
    store = repository.readonly_session("main").store
    copy = pickle.loads(pickle.dumps(store))

    assert copy == store
    assert _values(copy) == _values(store)


@pytest.mark.parametrize("part", ["repository", "session", "store"])
def test_static_credentials_are_not_in_pickles(repository: ic.Repository, part: str) -> None:
    assert MARKER not in _pickled_text(_part(repository, part))


@pytest.mark.parametrize("part", ["repository", "session", "store"])
def test_static_credentials_are_in_pickles_when_asked_for(
    repository: ic.Repository, part: str
) -> None:
    assert MARKER in _pickled_text(_part(repository.with_pickled_credentials(), part))


@pytest.mark.parametrize("scatter", [True, False])
def test_a_refreshable_credential_is_pickled_without_its_first_key(
    fixture_repository: Path, scatter: bool
) -> None:
    credential = ic.s3_refreshable_credentials(_key, scatter_initial_credentials=scatter)
    repository = ic.Repository.open(
        ic.local_filesystem_storage(fixture_repository),
        authorize_virtual_chunk_access={PREFIX: credential},
    )
    assert MARKER not in _pickled_text(repository)


@pytest.mark.parametrize("part", ["repository", "session", "store"])
def test_representations_never_show_credentials(repository: ic.Repository, part: str) -> None:
    value = _part(repository, part)

    assert MARKER not in f"{value!r} {value!s}"


def test_credentials_never_show_themselves() -> None:
    shown = [_key(), ic.s3_refreshable_credentials(_key, True), ic.S3Credentials.Static(_key())]

    assert MARKER not in repr(shown)


def test_logs_and_errors_never_show_credentials(
    repository: ic.Repository, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(ic.IcechunkError) as caught:
        zarr.open_array(
            repository.readonly_session("main").store, path="group1/big_chunks", mode="r"
        )[...]

    assert MARKER not in caplog.text + str(caught.value) + repr(caught.value)


def _part(repository: ic.Repository, part: str) -> object:
    session = repository.readonly_session("main")
    return {"repository": repository, "session": session, "store": session.store}[part]


def _pickled_text(value: object) -> str:
    lines: list[str] = []
    for _, argument, _ in pickletools.genops(pickle.dumps(value)):
        lines.append(repr(argument))
    return " ".join(lines)
