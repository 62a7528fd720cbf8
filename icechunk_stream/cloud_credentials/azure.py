"""Credentials of Azure Blob Storage, with the reference library's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from icechunk_stream.cloud_credentials.checks import check_kinds, check_one

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


class AzureRefreshableCredential:
    """One of ``AccessKey``, ``SasToken`` and ``BearerToken``, each with an end."""

    AccessKey: ClassVar[type[AzureExpiringAccessKey]]
    SasToken: ClassVar[type[AzureExpiringSasToken]]
    BearerToken: ClassVar[type[AzureExpiringBearerToken]]


@dataclass(frozen=True, slots=True)
class AzureExpiringAccessKey(AzureRefreshableCredential):
    """An account's key."""

    key: str = field(repr=False)
    expires_after: datetime | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class AzureExpiringSasToken(AzureRefreshableCredential):
    """A shared access signature."""

    token: str = field(repr=False)
    expires_after: datetime | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class AzureExpiringBearerToken(AzureRefreshableCredential):
    """A bearer token."""

    bearer: str = field(repr=False)
    expires_after: datetime | None = field(default=None, kw_only=True)


AzureRefreshableCredential.AccessKey = AzureExpiringAccessKey
AzureRefreshableCredential.SasToken = AzureExpiringSasToken
AzureRefreshableCredential.BearerToken = AzureExpiringBearerToken

AnyAzureRefreshableCredential: TypeAlias = (
    AzureExpiringAccessKey | AzureExpiringSasToken | AzureExpiringBearerToken
)


class AzureStaticCredentials:
    """One of ``AccessKey``, ``SasToken`` and ``BearerToken``."""

    AccessKey: ClassVar[type[AzureAccessKey]]
    SasToken: ClassVar[type[AzureSasToken]]
    BearerToken: ClassVar[type[AzureBearerToken]]


@dataclass(frozen=True, slots=True)
class AzureAccessKey(AzureStaticCredentials):
    """An account's key."""

    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AzureSasToken(AzureStaticCredentials):
    """A shared access signature."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AzureBearerToken(AzureStaticCredentials):
    """A fixed bearer token."""

    token: str = field(repr=False)


AzureStaticCredentials.AccessKey = AzureAccessKey
AzureStaticCredentials.SasToken = AzureSasToken
AzureStaticCredentials.BearerToken = AzureBearerToken

AnyAzureStaticCredential: TypeAlias = AzureAccessKey | AzureSasToken | AzureBearerToken


class AzureCredentials:
    """One of ``FromEnv``, ``Anonymous``, ``Static`` and ``Refreshable``."""

    FromEnv: ClassVar[type[AzureFromEnv]]
    Anonymous: ClassVar[type[AzureAnonymous]]
    Static: ClassVar[type[AzureStatic]]
    Refreshable: ClassVar[type[AzureRefreshable]]


@dataclass(frozen=True, slots=True)
class AzureFromEnv(AzureCredentials):
    """The environment's: variables, workload identity, managed identity."""


@dataclass(frozen=True, slots=True)
class AzureAnonymous(AzureCredentials):
    """Requests are not signed."""


@dataclass(frozen=True, slots=True)
class AzureStatic(AzureCredentials):
    """Fixed credentials."""

    credentials: AnyAzureStaticCredential


@dataclass(frozen=True, slots=True)
class AzureRefreshable(AzureCredentials):
    """An importable function that gives a credential, called where it is needed."""

    get_credentials: Callable[[], AnyAzureRefreshableCredential]
    current: AnyAzureRefreshableCredential | None = None


AzureCredentials.FromEnv = AzureFromEnv
AzureCredentials.Anonymous = AzureAnonymous
AzureCredentials.Static = AzureStatic
AzureCredentials.Refreshable = AzureRefreshable

AnyAzureCredential: TypeAlias = AzureFromEnv | AzureAnonymous | AzureStatic | AzureRefreshable


def azure_static_credentials(
    *,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
) -> AnyAzureStaticCredential:
    """Fixed credentials of Azure, of exactly one kind."""
    check_one("azure_static_credentials", (access_key, sas_token, bearer_token))
    if access_key is not None:
        return AzureAccessKey(access_key)
    if sas_token is not None:
        return AzureSasToken(sas_token)
    assert bearer_token is not None
    return AzureBearerToken(bearer_token)


def azure_refreshable_credentials(
    get_credentials: Callable[[], AnyAzureRefreshableCredential],
    scatter_initial_credentials: bool = False,
) -> AzureRefreshable:
    """An importable function that gives a credential; pickles carry its first one if asked."""
    current = get_credentials() if scatter_initial_credentials else None
    return AzureRefreshable(get_credentials, current)


def azure_anonymous_credentials() -> AzureAnonymous:
    """Requests are not signed."""
    return AzureAnonymous()


def azure_from_env_credentials() -> AzureFromEnv:
    """The environment's: variables, workload identity, managed identity."""
    return AzureFromEnv()


def azure_credentials(  # noqa: PLR0913 - the reference library's signature
    *,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    get_credentials: Callable[[], AnyAzureRefreshableCredential] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyAzureCredential:
    """Credentials of Azure by what is given; the environment's where nothing is."""
    options = {"access_key": access_key, "sas_token": sas_token, "bearer_token": bearer_token}
    static = {name: value for name, value in options.items() if value is not None}
    check_kinds("azure_credentials", bool(static), anonymous, from_env, get_credentials)
    if get_credentials is not None:
        return azure_refreshable_credentials(get_credentials, scatter_initial_credentials)
    if anonymous:
        return AzureAnonymous()
    return AzureStatic(azure_static_credentials(**static)) if static else AzureFromEnv()
