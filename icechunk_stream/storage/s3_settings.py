"""How an S3 bucket is reached and used: frozen values made from the public settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit

from icechunk_stream.config import StorageSettings, StorageTimeoutSettings, default_storage_settings
from icechunk_stream.config.redact import HIDDEN, redact_options
from icechunk_stream.config.repository import overlay
from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.storage.retry import RetryPolicy
from icechunk_stream.storage.traits import StorageClasses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icechunk_stream.config import ChecksumAlgorithm, S3Options

Headers = tuple[tuple[str, str], ...]
Bulk = Literal["auto", "obstore", "boto3"]

DEFAULT_CONCURRENCY = 96

_DEFAULT_CONNECT_TIMEOUT = 10.0
_DEFAULT_READ_TIMEOUT = 60
_SMALLEST_PART = 5 * 2**20
_MOST_PARTS = 10_000


@dataclass(frozen=True, slots=True)
class S3Access:
    """How to reach an S3-compatible server; credentials are given apart.

    Args:
        region: None takes the ambient configuration's, or that of S3's default.
        endpoint_url: None is Amazon's.
        allow_http: Whether the endpoint may be one without encryption.
        force_path_style: The bucket stands in the path of URLs, not in their host.
        network_stream_timeout_seconds: A stalled answer is cut after it; 0 waits for ever.
        requester_pays: For buckets whose readers are billed.
        checksum_algorithm: What writes are checked with, beside their signature. Without one,
            large objects are sent with a CRC32C, as long as the server takes it.
        read_headers: HTTP headers of each read.
        write_headers: HTTP headers of each write.
        legacy_rooted_keys: Whether names begin with a slash, as the reference library before 2.1
            wrote them at an empty prefix; None looks which of both is there.
        read_only: Writes are refused.
        bulk: What objects are read and written with: ``"auto"`` is obstore where it is installed.
            Large ones may be botocore's all the same.
        concurrency: Requests of batches that run at once.
    """

    region: str | None = None
    endpoint_url: str | None = None
    allow_http: bool = False
    force_path_style: bool = False
    network_stream_timeout_seconds: int | None = _DEFAULT_READ_TIMEOUT
    requester_pays: bool = False
    checksum_algorithm: ChecksumAlgorithm | None = None
    read_headers: Headers = ()
    write_headers: Headers = ()
    legacy_rooted_keys: bool | None = None
    read_only: bool = False
    bulk: Bulk = "auto"
    concurrency: int = DEFAULT_CONCURRENCY

    def __post_init__(self) -> None:
        if self.endpoint_url is not None:
            _check_endpoint(self.endpoint_url, allow_http=self.allow_http)
        if self.bulk not in get_args(Bulk):
            message = f"bulk {self.bulk!r} is unknown: give 'auto', 'obstore' or 'boto3'"
            raise InvalidInputError(message)

    @classmethod
    def of(cls, options: S3Options) -> S3Access:
        return cls(
            region=options.region,
            endpoint_url=options.endpoint_url,
            allow_http=options.allow_http,
            force_path_style=options.force_path_style,
            network_stream_timeout_seconds=options.network_stream_timeout_seconds,
            requester_pays=options.requester_pays,
            checksum_algorithm=options.checksum_algorithm,
        )

    def without_secrets(self) -> S3Access:
        """What a pickle may hold: no header whose name tells of a secret."""
        return replace(
            self,
            read_headers=_harmless(self.read_headers),
            write_headers=_harmless(self.write_headers),
        )

    def with_headers(self, read: Mapping[str, str], write: Mapping[str, str]) -> S3Access:
        """The same access with headers for each read and each write."""
        return replace(
            self,
            read_headers=tuple(sorted(read.items())),
            write_headers=tuple(sorted(write.items())),
        )

    def __repr__(self) -> str:
        shown = [
            f"{name}={value!r}"
            for name, value in (
                ("region", self.region),
                ("endpoint_url", self.endpoint_url),
                ("allow_http", self.allow_http),
                ("force_path_style", self.force_path_style),
                ("requester_pays", self.requester_pays),
                ("read_headers", _names(self.read_headers)),
                ("write_headers", _names(self.write_headers)),
            )
            if value
        ]
        return f"S3Access({', '.join(shown)})"


def _harmless(headers: Headers) -> Headers:
    kept = redact_options(dict(headers))
    return tuple((name, value) for name, value in headers if kept[name] == value)


def _names(headers: Headers) -> dict[str, str]:
    return dict.fromkeys((name for name, _ in headers), HIDDEN)


def _check_endpoint(url: str, *, allow_http: bool) -> None:
    """Refuse what is no endpoint; the messages leave out what may be a secret."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        message = "endpoint_url must be a URL such as https://host:port"
        raise InvalidInputError(message, ErrorKind.CANNOT_PARSE_URL)
    if parts.username or parts.password or parts.query or parts.fragment:
        message = (
            "endpoint_url must not hold user names, passwords or a query:"
            " give credentials by their own arguments"
        )
        raise InvalidInputError(message, ErrorKind.CANNOT_PARSE_URL)
    if parts.scheme == "http" and not allow_http:
        message = (
            f"endpoint_url {url!r} is not encrypted: use https, or pass allow_http=True"
            " where the network is trusted"
        )
        raise InvalidInputError(message, ErrorKind.STORAGE_CONFIG)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; None waits for ever."""

    connect: float | None
    read: float | None
    attempt: float | None

    @classmethod
    def of(cls, access: S3Access, settings: StorageSettings) -> Timeouts:
        """Settings go before ``network_stream_timeout_seconds``."""
        timeouts = settings.timeouts or StorageTimeoutSettings()
        connect, read = timeouts.connect_timeout_ms, timeouts.read_timeout_ms
        attempt = timeouts.operation_attempt_timeout_ms
        stalled = access.network_stream_timeout_seconds
        return cls(
            connect=_DEFAULT_CONNECT_TIMEOUT if connect is None else connect / 1000,
            read=(stalled or None) if read is None else read / 1000,
            attempt=None if attempt is None else attempt / 1000,
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """How objects are read and written."""

    retries: RetryPolicy
    classes: StorageClasses
    timeouts: Timeouts
    use_metadata: bool
    parallel_pieces: int
    piece_size: int
    multipart_from: int

    @classmethod
    def of(cls, access: S3Access, settings: StorageSettings | None) -> Usage:
        filled = filled_settings(settings)
        assert filled.concurrency is not None
        assert filled.concurrency.max_concurrent_requests_for_object is not None
        assert filled.concurrency.ideal_concurrent_request_size is not None
        assert filled.minimum_size_for_multipart_upload is not None
        return cls(
            retries=RetryPolicy.of(filled),
            classes=StorageClasses.of(filled),
            timeouts=Timeouts.of(access, filled),
            use_metadata=filled.unsafe_use_metadata is not False,
            parallel_pieces=filled.concurrency.max_concurrent_requests_for_object,
            piece_size=filled.concurrency.ideal_concurrent_request_size,
            multipart_from=filled.minimum_size_for_multipart_upload,
        )

    def part_size(self, size: int) -> int:
        """Bytes of each part of an upload: what is asked for, within what S3 allows."""
        return max(self.piece_size, _SMALLEST_PART, -(-size // _MOST_PARTS))


def filled_settings(settings: StorageSettings | None) -> StorageSettings:
    """A copy of the settings in which the defaults of S3 fill what is unset."""
    return overlay(default_storage_settings(), settings or StorageSettings(), deep=True)
