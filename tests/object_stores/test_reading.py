"""Repositories in object stores say what they say on disk, and what the reference reads there."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import icechunk_stream
from tests.object_stores.buckets import create_bucket, create_container
from tests.oracle import plans
from tests.oracle.compare import assert_same
from tests.oracle.dump import dump_repository
from tests.oracle.libraries import REFERENCE
from tests.oracle.maker import make_repository
from tests.oracle.random_repositories import repository_plans, write_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.object_stores.servers import AzureServer, S3Server

    # A place in an object store: its storage in a library that is given as a module.
    Place = Callable[[Any], Any]
    NewPlace = Callable[[], Place]

pytestmark = pytest.mark.compat

FIXTURES = (
    "expire-repo-v1-by-1.1.21",
    "expire-repo-v2-by-working-copy",
    "split-repo-v1",
    "split-repo-v2",
    "test-repo-v1",
    "test-repo-v2",
)
EXAMPLES = 10


def _s3_place(server: S3Server, bucket: str) -> Place:
    return lambda ic: ic.s3_storage(
        bucket=bucket,
        prefix="some/where",
        endpoint_url=server.endpoint,
        region=server.region,
        allow_http=True,
        force_path_style=True,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
    )


def _azure_place(server: AzureServer, container: str) -> Place:
    return lambda ic: ic.azure_storage(
        account=server.account,
        container=container,
        prefix="some/where",
        access_key=server.access_key,
        config={"azure_storage_endpoint": server.endpoint, "allow_http": "true"},
    )


@pytest.fixture(scope="module")
def new_s3_place(versitygw: S3Server) -> NewPlace:
    numbers = iter(range(1000))
    return lambda: _s3_place(versitygw, create_bucket(versitygw, f"reading-{next(numbers)}"))


@pytest.fixture(scope="module")
def new_azure_place(azurite: AzureServer) -> NewPlace:
    numbers = iter(range(1000))
    return lambda: _azure_place(azurite, create_container(azurite, f"reading-{next(numbers)}"))


@pytest.fixture(params=["new_s3_place", "new_azure_place"], scope="module")
def new_place(request: pytest.FixtureRequest) -> NewPlace:
    place: NewPlace = request.getfixturevalue(request.param)
    return place


def _copy(local: Path, place: Place) -> None:
    source, target = icechunk_stream.local_filesystem_storage(local), place(icechunk_stream)
    keys = [info.key for info in source.list()]
    target.put_many([(key, source.get(key)) for key in keys])
    assert [info.key for info in target.list()] == keys


def _assert_reads_the_same(local: Path, place: Place, prefixes: tuple[str, ...] = ()) -> None:
    _copy(local, place)
    on_disk = dump_repository(icechunk_stream, local, prefixes)
    in_store = dump_repository(icechunk_stream, local, prefixes, place(icechunk_stream))
    expected = dump_repository(REFERENCE, local, prefixes, place(REFERENCE))
    assert_same(on_disk, in_store, ("on disk", "in the object store"))
    assert_same(expected, in_store, ("reference", "icechunk_stream"))


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_read_the_same_from_object_stores(
    name: str, fixture_copy: Callable[[str], Path], new_place: NewPlace
) -> None:
    _assert_reads_the_same(fixture_copy(name), new_place())


@pytest.mark.parametrize("spec_version", [1, 2])
@settings(max_examples=EXAMPLES, suppress_health_check=[*HealthCheck], deadline=None)
@given(data=st.data())
def test_random_repositories_read_the_same_from_object_stores(
    data: st.DataObject, spec_version: int, new_place: NewPlace
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        containers: plans.Containers = write_files(Path(folder) / "files")
        plan = data.draw(repository_plans(containers, spec_version))
        location = Path(folder) / "repository"
        make_repository(REFERENCE, plan, str(location), containers)
        _assert_reads_the_same(location, new_place(), (containers.prefix,))
