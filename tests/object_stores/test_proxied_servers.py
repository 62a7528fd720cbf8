"""Signatures stay valid through the programmable proxy, whichever client made them."""

from dataclasses import replace

import obstore
import pytest
from botocore.exceptions import ClientError
from obstore.store import AzureStore, S3Store

from icechunk_stream.testing.http_faults import AlterRequest, DropAnswer
from icechunk_stream.testing.http_messages import Request, without
from icechunk_stream.testing.http_proxy import HttpProxy
from tests.object_stores.buckets import s3_client
from tests.object_stores.servers import AzureServer, S3Server


def test_boto3_writes_and_reads(versitygw: S3Server, versitygw_bucket: str) -> None:
    with HttpProxy(versitygw.endpoint) as proxy:
        client = s3_client(replace(versitygw, endpoint=proxy.endpoint))
        place = {"Bucket": versitygw_bucket, "Key": "a b/é+1"}
        client.put_object(**place, Body=b"0123456789")
        assert client.get_object(**place, Range="bytes=2-3")["Body"].read() == b"23"
        assert client.list_objects_v2(Bucket=versitygw_bucket)["KeyCount"] == 1
        client.close()
        assert [seen.status for seen in proxy.requests] == [200, 206, 200]
        assert proxy.requests[0].path == f"/{versitygw_bucket}/a b/é+1"


def test_obstore_writes_and_reads(versitygw: S3Server, versitygw_bucket: str) -> None:
    with HttpProxy(versitygw.endpoint) as proxy:
        store = S3Store(
            versitygw_bucket,
            endpoint=proxy.endpoint,
            access_key_id=versitygw.access_key_id,
            secret_access_key=versitygw.secret_access_key,
            region=versitygw.region,
            client_options={"allow_http": True},
        )
        obstore.put(store, "a/b", b"0123456789")
        assert obstore.get_range(store, "a/b", start=2, end=4) == b"23"
        assert proxy.round_trips == 2


def test_azure_writes_and_reads(azurite: AzureServer, azure_container: str) -> None:
    with HttpProxy(azurite.endpoint) as proxy:
        store = AzureStore(
            azure_container,
            endpoint=proxy.endpoint,
            account_name=azurite.account,
            access_key=azurite.access_key,
            client_options={"allow_http": True},
        )
        obstore.put(store, "a/b", b"0123456789")
        assert obstore.get_range(store, "a/b", start=2, end=4) == b"23"
        assert proxy.round_trips == 2


def test_default_retries_take_a_stored_write_for_a_lost_race(
    versitygw: S3Server, versitygw_bucket: str
) -> None:
    """Why conditional writes are sent once."""
    with HttpProxy(versitygw.endpoint) as proxy:
        client = s3_client(replace(versitygw, endpoint=proxy.endpoint))
        proxy.disturb(DropAnswer(), method="PUT")
        with pytest.raises(ClientError, match="PreconditionFailed"):
            client.put_object(Bucket=versitygw_bucket, Key="ref", Body=b"mine", IfNoneMatch="*")
        assert [seen.status for seen in proxy.requests] == [200, 412]
        assert client.get_object(Bucket=versitygw_bucket, Key="ref")["Body"].read() == b"mine"
        client.close()


def test_a_server_can_be_made_to_ignore_conditions(moto: S3Server, moto_bucket: str) -> None:
    def unconditional(request: Request) -> Request:
        return replace(request, headers=without(request.headers, "if-match", "if-none-match"))

    with HttpProxy(moto.endpoint) as proxy:
        proxy.disturb(AlterRequest(unconditional), method="PUT", times=2)
        client = s3_client(replace(moto, endpoint=proxy.endpoint))
        for body in (b"one", b"two"):
            client.put_object(Bucket=moto_bucket, Key="ref", Body=body, IfNoneMatch="*")
        assert client.get_object(Bucket=moto_bucket, Key="ref")["Body"].read() == b"two"
        client.close()
