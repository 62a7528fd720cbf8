"""Servers as fixtures: each starts in the first test that asks for it, once for a test process."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from icechunk_stream.testing.http_proxy import HttpProxy
from scripts.servers import InstallError
from tests.object_stores import servers
from tests.object_stores.buckets import create_bucket, create_container
from tests.object_stores.s3_storages import BULKS, Bulk, Hourglass, storage_on
from tests.object_stores.servers import AzureServer, S3Server, ServerError, Toxiproxy

pytest.register_assert_rewrite(
    "icechunk_stream.testing.storage_contract", "icechunk_stream.testing.storage_steps"
)

# No client may look for a metadata service, for anybody's credentials, or for a way around.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
os.environ["NO_PROXY"] = os.environ["no_proxy"] = servers.HOST

Server = TypeVar("Server")
Start = Callable[[Path], AbstractContextManager[Server]]

_numbers = count(1)


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server whose conditional writes are atomic."""
    yield from serve(servers.versitygw, tmp_path_factory)


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server for semantics; it is not atomic."""
    yield from serve(servers.moto, tmp_path_factory)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """A blob server of Azure."""
    yield from serve(servers.azurite, tmp_path_factory)


@pytest.fixture(scope="session")
def toxiproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toxiproxy]:
    """A proxy for latency and cut connections."""
    yield from serve(servers.toxiproxy, tmp_path_factory)


@pytest.fixture
def versitygw_bucket(versitygw: S3Server) -> str:
    """The name of a new bucket."""
    return create_bucket(versitygw, f"bucket-{next(_numbers)}")


@pytest.fixture
def moto_bucket(moto: S3Server) -> str:
    """The name of a new bucket."""
    return create_bucket(moto, f"bucket-{next(_numbers)}")


@pytest.fixture
def azure_container(azurite: AzureServer) -> str:
    """The name of a new container."""
    return create_container(azurite, f"container-{next(_numbers)}")


@pytest.fixture
def hourglass() -> Hourglass:
    """The clock of a storage: its retries do not wait."""
    return Hourglass()


@pytest.fixture
def proxy(versitygw: S3Server) -> Iterator[HttpProxy]:
    """Disturbs what passes to a server, and tells of it; modules may put it before another one."""
    with HttpProxy(versitygw.endpoint) as proxy:
        yield proxy


@pytest.fixture(params=BULKS)
def storage(
    request: pytest.FixtureRequest,
    versitygw: S3Server,
    versitygw_bucket: str,
    proxy: HttpProxy,
    hourglass: Hourglass,
) -> Any:
    """A storage behind the proxy, once with each client."""
    bulk: Bulk = request.param
    waiting = hourglass.waiting()
    return storage_on(versitygw, versitygw_bucket, proxy.endpoint, bulk=bulk, waiting=waiting)


def serve(start: Start[Server], folders: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server for the rest of the session; where it cannot run, the tests fail."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(start(folders.mktemp("server")))
        except (InstallError, ServerError) as error:
            pytest.fail(str(error), pytrace=False)
        yield server
