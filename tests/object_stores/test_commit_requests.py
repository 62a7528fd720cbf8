"""The requests of a steady commit, as a real S3 server gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icechunk_stream import Repository
from icechunk_stream.testing.http_proxy import HttpProxy
from tests.concurrency.contents import GROUP, Contents, array, write
from tests.concurrency.three_commits import ROOT, messages
from tests.object_stores.s3_storages import BULKS, Bulk, storage_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.storage import Storage
    from icechunk_stream.testing.http_messages import Seen
    from tests.object_stores.servers import S3Server

CHUNK = bytes(range(256)) * 8


def batch(number: int) -> Contents:
    """Two arrays that grow by one chunk."""
    documents = array((number * 256,), (256,))
    names = ("a", "b")
    grown: Contents = {f"{name}/zarr.json": documents for name in names}
    return grown | {f"{name}/c/{number - 1}": CHUNK for name in names}


@pytest.fixture
def proxy(versitygw: S3Server) -> Iterator[HttpProxy]:
    with HttpProxy(versitygw.endpoint) as proxy:
        yield proxy


def steady(storage: Storage, spec_version: int) -> Repository:
    """A repository object that has made some commits."""
    repository = Repository.create(storage, spec_version=spec_version)
    for contents in ({"zarr.json": GROUP}, batch(1), batch(2)):
        session = repository.writable_session("main")
        write(session.store, contents)
        session.commit("before")
    return repository


def named(seen: Seen, bucket: str) -> str:
    """Method, folder, and whether the request has a condition."""
    folder = seen.path.removeprefix(f"/{bucket}/p/").partition("/")[0]
    conditions = sorted(name for name in seen.headers if "if-match" in name or "if-none" in name)
    return " ".join([seen.method, folder, *conditions])


@pytest.mark.parametrize("bulk", BULKS)
@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_steady_commit_sends_its_objects_and_a_swap(
    versitygw: S3Server, versitygw_bucket: str, proxy: HttpProxy, bulk: Bulk, spec_version: int
) -> None:
    storage = storage_on(versitygw, versitygw_bucket, proxy.endpoint, bulk=bulk)
    repository = steady(storage, spec_version)
    proxy.forget()
    session = repository.writable_session("main")
    opening = [named(seen, versitygw_bucket) for seen in proxy.requests]
    write(session.store, batch(3))
    proxy.forget()
    session.commit("steady")
    requests = [named(seen, versitygw_bucket) for seen in proxy.requests]

    immutable = ["PUT manifests", "PUT snapshots", "PUT transactions"]
    if spec_version == 1:
        assert opening == ["GET refs"]
        assert sorted(requests[:-1]) == immutable
        assert requests[-1] == "PUT refs if-match"
    else:
        assert opening == ["GET repo if-none-match"]
        assert sorted(requests[:-1]) == sorted(
            [*immutable, "PUT overwritten x-amz-copy-source-if-match"]
        )
        assert requests[-1] == "PUT repo if-match"
    assert all(seen.answered and seen.round_trips == 1 for seen in proxy.requests)
    assert messages(Repository.open(storage)) == [ROOT, *["before"] * 3, "steady"]
