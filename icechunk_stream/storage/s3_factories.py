"""Functions that make S3 storages, with the reference library's signatures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icechunk_stream.credentials import s3_credentials
from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.storage.s3 import S3Storage
from icechunk_stream.storage.s3_settings import S3Access

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from icechunk_stream.config import ChecksumAlgorithm
    from icechunk_stream.credentials import S3StaticCredentials

_TIGRIS = "https://t3.storage.dev"
_R2 = "https://{account}.r2.cloudflarestorage.com"
_R2_REGION = "auto"


_ACCESS = (
    "region",
    "endpoint_url",
    "allow_http",
    "force_path_style",
    "network_stream_timeout_seconds",
    "requester_pays",
    "checksum_algorithm",
    "legacy_rooted_keys",
)
_CREDENTIALS = (
    "access_key_id",
    "secret_access_key",
    "session_token",
    "expires_after",
    "anonymous",
    "from_env",
    "get_credentials",
    "scatter_initial_credentials",
)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What a provider's storages share: options, and headers beneath those of the caller."""

    read: Mapping[str, str] = field(default_factory=dict)
    write: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def _storage(
    bucket: str, prefix: str | None, given: Mapping[str, Any], fixed: _Fixed | None = None
) -> S3Storage:
    """A storage by the arguments of a function below; headers of one role go before the others."""
    fixed, both = fixed or _Fixed(), given["headers"] or {}
    options = {name: given[name] for name in _ACCESS if name in given} | {**fixed.options}
    access = S3Access(**options).with_headers(
        {**fixed.read, **both, **(given["read_headers"] or {})},
        {**fixed.write, **both, **(given["write_headers"] or {})},
    )
    credentials = s3_credentials(**{name: given[name] for name in _CREDENTIALS})
    return S3Storage(bucket, prefix, access, credentials)


def s3_storage(  # noqa: PLR0913 - the reference library's signature
    *,
    bucket: str,
    prefix: str | None,
    region: str | None = None,
    endpoint_url: str | None = None,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
    force_path_style: bool = False,
    network_stream_timeout_seconds: int = 60,
    requester_pays: bool = False,
    checksum_algorithm: ChecksumAlgorithm | None = None,
    legacy_rooted_keys: bool | None = None,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> S3Storage:
    """A storage in a bucket of S3, or of a store that speaks its protocol.

    Args:
        bucket: The bucket's name.
        prefix: What the names of all objects begin with.
        region: The bucket's region.
        endpoint_url: The server, where it is not Amazon's.
        allow_http: Whether the endpoint may be one without encryption.
        access_key_id: A fixed access key.
        secret_access_key: Its secret.
        session_token: Its token, if it is a temporary one.
        expires_after: When it ends.
        anonymous: Requests are not signed.
        from_env: The ambient chain of botocore, which is the default.
        get_credentials: An importable function that gives keys, called in each process.
        scatter_initial_credentials: Call it now, and use its key until that ends.
        force_path_style: The bucket stands in the path of URLs, not in their host.
        network_stream_timeout_seconds: A stalled answer is cut after it; 0 waits for ever.
        requester_pays: For buckets whose readers are billed.
        checksum_algorithm: What writes are checked with, beside their signature. Without one,
            large objects are sent with a CRC32C, as long as the server takes it.
        legacy_rooted_keys: Whether names begin with a slash, as old releases of the reference
            library wrote them at an empty prefix; None looks which of both is there.
        read_headers: HTTP headers of each read.
        write_headers: HTTP headers of each write.
        headers: HTTP headers of each read and write.
    """
    return _storage(bucket, prefix, locals())


def tigris_storage(  # noqa: PLR0913 - the reference library's signature
    *,
    bucket: str,
    prefix: str | None,
    region: str | None = None,
    endpoint_url: str | None = None,
    use_weak_consistency: bool = False,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
    network_stream_timeout_seconds: int = 60,
    checksum_algorithm: ChecksumAlgorithm | None = None,
    legacy_rooted_keys: bool | None = None,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> S3Storage:
    """A storage in a bucket of Tigris.

    ``region`` is where the bucket is, and where all requests go. ``use_weak_consistency`` needs
    none: it reads from the nearest region, which may lag behind, and refuses to write. All other
    arguments are those of ``s3_storage``.
    """
    given = locals()
    if region is None and not use_weak_consistency:
        message = (
            "Tigris is consistent within one region only: give the bucket's region,"
            " or use_weak_consistency=True for a storage that reads what may be out of date"
        )
        raise InvalidInputError(message, ErrorKind.STORAGE_CONFIG)
    pinned = {} if region is None else _pin(region)
    reads = pinned | {"Cache-Control": "no-cache"} if pinned else pinned
    options = {"endpoint_url": endpoint_url or _TIGRIS, "read_only": use_weak_consistency}
    return _storage(bucket, prefix, given, _Fixed(reads, pinned, options))


def r2_storage(  # noqa: PLR0913 - the reference library's signature
    *,
    bucket: str | None = None,
    prefix: str | None = None,
    account_id: str | None = None,
    endpoint_url: str | None = None,
    region: str | None = None,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
    network_stream_timeout_seconds: int = 60,
    checksum_algorithm: ChecksumAlgorithm | None = None,
    legacy_rooted_keys: bool | None = None,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> S3Storage:
    """A storage in a bucket of Cloudflare R2.

    The server is that of ``account_id``, or ``endpoint_url``. Without a bucket, it is the first
    part of the prefix. All other arguments are those of ``s3_storage``.
    """
    given = locals()
    if not (endpoint_url or account_id):
        message = "R2 needs account_id or endpoint_url: give one of them"
        raise InvalidInputError(message, ErrorKind.STORAGE_CONFIG)
    named, below = _r2_place(bucket, prefix)
    options = {
        "region": region or _R2_REGION,
        "endpoint_url": endpoint_url or _R2.format(account=account_id),
        "force_path_style": True,
    }
    return _storage(named, below, given, _Fixed(options=options))


def _pin(region: str) -> dict[str, str]:
    """Headers that keep requests to Tigris in one region, and there to the newest state."""
    return {"X-Tigris-Regions": region, "X-Tigris-Consistent": "true"}


def _r2_place(bucket: str | None, prefix: str | None) -> tuple[str, str | None]:
    if bucket:
        return bucket, prefix
    first, _, rest = (prefix or "").partition("/")
    if not first:
        message = "R2 needs a bucket: give bucket, or a prefix that begins with its name"
        raise InvalidInputError(message, ErrorKind.STORAGE_CONFIG)
    return first, rest
