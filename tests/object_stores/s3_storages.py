"""S3 storages for tests: with a server's own key, and with retries that do not wait."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from icechunk_stream.config import (
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
)
from icechunk_stream.credentials import S3Static, s3_static_credentials
from icechunk_stream.storage import S3Access, S3Storage
from icechunk_stream.storage.retry import Waiting
from tests.object_stores.servers import S3Server

Bulk = Literal["boto3", "obstore"]
BULKS: tuple[Bulk, ...] = ("boto3", "obstore")

SETTINGS = StorageSettings(
    retries=StorageRetriesSettings(5, 100, 1000),
    timeouts=StorageTimeoutSettings(read_timeout_ms=1500, connect_timeout_ms=5000),
)


@dataclass
class Hourglass:
    """A clock that only pauses move, and that remembers them.

    What is put into ``meanwhile`` happens once, in the next pause.
    """

    now: float = 0.0
    pauses: list[float] = field(default_factory=list)
    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        while self.meanwhile:
            self.meanwhile.pop(0)()

    def read(self) -> float:
        return self.now

    def waiting(self) -> Waiting:
        return Waiting(monotonic=self.read, sleep=self.pause, fraction=most)


def most() -> float:
    """The longest pause of those that a retry may choose from."""
    return 1.0


def access_to(server: S3Server, endpoint: str | None = None, **more: Any) -> S3Access:
    return replace(
        S3Access(
            region=server.region,
            endpoint_url=endpoint or server.endpoint,
            allow_http=True,
            force_path_style=True,
        ),
        **more,
    )


def key_of(server: S3Server) -> S3Static:
    return s3_static_credentials(
        access_key_id=server.access_key_id, secret_access_key=server.secret_access_key
    )


def storage_on(
    server: S3Server,
    bucket: str,
    endpoint: str | None = None,
    *,
    prefix: str | None = "p",
    settings: StorageSettings = SETTINGS,
    waiting: Waiting | None = None,
    **more: Any,
) -> S3Storage:
    """A storage that reaches a server, itself or by a proxy before it."""
    access = access_to(server, endpoint, **more)
    waiting = Hourglass().waiting() if waiting is None else waiting
    return S3Storage(bucket, prefix, access, key_of(server), settings, waiting)
