"""Objects in a bucket of Google Cloud Storage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from icechunk_stream.cloud_credentials import (
    GcsAnonymous,
    GcsApplicationCredentials,
    GcsBearerToken,
    GcsFromEnv,
    GcsRefreshable,
    GcsServiceAccount,
    GcsServiceAccountKey,
    GcsStatic,
    gcs_credentials,
)
from icechunk_stream.config.redact import redact_url
from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.storage.cloud_secrets import (
    Refreshing,
    Withheld,
    spell_gcs,
    without_gcs_secrets,
)
from icechunk_stream.storage.object_store import ObjectStoreStorage
from icechunk_stream.storage.obstore_stores import (
    Config,
    Dialect,
    Headers,
    Opened,
    StoreSpec,
    check_endpoint,
    harmless,
    no_retries,
    open_store,
    page_retries,
)
from icechunk_stream.storage.s3_credentials import withheld

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from icechunk_stream.cloud_credentials import (
        AnyGcsCredential,
        AnyGcsStaticCredential,
        GcsBearerCredential,
    )
    from icechunk_stream.storage.s3_settings import Usage

_DIALECT = Dialect(
    title="Gcs",
    permissions="the role Storage Object User, or storage.objects.get, .create, .delete and .list",
    by_generation=True,
)
_ENDPOINTS = ("google_base_url", "base_url")
_GOOGLE = "https://storage.googleapis.com"


@dataclass(frozen=True, slots=True)
class GcsSpec(StoreSpec):
    """A bucket."""

    bucket: str
    secret: AnyGcsCredential | Withheld
    config: Config = field(repr=False)
    read_headers: Headers = field(default=(), repr=False)
    write_headers: Headers = field(default=(), repr=False)

    @property
    def dialect(self) -> Dialect:
        return _DIALECT

    def open(self, library: ModuleType, usage: Usage) -> Opened:
        provider = None
        if isinstance(self.secret, GcsRefreshable):
            provider = Refreshing(self.secret, spell_gcs)

        def store(headers: Headers, retries: dict[str, Any]) -> object:
            make = partial(
                library._store.GCSStore,  # noqa: SLF001 - where obstore keeps its classes
                self.bucket,
                config=self._options(),
                client_options=self.config.client_options(usage, headers),
                credential_provider=provider,
                retry_config=retries,
            )
            return open_store(library, repr(self), make)

        reader, writer = self.read_headers, self.write_headers
        return Opened(
            library,
            reader=store(reader, no_retries()),
            writer=store(writer, no_retries()),
            lister=store(reader, page_retries(usage)),
            provider=provider,
        )

    def without_secrets(self) -> GcsSpec:
        kept = replace(
            self,
            config=self.config.without_secrets(),
            read_headers=harmless(self.read_headers),
            write_headers=harmless(self.write_headers),
        )
        secret = without_gcs_secrets(self.secret) if kept == self else Withheld()
        return replace(kept, secret=secret)

    def describe(self) -> str:
        endpoint = self.config.value(*_ENDPOINTS)
        shown = "" if endpoint is None else f", base_url={redact_url(endpoint)!r}"
        return f"{self.bucket!r}{shown}"

    def __repr__(self) -> str:
        return f"GcsSpec({self.describe()})"

    def _options(self) -> dict[str, Any]:
        """The store's options; obstore looks into the environment for what is not given."""
        options: dict[str, Any] = dict(self.config.store)
        if self.config.value(*_ENDPOINTS) is None and not _tells_endpoint(self.secret):
            options["base_url"] = _GOOGLE
        return options | _secret_options(self.secret)


def _tells_endpoint(secret: AnyGcsCredential | Withheld) -> bool:
    """Whether the address may come along with the credentials."""
    match secret:
        case GcsFromEnv() | GcsStatic(GcsServiceAccount() | GcsServiceAccountKey()):
            return True
        case _:
            return False


def _secret_options(secret: AnyGcsCredential | Withheld) -> dict[str, Any]:
    match secret:
        case GcsStatic(credentials):
            return _static_options(credentials)
        case GcsAnonymous():
            return {"skip_signature": True}
        case GcsRefreshable() | GcsFromEnv():
            return {}
        case Withheld():
            raise withheld()
        case _:
            assert_never(secret)


def _static_options(credentials: AnyGcsStaticCredential) -> dict[str, Any]:
    match credentials:
        case GcsServiceAccount(path):
            return {"service_account": path}
        case GcsServiceAccountKey(key):
            return {"service_account_key": key}
        case GcsApplicationCredentials(path):
            return {"application_credentials": path}
        case GcsBearerToken(token):
            return {"bearer_token": token}
        case _:
            assert_never(credentials)


def gcs_storage(  # noqa: PLR0913 - the reference library's signature
    *,
    bucket: str,
    prefix: str | None,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    config: dict[str, str] | None = None,
    get_credentials: Callable[[], GcsBearerCredential] | None = None,
    scatter_initial_credentials: bool = False,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> ObjectStoreStorage:
    """A storage in a bucket of Google Cloud Storage.

    Args:
        bucket: The bucket's name.
        prefix: What the names of all objects begin with.
        service_account_file: A JSON file of a service account.
        service_account_key: The JSON of a service account's key.
        application_credentials: A file of application default credentials.
        bearer_token: A bearer token.
        anonymous: Requests are not signed.
        from_env: Credentials of the environment, which is the default.
        config: Options of the store and of its HTTP client, by the names of Rust's
            ``object_store``, such as ``google_base_url`` and ``allow_http``.
        get_credentials: An importable function that gives tokens, called in each process.
        scatter_initial_credentials: Call it now; pickles made on purpose carry the answer.
        read_headers: HTTP headers of each read.
        write_headers: HTTP headers of each write.
        headers: HTTP headers of both; those of one role go before them.
    """
    credentials = gcs_credentials(
        service_account_file=service_account_file,
        service_account_key=service_account_key,
        application_credentials=application_credentials,
        bearer_token=bearer_token,
        from_env=from_env,
        anonymous=anonymous,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
    )
    if not bucket:
        raise InvalidInputError("the bucket has no name", ErrorKind.STORAGE_CONFIG)
    both = headers or {}
    reads, writes = both | (read_headers or {}), both | (write_headers or {})
    spec = GcsSpec(
        bucket,
        credentials,
        _config(config or {}),
        tuple(sorted(reads.items())),
        tuple(sorted(writes.items())),
    )
    return ObjectStoreStorage(spec, prefix)


def _config(options: dict[str, str]) -> Config:
    config = Config.split(options, "google_")
    endpoint = config.value(*_ENDPOINTS)
    if endpoint is not None:
        check_endpoint(endpoint, config, "the base_url")
    return config
