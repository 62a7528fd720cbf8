"""The botocore client of one process: credentials, time-outs, headers, no retries of its own."""

from __future__ import annotations

from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol, assert_never
from urllib.parse import urlsplit

from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import CredentialProvider, CredentialResolver, Credentials
from botocore.handlers import add_expect_header, convert_body_to_file_like_object
from botocore.session import Session

from icechunk_stream.credentials import S3Anonymous, S3FromEnv, S3Refreshable, S3Static
from icechunk_stream.storage.s3_credentials import KeyRing, S3Withheld, withheld
from icechunk_stream.storage.s3_logs import hide_secrets_in_logs
from icechunk_stream.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from botocore.credentials import ReadOnlyCredentials

    from icechunk_stream.storage.s3_credentials import S3Secret
    from icechunk_stream.storage.s3_settings import S3Access, Timeouts

USER_AGENT = f"icechunk-stream/{VERSION}"

_READS = frozenset({"GetObject", "HeadObject", "ListObjectsV2"})
_SPARE_CONNECTIONS = 16
_PROBE_KEY = "k"
_NO_LIMIT = 7 * 24 * 3600


class S3Session:
    """A session of one process, with its client; threads share both."""

    def __init__(
        self, access: S3Access, secret: S3Secret, timeouts: Timeouts, concurrency: int
    ) -> None:
        self.access = access
        self.timeouts = timeouts
        self.anonymous = isinstance(secret, S3Anonymous)
        self._session = _session(secret)
        self._session.user_agent_extra = USER_AGENT
        hide_secrets_in_logs([*_values(secret), *_header_values(access)])
        self.client = self._create_client(self._config(concurrency))
        self._prepare(self.client)

    def frozen_key(self) -> ReadOnlyCredentials | None:
        """The key that a request of now is signed with; None where there is none."""
        credentials = None if self.anonymous else self._session.get_credentials()
        return None if credentials is None else credentials.get_frozen_credentials()

    def ca_bundle(self) -> str | None:
        """A file of certificates to trust, where the ambient configuration names one."""
        bundle = self._session.get_config_variable("ca_bundle")
        return bundle if isinstance(bundle, str) else None

    def region(self) -> str:
        return str(self.client.meta.region_name or "us-east-1")

    def endpoint(self) -> str:
        """The URL of the server."""
        return str(self.client.meta.endpoint_url)

    def object_base(self, bucket: str) -> str:
        """The URL, without a trailing slash, below which the objects of a bucket are.

        For a session that is being made: no other request may use its client meanwhile.
        """
        with self._stopping_requests():
            try:
                self.client.head_object(Bucket=bucket, Key=_PROBE_KEY)
            except _StoppedError as stopped:
                url = urlsplit(stopped.url)
                return f"{url.scheme}://{url.netloc}{url.path.removesuffix(f'/{_PROBE_KEY}')}"
        raise AssertionError("botocore sends nothing without asking its handlers")

    @contextmanager
    def _stopping_requests(self) -> Iterator[None]:
        """Have requests made ready, without a signature, and not sent."""
        events = self.client.meta.events
        # A second client would need its own 10 ms, in each process that opens a repository.
        handlers = {"choose-signer.s3": _choose_none, "before-send.s3": _stop}
        for event, handler in handlers.items():
            events.register_first(event, handler)
        try:
            yield
        finally:
            for event, handler in handlers.items():
                events.unregister(event, handler)

    def _config(self, concurrency: int) -> Config:
        options: dict[str, Any] = {
            "connect_timeout": self.timeouts.connect or _NO_LIMIT,
            "read_timeout": _shortest(self.timeouts.read, self.timeouts.attempt),
            "max_pool_connections": concurrency + _SPARE_CONNECTIONS,
            # Retries are this library's: a conditional write must not be sent twice.
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
            "defaults_mode": "legacy",
            "tcp_keepalive": True,
        }
        if self.anonymous:
            options["signature_version"] = UNSIGNED
        style = _addressing(self.access)
        if style is not None:
            options["s3"] = {"addressing_style": style}
        return Config(**options)

    def _create_client(self, config: Config) -> Any:  # noqa: ANN401 - botocore has no types
        return self._session.create_client(
            "s3",
            region_name=self.access.region,
            endpoint_url=self.access.endpoint_url,
            config=config,
        )

    def _prepare(self, client: Any) -> None:  # noqa: ANN401
        """Hooks that run for each request."""
        events = client.meta.events
        # Waiting for "100 Continue" would make each write two round trips.
        events.unregister("before-call.s3", add_expect_header)
        # A body that is a file goes out in small blocks; it would be there for retries.
        for operation in ("PutObject", "UploadPart"):
            name = f"before-parameter-build.s3.{operation}"
            events.unregister(name, convert_body_to_file_like_object)
        if self.access.read_headers or self.access.write_headers:
            events.register("before-call.s3", _HeaderAdder(self.access))


def _addressing(access: S3Access) -> str | None:
    """Where the bucket stands in URLs; None leaves it to botocore, which knows Amazon's servers."""
    if access.force_path_style:
        return "path"
    host = None if access.endpoint_url is None else urlsplit(access.endpoint_url).hostname
    if host is None:
        return None
    return "path" if host == "localhost" or _is_address(host) else "virtual"


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class _StoppedError(Exception):
    """A request was made ready, and is not sent."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url


def _choose_none(**_: object) -> Any:  # noqa: ANN401 - botocore has no types
    return UNSIGNED


def _stop(request: Any, **_: object) -> None:  # noqa: ANN401
    raise _StoppedError(request.url)


class _HeaderAdder:
    """A handler; botocore logs the representations of handlers, where no value may be."""

    def __init__(self, access: S3Access) -> None:
        self._access = access

    def __call__(
        self, model: _Operation, params: Mapping[str, dict[str, str]], **_: object
    ) -> None:
        is_read = model.name in _READS
        headers = self._access.read_headers if is_read else self._access.write_headers
        params["headers"].update(headers)


class _Operation(Protocol):
    name: str


def _values(secret: S3Secret) -> list[str]:
    if not isinstance(secret, S3Static):
        return []
    key = secret.credentials
    return [key.access_key_id, key.secret_access_key, key.session_token or ""]


def _header_values(access: S3Access) -> list[str]:
    return [value for _, value in (*access.read_headers, *access.write_headers)]


def _shortest(*limits: float | None) -> float:
    return min((limit for limit in limits if limit is not None), default=_NO_LIMIT)


def _session(secret: S3Secret) -> Session:
    match secret:
        case S3Static(key):
            session = Session()
            session.set_credentials(key.access_key_id, key.secret_access_key, key.session_token)
            return session
        case S3Refreshable():
            session = Session()
            provider = _RingProvider(KeyRing(secret))
            session.register_component("credential_provider", CredentialResolver([provider]))
            return session
        case S3FromEnv(profile):
            return Session(profile=profile)
        case S3Anonymous():
            return Session()
        case S3Withheld():
            raise withheld()
        case _:
            assert_never(secret)


class _RingProvider(CredentialProvider):  # type: ignore[misc] # botocore has no types
    METHOD = "icechunk-refreshable"

    def __init__(self, ring: KeyRing) -> None:
        super().__init__()
        self._ring = ring

    def load(self) -> Credentials:
        return _RingCredentials(self._ring)


class _RingCredentials(Credentials):  # type: ignore[misc]
    """botocore asks for the frozen credentials once for each request that it signs."""

    def __init__(self, ring: KeyRing) -> None:
        key = ring.current()
        super().__init__(key.access_key_id, key.secret_access_key, key.session_token)
        self._ring = ring

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        key = self._ring.current()
        return Credentials(
            key.access_key_id, key.secret_access_key, key.session_token
        ).get_frozen_credentials()
