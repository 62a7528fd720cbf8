"""Storages in containers of the local Azure server, with retries that do not wait."""

from typing import Any

from icechunk_stream.config import StorageRetriesSettings, StorageSettings, StorageTimeoutSettings
from icechunk_stream.storage.azure import azure_storage
from icechunk_stream.storage.object_store import ObjectStoreStorage
from icechunk_stream.storage.retry import Waiting
from tests.object_stores.s3_storages import Hourglass
from tests.object_stores.servers import AzureServer

SETTINGS = StorageSettings(
    retries=StorageRetriesSettings(5, 1, 10),
    timeouts=StorageTimeoutSettings(read_timeout_ms=1500, connect_timeout_ms=5000),
)


def storage_of(  # noqa: PLR0913 - what tests vary
    server: AzureServer,
    container: str,
    prefix: str = "repo",
    *,
    endpoint: str | None = None,
    options: dict[str, str] | None = None,
    settings: StorageSettings = SETTINGS,
    waiting: Waiting | None = None,
    **credentials: Any,
) -> ObjectStoreStorage:
    """A storage with the account's key, or with what is given; ``endpoint`` may be a proxy's."""
    config = {"azure_storage_endpoint": endpoint or server.endpoint, "allow_http": "true"}
    storage = azure_storage(
        account=server.account,
        container=container,
        prefix=prefix,
        config=config | (options or {}),
        **(credentials or {"access_key": server.access_key}),
    )
    waiting = Hourglass().waiting() if waiting is None else waiting
    return ObjectStoreStorage(storage.spec, storage.prefix, settings, waiting)
