"""Objects in a container of Azure Blob Storage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from icechunk_stream.cloud_credentials import (
    AzureAccessKey,
    AzureAnonymous,
    AzureBearerToken,
    AzureFromEnv,
    AzureRefreshable,
    AzureSasToken,
    AzureStatic,
    azure_credentials,
)
from icechunk_stream.config.redact import redact_url
from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.storage.cloud_secrets import (
    Refreshing,
    Withheld,
    spell_azure,
    without_azure_secrets,
)
from icechunk_stream.storage.object_store import ObjectStoreStorage
from icechunk_stream.storage.obstore_stores import (
    Config,
    Dialect,
    Opened,
    StoreSpec,
    check_endpoint,
    no_retries,
    open_store,
    page_retries,
)
from icechunk_stream.storage.s3_credentials import withheld

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from icechunk_stream.cloud_credentials import (
        AnyAzureCredential,
        AnyAzureRefreshableCredential,
        AnyAzureStaticCredential,
    )
    from icechunk_stream.storage.s3_settings import Usage

_DIALECT = Dialect(
    title="Azure",
    permissions="the role Storage Blob Data Contributor, or a signature that may read, add, create,"
    " write, delete and list",
    reads_suffixes=False,
    deleted_at_once=256,
)
_ENDPOINTS = ("azure_storage_endpoint", "azure_endpoint", "endpoint")
_EMULATORS = ("azure_storage_use_emulator", "use_emulator", "azure_use_fabric_endpoint")


@dataclass(frozen=True, slots=True)
class AzureSpec(StoreSpec):
    """A container of an account."""

    account: str
    container: str
    secret: AnyAzureCredential | Withheld
    config: Config = field(repr=False)

    @property
    def dialect(self) -> Dialect:
        return _DIALECT

    def open(self, library: ModuleType, usage: Usage) -> Opened:
        provider = None
        if isinstance(self.secret, AzureRefreshable):
            provider = Refreshing(self.secret, spell_azure)
        make = partial(
            library._store.AzureStore,  # noqa: SLF001 - where obstore keeps its classes
            self.container,
            config=self._options(),
            client_options=self.config.client_options(usage),
            credential_provider=provider,
        )
        plain, paging = no_retries(), page_retries(usage)
        store = open_store(library, repr(self), partial(make, retry_config=plain))
        lister = open_store(library, repr(self), partial(make, retry_config=paging))
        return Opened(library, store, store, lister, provider)

    def without_secrets(self) -> AzureSpec:
        kept = replace(self, config=self.config.without_secrets())
        secret = without_azure_secrets(self.secret) if kept == self else Withheld()
        return replace(kept, secret=secret)

    def describe(self) -> str:
        shown = [repr(self.account), repr(self.container)]
        endpoint = self.config.value(*_ENDPOINTS)
        if endpoint is not None:
            shown.append(f"endpoint={redact_url(endpoint)!r}")
        return ", ".join(shown)

    def __repr__(self) -> str:
        return f"AzureSpec({self.describe()})"

    def _options(self) -> dict[str, Any]:
        """The store's options; obstore looks into the environment for what is not given."""
        options: dict[str, Any] = {"account_name": self.account, **dict(self.config.store)}
        emulated = self.config.value(*_ENDPOINTS, *_EMULATORS) is not None
        if not emulated and not isinstance(self.secret, AzureFromEnv):
            options["endpoint"] = f"https://{self.account}.blob.core.windows.net"
        return options | _secret_options(self.secret)


def _secret_options(secret: AnyAzureCredential | Withheld) -> dict[str, Any]:
    match secret:
        case AzureStatic(credentials):
            return _static_options(credentials)
        case AzureAnonymous():
            return {"skip_signature": True}
        case AzureRefreshable() | AzureFromEnv():
            return {}
        case Withheld():
            raise withheld()
        case _:
            assert_never(secret)


def _static_options(credentials: AnyAzureStaticCredential) -> dict[str, Any]:
    match credentials:
        case AzureAccessKey(key):
            return {"account_key": key, "credential_type": "access_key"}
        case AzureSasToken(token):
            return {"sas_key": token.removeprefix("?"), "credential_type": "sas_token"}
        case AzureBearerToken(token):
            return {"token": token, "credential_type": "bearer_token"}
        case _:
            assert_never(credentials)


def azure_storage(  # noqa: PLR0913 - the reference library's signature
    *,
    account: str,
    container: str,
    prefix: str,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    config: dict[str, str] | None = None,
    get_credentials: Callable[[], AnyAzureRefreshableCredential] | None = None,
    scatter_initial_credentials: bool = False,
) -> ObjectStoreStorage:
    """A storage in a container of Azure Blob Storage.

    Args:
        account: The storage account.
        container: The container.
        prefix: What the names of all objects begin with.
        access_key: A key of the account.
        sas_token: A shared access signature.
        bearer_token: A bearer token.
        from_env: Credentials of the environment, which is the default.
        anonymous: Requests are not signed.
        config: Options of the store and of its HTTP client, by the names of Rust's
            ``object_store``, such as ``azure_storage_endpoint`` and ``allow_http``.
        get_credentials: An importable function that gives credentials, called in each process.
        scatter_initial_credentials: Call it now; pickles made on purpose carry the answer.
    """
    credentials = azure_credentials(
        access_key=access_key,
        sas_token=sas_token,
        bearer_token=bearer_token,
        from_env=from_env,
        anonymous=anonymous,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
    )
    spec = AzureSpec(account, container, credentials, _config(config or {}))
    if not account or not container:
        raise InvalidInputError(
            "the account and the container need names", ErrorKind.STORAGE_CONFIG
        )
    return ObjectStoreStorage(spec, prefix)


def _config(options: dict[str, str]) -> Config:
    config = Config.split(options, "azure_")
    endpoint = config.value(*_ENDPOINTS)
    if endpoint is not None:
        check_endpoint(endpoint, config, "the endpoint")
    return config
