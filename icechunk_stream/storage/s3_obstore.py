"""Bulk reads and writes through obstore, with botocore's credentials and endpoint."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icechunk_stream.config import ChecksumAlgorithm
from icechunk_stream.storage.failures import Failure, Trouble
from icechunk_stream.storage.obstore_library import native
from icechunk_stream.storage.obstore_requests import ObstoreRequests
from icechunk_stream.storage.obstore_stores import Dialect, Opened
from icechunk_stream.storage.s3_credentials import now
from icechunk_stream.storage.s3_session import USER_AGENT
from icechunk_stream.storage.values import resolve_range

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials

    from icechunk_stream.storage.s3_session import S3Session
    from icechunk_stream.storage.s3_settings import Usage
    from icechunk_stream.storage.s3_values import Got
    from icechunk_stream.storage.traits import Traits
    from icechunk_stream.storage.values import ByteRange, BytesLike, Span, Version

_DIALECT = Dialect(title="S3", permissions="")
_CHECKSUMS = {ChecksumAlgorithm.Sha256: "sha256", ChecksumAlgorithm.Crc64Nvme: "crc64nvme"}
_NO_LIMIT = timedelta(days=7)
# botocore renews keys at least this long before they end.
_KEY_LIFE = timedelta(minutes=5)


class S3Obstore:
    """Requests through obstore, each sent once.

    ``StorageError`` where obstore does not work in this process.
    """

    def __init__(self, session: S3Session, bucket: str, usage: Usage) -> None:
        access, library = session.access, native()
        store = library._store.S3Store(  # noqa: SLF001 - where a copy of the module has it
            bucket,
            config=_config(session, bucket),
            client_options=_client_options(session),
            retry_config={"max_retries": 0},
            credential_provider=None if session.anonymous else _Provider(session),
        )
        opened = Opened(library, reader=store, writer=store, lister=store)
        self._requests = ObstoreRequests(opened, _DIALECT, usage)
        checksum = access.checksum_algorithm
        # obstore would send headers without signing them.
        self.reads = not access.read_headers
        self.writes = not access.write_headers and (checksum is None or checksum in _CHECKSUMS)

    @staticmethod
    def can_name(name: str) -> bool:
        """Whether obstore takes a name as it is."""
        return {"", ".", ".."}.isdisjoint(name.split("/"))

    def get(self, name: str, byte_range: ByteRange | None) -> Got | Failure:
        got = self._requests.get(name, byte_range)
        if isinstance(got, Failure) or byte_range is None:
            return got
        start, end = resolve_range(byte_range, got.size, name)
        if len(got.data) != end - start:
            return Failure(Trouble.LOST, detail="other bytes came than were asked for")
        return got

    async def get_async(self, name: str, span: Span) -> BytesLike | Failure | None:
        """Bytes of an object; None where ``get`` must tell what is wrong."""
        return await self._requests.get_async(name, span)

    def put(self, name: str, data: BytesLike, traits: Traits) -> Version | Failure:
        return self._requests.put(name, data, traits)


def _config(session: S3Session, bucket: str) -> dict[str, Any]:
    """Obstore looks into the environment for what is not given."""
    access, base = session.access, session.object_base(bucket)
    virtual = not base.endswith(f"/{bucket}")
    endpoint = base if virtual else base.removesuffix(f"/{bucket}")
    config: dict[str, Any] = {
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,
        "region": session.region(),
        "virtual_hosted_style_request": virtual,
        "skip_signature": session.anonymous,
        "request_payer": access.requester_pays,
        "conditional_put": "etag",
    }
    if access.checksum_algorithm in _CHECKSUMS:
        config["checksum_algorithm"] = _CHECKSUMS[access.checksum_algorithm]
    return config


def _client_options(session: S3Session) -> dict[str, Any]:
    timeouts = session.timeouts
    options: dict[str, Any] = {
        "allow_http": session.access.allow_http,
        "connect_timeout": _duration(timeouts.connect),
        "read_timeout": _duration(timeouts.read),
        "timeout": _duration(timeouts.attempt),
        "user_agent": USER_AGENT,
    }
    bundle = session.ca_bundle()
    if bundle is not None:
        options["root_certificate"] = Path(bundle).read_bytes()
    return options


class _Provider:
    """Gives obstore the key that botocore would sign with."""

    def __init__(self, session: S3Session) -> None:
        self._session = session

    def __call__(self) -> dict[str, Any]:
        key: ReadOnlyCredentials | None = self._session.frozen_key()
        return {
            "access_key_id": key.access_key if key else "",
            "secret_access_key": key.secret_key if key else "",
            "token": key.token if key else None,
            "expires_at": now() + _KEY_LIFE,
        }


def _duration(seconds: float | None) -> timedelta:
    return _NO_LIMIT if seconds is None else timedelta(seconds=seconds)
