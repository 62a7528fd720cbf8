"""How a store reached through obstore is opened, and what its protocol can do."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

from icechunk_stream.config.redact import redact_options
from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.storage.values import Version
from icechunk_stream.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from icechunk_stream.storage.cloud_secrets import Refreshing
    from icechunk_stream.storage.s3_settings import Usage

Options = tuple[tuple[str, str], ...]
Headers = Options

T = TypeVar("T")

_NO_LIMIT = timedelta(days=7)
_OPTION = re.compile(r"(?:Configuration key: '|Invalid key: |Duplicate key )(\w+)")

_CLIENT_KEYS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between the protocols.

    Args:
        title: What errors call the store.
        permissions: What its credentials must allow.
        by_generation: Versions are generations of an object; else they are ETags.
        reads_suffixes: Whether the last bytes of an object can be asked for.
        deleted_at_once: Objects of one request to delete.
        writes: Whether anything can be written or listed.
    """

    title: str
    permissions: str
    by_generation: bool = False
    reads_suffixes: bool = True
    deleted_at_once: int = 100
    writes: bool = True

    def version(self, meta: Mapping[str, Any]) -> Version:
        """The version that an answer tells; its token is empty where it tells none."""
        if self.by_generation:
            return Version(meta["version"] or "")
        if meta["e_tag"] or "last_modified" not in meta:
            return Version(meta["e_tag"] or "")
        return Version(f"{meta['last_modified'].isoformat()}/{meta['size']}")

    def mode(self, expected: Version | None) -> Any:  # noqa: ANN401 - obstore's classes have no stubs
        """The condition of a write in obstore's words."""
        if expected is None:
            return "create"
        return {"version" if self.by_generation else "e_tag": expected.token}

    def has_etag(self, version: Version | None) -> bool:
        """Whether a read can be conditional on a version."""
        return version is not None and not self.by_generation and version.token.endswith('"')


@dataclass(frozen=True, slots=True)
class Opened:
    """The stores of one process: they differ in headers and retries. ``provider`` may be None."""

    library: ModuleType
    reader: Any
    writer: Any
    lister: Any
    provider: Refreshing | None = None


class StoreSpec(ABC):
    """Where a store is, how to reach it, and with which credentials; hashable."""

    __slots__ = ()

    @property
    @abstractmethod
    def dialect(self) -> Dialect: ...

    @abstractmethod
    def open(self, library: ModuleType, usage: Usage) -> Opened:
        """Make obstore's stores; no request is sent."""

    @abstractmethod
    def without_secrets(self) -> Self:
        """What a pickle may hold."""

    @abstractmethod
    def describe(self) -> str:
        """Arguments for a representation, without secrets."""


@dataclass(frozen=True, slots=True)
class Config:
    """Options of a caller: of the HTTP client, and of the store."""

    client: Options
    store: Options

    @classmethod
    def split(cls, options: Mapping[str, str], *prefixes: str) -> Config:
        """Tell options apart; ``prefixes`` are those that the reference library takes too."""
        client, store = {}, {}
        for key, value in options.items():
            plain = key.lower()
            for prefix in prefixes:
                plain = plain.removeprefix(prefix)
            if plain in _CLIENT_KEYS:
                client[plain] = value
            else:
                store[key.lower()] = value
        return cls(tuple(sorted(client.items())), tuple(sorted(store.items())))

    @property
    def allows_http(self) -> bool:
        return dict(self.client).get("allow_http", "false").lower() in {"1", "true", "on", "yes"}

    def without_secrets(self) -> Config:
        return Config(harmless(self.client), harmless(self.store))

    def value(self, *names: str) -> str | None:
        """The first of some synonymous store options that is given."""
        given = dict(self.store)
        return next((given[name] for name in names if name in given), None)

    def client_options(self, usage: Usage, headers: Headers = ()) -> dict[str, Any]:
        timeouts = usage.timeouts
        options: dict[str, Any] = {
            "connect_timeout": _duration(timeouts.connect),
            "read_timeout": _duration(timeouts.read),
            "timeout": _duration(timeouts.attempt),
            "user_agent": f"icechunk-stream/{VERSION}",
        }
        if headers:
            options["default_headers"] = dict(headers)
        return options | dict(self.client)


def check_endpoint(url: str, config: Config, option: str) -> None:
    """Refuse what is no address of a server; messages leave out what may be a secret."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        message = f"{option} must be a URL such as https://host"
        raise InvalidInputError(message, ErrorKind.CANNOT_PARSE_URL)
    if parts.username or parts.password:
        message = f"{option} must not hold user names or passwords: give credentials apart"
        raise InvalidInputError(message, ErrorKind.CANNOT_PARSE_URL)
    if parts.scheme == "http" and not config.allows_http:
        message = (
            f"{option} is not encrypted: use https, or give the option allow_http='true' where the"
            " network is trusted"
        )
        raise InvalidInputError(message, ErrorKind.STORAGE_CONFIG)


def no_retries() -> dict[str, Any]:
    """Retries are this library's: a conditional write must not be sent twice."""
    return {"max_retries": 0}


def page_retries(usage: Usage) -> dict[str, Any]:
    """Only obstore can ask for a page of a listing again."""
    policy = usage.retries
    return {
        "max_retries": policy.max_tries - 1,
        "retry_timeout": timedelta(seconds=policy.budget),
        "backoff": {
            "init_backoff": timedelta(seconds=policy.initial_backoff),
            "max_backoff": timedelta(seconds=policy.max_backoff),
            "base": 2,
        },
    }


def harmless(options: Options) -> Options:
    """Those whose names do not tell of a secret."""
    kept = redact_options(dict(options))
    return tuple((name, value) for name, value in options if kept[name] == value)


def _duration(seconds: float | None) -> timedelta:
    return _NO_LIMIT if seconds is None else timedelta(seconds=seconds)


def open_store(library: ModuleType, where: str, make: Callable[[], T]) -> T:
    """Make a store, or say which option is wrong; its value may be a secret."""
    try:
        return make()
    except (library.exceptions.BaseError, OSError, ValueError, TypeError) as error:
        found = _OPTION.search(str(error))
        what = f"the option {found[1]!r}" if found else _cause(str(error))
    # Outside of the handler, so that the error does not carry obstore's own.
    message = f"{where} cannot be opened: check {what}"
    raise InvalidInputError(message, ErrorKind.STORAGE_CONFIG)


def _cause(said: str) -> str:
    """What an error is about, in words of our own."""
    causes = {
        "access key": "the access key, which must be base64",
        "service account": "the service account, its file and its JSON",
        "credential": "the credentials",
        "pem": "the private key of the service account",
        "sas": "the shared access signature",
        "duration": "the time-outs among the options",
        "url": "the addresses among the options",
        "bucket": "the name of the bucket",
    }
    return next((text for word, text in causes.items() if word in said.lower()), "its options")
