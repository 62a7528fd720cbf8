"""Objects of a plain HTTP server, for reading."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from icechunk_stream.config.redact import redact_url
from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.storage.object_store import ObjectStoreStorage
from icechunk_stream.storage.obstore_stores import (
    Config,
    Dialect,
    Headers,
    Opened,
    StoreSpec,
    harmless,
    no_retries,
    open_store,
)
from icechunk_stream.storage.s3_credentials import withheld

if TYPE_CHECKING:
    from types import ModuleType

    from icechunk_stream.storage.s3_settings import Usage

_DIALECT = Dialect(title="Http", permissions="reading the files of the repository", writes=False)


@dataclass(frozen=True, slots=True)
class HttpSpec(StoreSpec):
    """A folder of a server."""

    url: str
    config: Config = field(repr=False)
    headers: Headers = field(default=(), repr=False)
    withheld: bool = False

    @property
    def dialect(self) -> Dialect:
        return _DIALECT

    def open(self, library: ModuleType, usage: Usage) -> Opened:
        if self.withheld:
            raise withheld()
        # Whoever names a server without encryption means it: nothing is sent there but headers.
        options = {"allow_http": True} | self.config.client_options(usage, self.headers)
        make = partial(
            library._store.HTTPStore,  # noqa: SLF001 - where obstore keeps its classes
            self.url,
            client_options=options,
            retry_config=no_retries(),
        )
        store = open_store(library, repr(self), make)
        return Opened(library, store, store, store)

    def without_secrets(self) -> HttpSpec:
        config, headers = self.config.without_secrets(), harmless(self.headers)
        kept = replace(self, config=config, headers=headers)
        return kept if kept == self else replace(kept, withheld=True)

    def describe(self) -> str:
        return repr(redact_url(self.url))

    def __repr__(self) -> str:
        return f"HttpSpec({self.describe()})"


def http_storage(
    base_url: str,
    opts: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> ObjectStoreStorage:
    """A storage for reading from a plain HTTP server, which must answer ranges.

    Args:
        base_url: The root of the repository.
        opts: Options of the HTTP client, by the names of Rust's ``object_store``, such as
            ``timeout`` and ``proxy_url``.
        headers: HTTP headers of each request, for example ``{"authorization": "Bearer ..."}``.
    """
    config = Config.split(opts or {})
    if config.store:
        message = f"an HTTP client has no option {config.store[0][0]!r}: check its spelling"
        raise InvalidInputError(message, ErrorKind.STORAGE_CONFIG)
    spec = HttpSpec(_checked(base_url), config, tuple(sorted((headers or {}).items())))
    return ObjectStoreStorage(spec)


def _checked(url: str) -> str:
    """Refuse what is no URL of a folder; messages leave out what may be a secret."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        message = "base_url must be a URL such as https://host/path"
        raise InvalidInputError(message, ErrorKind.CANNOT_PARSE_URL)
    if parts.username or parts.password or parts.query or parts.fragment:
        message = (
            "base_url must not hold user names, passwords or a query: give headers= for what the"
            " server asks for"
        )
        raise InvalidInputError(message, ErrorKind.CANNOT_PARSE_URL)
    return url
