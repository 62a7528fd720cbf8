"""Names of objects: as the reference library makes them, whatever the prefix."""

import pickle
from typing import Any

import icechunk
import pytest

from icechunk_stream import Repository
from icechunk_stream.errors import InvalidInputError, StorageError
from icechunk_stream.storage import s3_storage
from icechunk_stream.storage.retry import Waiting
from icechunk_stream.storage.s3_names import Names
from icechunk_stream.testing.storage_steps import create, keys, update
from tests.object_stores.buckets import create_bucket, s3_client
from tests.object_stores.s3_storages import storage_on
from tests.object_stores.servers import S3Server

pytestmark = pytest.mark.compat

PREFIXES = (
    "a",
    "a/",
    "/a",
    "a/b",
    "a//b",
    "/a//b",
    "a//",
    "//",
    "///",
    " ",
    "é%2F",
    "./a",
    "a/../b",
)


def place(server: S3Server, bucket: str, prefix: str | None) -> dict[str, Any]:
    """Arguments of ``s3_storage``, which both libraries have."""
    return {
        "bucket": bucket,
        "prefix": prefix,
        "region": server.region,
        "endpoint_url": server.endpoint,
        "allow_http": True,
        "force_path_style": True,
        "access_key_id": server.access_key_id,
        "secret_access_key": server.secret_access_key,
    }


def names(server: S3Server, bucket: str) -> set[str]:
    listed = s3_client(server).list_objects_v2(Bucket=bucket)
    return {item["Key"] for item in listed.get("Contents", ())}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_names_are_those_of_the_reference_library(
    moto: S3Server, moto_bucket: str, prefix: str
) -> None:
    theirs = icechunk.s3_storage(**place(moto, moto_bucket, prefix))
    icechunk.Repository.create(theirs, spec_version=1)
    made = names(moto, moto_bucket)
    ours = s3_storage(**place(moto, moto_bucket, prefix))
    assert {Names.below(prefix).name(key) for key in keys(ours)} == made
    assert Repository.open(ours).list_branches() == {"main"}

    other = create_bucket(moto, f"{moto_bucket}-ours")
    copy = s3_storage(**place(moto, other, prefix))
    copy.put_many([(key, ours.get(key)) for key in keys(ours) if key.startswith("snapshots/")])
    create(copy, "refs/branch.main/ref.json", ours.get("refs/branch.main/ref.json"))
    assert names(moto, other) == made
    opened = icechunk.Repository.open(icechunk.s3_storage(**place(moto, other, prefix)))
    assert opened.list_branches() == {"main"}


@pytest.mark.parametrize("prefix", [None, "", "/"])
def test_at_an_empty_prefix_names_are_keys(
    moto: S3Server, moto_bucket: str, prefix: str | None
) -> None:
    storage = s3_storage(**place(moto, moto_bucket, prefix))
    version = create(storage, "repo", b"0")
    storage.put("chunks/A", b"1")
    assert names(moto, moto_bucket) == {"repo", "chunks/A"}
    update(s3_storage(**place(moto, moto_bucket, prefix)), "repo", b"2", version)
    assert keys(storage) == ["chunks/A", "repo"]
    assert storage.delete_many(["repo"]) == []
    assert names(moto, moto_bucket) == {"chunks/A"}


@pytest.mark.parametrize("prefix", [None, "", "/"])
def test_rooted_names_of_old_releases_are_found(
    moto: S3Server, moto_bucket: str, prefix: str | None
) -> None:
    client = s3_client(moto)
    with_prefix = icechunk.s3_storage(**place(moto, moto_bucket, "x"))
    icechunk.Repository.create(with_prefix, spec_version=1)
    for name in names(moto, moto_bucket):
        source = {"Bucket": moto_bucket, "Key": name}
        client.copy_object(Bucket=moto_bucket, Key=name.removeprefix("x"), CopySource=source)
        client.delete_object(**source)

    theirs = icechunk.Repository.open(icechunk.s3_storage(**place(moto, moto_bucket, prefix)))
    ours = Repository.open(s3_storage(**place(moto, moto_bucket, prefix)))
    assert ours.lookup_branch("main") == theirs.lookup_branch("main")
    ours.storage.put("chunks/A", b"0")
    assert "/chunks/A" in names(moto, moto_bucket)
    assert "chunks/A" in keys(ours.storage)

    for rooted_keys, exists in ((True, True), (False, False)):
        arguments = place(moto, moto_bucket, prefix) | {"legacy_rooted_keys": rooted_keys}
        assert Repository.exists(s3_storage(**arguments)) is exists
        assert icechunk.Repository.exists(icechunk.s3_storage(**arguments)) is exists


def test_rooted_names_are_for_an_empty_prefix_only(versitygw: S3Server) -> None:
    arguments = place(versitygw, "bucket", "x") | {"legacy_rooted_keys": True}
    with pytest.raises(InvalidInputError, match="for an empty prefix only"):
        s3_storage(**arguments)
    with pytest.raises(icechunk.IcechunkError, match="only valid with an empty prefix"):
        icechunk.s3_storage(**arguments)


def test_a_pickle_keeps_the_prefix(moto: S3Server, moto_bucket: str) -> None:
    storage = storage_on(moto, moto_bucket, prefix="a///", waiting=Waiting())
    storage.put("chunks/A", b"0")
    landed = pickle.loads(pickle.dumps(storage.with_pickled_credentials()))
    assert (landed.prefix, keys(landed)) == ("a//", ["chunks/A"])
    assert names(moto, moto_bucket) == {"a///chunks/A"}


def test_a_bucket_needs_a_name(versitygw: S3Server) -> None:
    with pytest.raises(InvalidInputError, match="has no name"):
        storage_on(versitygw, "")


def test_a_prefix_that_is_a_file_to_the_server_is_an_error(
    versitygw: S3Server, versitygw_bucket: str
) -> None:
    """versitygw keeps objects as files: none can be a folder as well."""
    storage_on(versitygw, versitygw_bucket, prefix=None).put("a", b"")
    below = storage_on(versitygw, versitygw_bucket, prefix="a")
    with pytest.raises(StorageError, match="has the object, or a name below it, in use"):
        below.put("chunks/A", b"")
