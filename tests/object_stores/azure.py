"""Storages in containers of the local Azure server."""

from typing import Any

from icechunk_stream.config import StorageRetriesSettings, StorageSettings, StorageTimeoutSettings
from icechunk_stream.storage.azure import azure_storage
from icechunk_stream.storage.object_store import ObjectStoreStorage
from icechunk_stream.storage.retry import Waiting
from tests.object_stores.servers import AzureServer

# For proxies that disturb: retries that soon end.
IMPATIENT = StorageSettings(
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
    settings: StorageSettings | None = None,
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
    return ObjectStoreStorage(storage.spec, storage.prefix, settings, waiting)
