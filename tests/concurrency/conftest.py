"""A real object store for the tests of this folder."""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.places import Bucket
from tests.object_stores import servers
from tests.object_stores.buckets import create_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.object_stores.servers import S3Server

pytest.register_assert_rewrite(
    "icechunk_stream.testing.storage_contract", "icechunk_stream.testing.storage_steps"
)

# No client may look for a metadata service, or for a way around.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
os.environ["NO_PROXY"] = os.environ["no_proxy"] = servers.HOST

_numbers = count(1)


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server whose conditional writes are atomic."""
    with servers.versitygw(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def bucket(versitygw: S3Server) -> Bucket:
    """A new bucket."""
    return Bucket(versitygw, create_bucket(versitygw, f"concurrency-{next(_numbers)}"))
