"""Functions that build object store settings, with the reference library's signatures."""

from __future__ import annotations

from icechunk_stream.config.object_stores import (
    AzureStore,
    ChecksumAlgorithm,
    GcsStore,
    HttpStore,
    LocalFileSystemStore,
    S3CompatibleStore,
    S3Options,
    S3Store,
)


def local_filesystem_store(path: str) -> LocalFileSystemStore:
    """Files below ``path``."""
    return LocalFileSystemStore(path)


def http_store(
    opts: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> HttpStore:
    """An HTTP(S) server, with client options and headers that every request carries."""
    return HttpStore(opts, headers)


def s3_store(  # noqa: PLR0913, PLR0917 - the reference library's signature
    region: str | None = None,
    endpoint_url: str | None = None,
    allow_http: bool = False,
    anonymous: bool = False,
    s3_compatible: bool = False,
    force_path_style: bool = False,
    network_stream_timeout_seconds: int | None = 60,
    requester_pays: bool = False,
    checksum_algorithm: ChecksumAlgorithm | None = None,
) -> S3Store | S3CompatibleStore:
    """S3, or with ``s3_compatible`` another store that speaks its protocol."""
    options = S3Options(
        region=region,
        endpoint_url=endpoint_url,
        allow_http=allow_http,
        anonymous=anonymous,
        force_path_style=force_path_style,
        network_stream_timeout_seconds=network_stream_timeout_seconds,
        requester_pays=requester_pays,
        checksum_algorithm=checksum_algorithm,
    )
    return S3CompatibleStore(options) if s3_compatible else S3Store(options)


def gcs_store(opts: dict[str, str] | None = None) -> GcsStore:
    """Google Cloud Storage."""
    return GcsStore(opts)


def azure_store(*, account: str, config: dict[str, str] | None = None) -> AzureStore:
    """Azure Blob Storage of one account."""
    return AzureStore({"account": account, **(config or {})})
