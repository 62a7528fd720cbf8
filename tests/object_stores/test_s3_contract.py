"""The contract of a storage on S3 servers, with both clients."""

import pytest

from icechunk_stream.storage import Storage
from icechunk_stream.testing.storage_contract import ODD_KEYS, StorageContract, StorageSemantics
from tests.object_stores.s3_storages import storage_on
from tests.object_stores.servers import S3Server


class TestMotoWithBoto3(StorageSemantics):
    """Races are for servers whose writes are atomic."""

    versions_come_back = True

    @pytest.fixture
    def storage(self, moto: S3Server, moto_bucket: str) -> Storage:
        return storage_on(moto, moto_bucket, bulk="boto3")


class TestMotoWithObstore(StorageSemantics):
    versions_come_back = True

    @pytest.fixture
    def storage(self, moto: S3Server, moto_bucket: str) -> Storage:
        return storage_on(moto, moto_bucket, bulk="obstore")


class OnVersitygw(StorageContract):
    versions_come_back = True
    # Its listings are not URL-encoded, and XML has no such character.
    odd_keys = tuple(key for key in ODD_KEYS if key != "\uffff")


class TestVersitygwWithBoto3(OnVersitygw):
    @pytest.fixture
    def storage(self, versitygw: S3Server, versitygw_bucket: str) -> Storage:
        return storage_on(versitygw, versitygw_bucket, bulk="boto3")


class TestVersitygwWithObstore(OnVersitygw):
    @pytest.fixture
    def storage(self, versitygw: S3Server, versitygw_bucket: str) -> Storage:
        return storage_on(versitygw, versitygw_bucket, bulk="obstore")
