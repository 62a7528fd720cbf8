"""The rules that a virtual chunk container must meet before a configuration takes it."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote, urlsplit

from icechunk_stream.config.object_stores import (
    AzureStore,
    GcsStore,
    HttpStore,
    LocalFileSystemStore,
    S3CompatibleStore,
    S3Store,
    TigrisStore,
    VirtualChunkContainer,
)
from icechunk_stream.config.redact import redact_url
from icechunk_stream.errors import InvalidInputError

_STORES_OF_SCHEME: dict[str, tuple[type, ...]] = {
    "s3": (S3Store, S3CompatibleStore, TigrisStore),
    "tigris": (TigrisStore,),
    "gs": (GcsStore,),
    "gcs": (GcsStore,),
    "az": (AzureStore,),
    "azure": (AzureStore,),
    "abfs": (AzureStore,),
    "http": (HttpStore,),
    "https": (HttpStore,),
    "file": (LocalFileSystemStore,),
}


def validate_container(container: VirtualChunkContainer) -> None:
    """Raise ``InvalidInputError`` unless virtual chunks can be looked up through it."""
    _validate_name(container.name)
    prefix = container.url_prefix
    if not prefix.endswith("/"):
        raise _refused(prefix, "must end with '/'; add one")
    try:
        parts = urlsplit(prefix)
        port = parts.port
    except ValueError as error:
        raise _refused(prefix, f"is no URL ({error})") from None
    assert port is None or port >= 0
    _validate_store(container, parts.scheme)
    if parts.scheme == "file":
        _validate_file_path(prefix, parts.path)
    elif not parts.hostname:
        raise _refused(prefix, "must name a host or bucket after '://'")


def _validate_name(name: str | None) -> None:
    if name is not None and (not name or "/" in name):
        raise InvalidInputError(
            f"the container name {name!r} must not be empty or contain '/'; choose another"
        )


def _validate_store(container: VirtualChunkContainer, scheme: str) -> None:
    if not scheme:
        raise _refused(container.url_prefix, "must be an absolute URL, as s3://bucket/")
    if not isinstance(container.store, _STORES_OF_SCHEME.get(scheme, ())):
        store = type(container.store).__name__
        raise _refused(container.url_prefix, f"has a scheme that {store} does not serve")


def _validate_file_path(prefix: str, path: str) -> None:
    if posixpath.normpath(unquote(path) or "/").strip("/") in {"", "."}:
        raise _refused(prefix, "must name a directory below '/', as file:///data/")


def _refused(prefix: str, reason: str) -> InvalidInputError:
    return InvalidInputError(f"the container prefix {redact_url(prefix)!r} {reason}")
