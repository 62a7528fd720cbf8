"""Credentials of Google Cloud Storage, with the reference library's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from icechunk_stream.cloud_credentials.checks import check_kinds, check_one

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class GcsBearerCredential:
    """A bearer token of Google Cloud, and when it ends."""

    bearer: str = field(repr=False)
    expires_after: datetime | None = field(default=None, kw_only=True)


class GcsStaticCredentials:
    """One of ``ServiceAccount``, ``ServiceAccountKey``, ``ApplicationCredentials``, ..."""

    ServiceAccount: ClassVar[type[GcsServiceAccount]]
    ServiceAccountKey: ClassVar[type[GcsServiceAccountKey]]
    ApplicationCredentials: ClassVar[type[GcsApplicationCredentials]]
    BearerToken: ClassVar[type[GcsBearerToken]]


@dataclass(frozen=True, slots=True)
class GcsServiceAccount(GcsStaticCredentials):
    """A JSON file of a service account, present in each process that opens the storage."""

    path: str


@dataclass(frozen=True, slots=True)
class GcsServiceAccountKey(GcsStaticCredentials):
    """The JSON of a service account's key."""

    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class GcsApplicationCredentials(GcsStaticCredentials):
    """A file of application default credentials, present in each process."""

    path: str


@dataclass(frozen=True, slots=True)
class GcsBearerToken(GcsStaticCredentials):
    """A fixed bearer token."""

    token: str = field(repr=False)


GcsStaticCredentials.ServiceAccount = GcsServiceAccount
GcsStaticCredentials.ServiceAccountKey = GcsServiceAccountKey
GcsStaticCredentials.ApplicationCredentials = GcsApplicationCredentials
GcsStaticCredentials.BearerToken = GcsBearerToken

AnyGcsStaticCredential: TypeAlias = (
    GcsServiceAccount | GcsServiceAccountKey | GcsApplicationCredentials | GcsBearerToken
)


class GcsCredentials:
    """One of ``FromEnv``, ``Anonymous``, ``Static`` and ``Refreshable``."""

    FromEnv: ClassVar[type[GcsFromEnv]]
    Anonymous: ClassVar[type[GcsAnonymous]]
    Static: ClassVar[type[GcsStatic]]
    Refreshable: ClassVar[type[GcsRefreshable]]


@dataclass(frozen=True, slots=True)
class GcsFromEnv(GcsCredentials):
    """The environment's: variables, application default credentials, instance."""


@dataclass(frozen=True, slots=True)
class GcsAnonymous(GcsCredentials):
    """Requests are not signed."""


@dataclass(frozen=True, slots=True)
class GcsStatic(GcsCredentials):
    """Fixed credentials."""

    credentials: AnyGcsStaticCredential


@dataclass(frozen=True, slots=True)
class GcsRefreshable(GcsCredentials):
    """An importable function that gives a token, called where it is needed."""

    get_credentials: Callable[[], GcsBearerCredential]
    current: GcsBearerCredential | None = None


GcsCredentials.FromEnv = GcsFromEnv
GcsCredentials.Anonymous = GcsAnonymous
GcsCredentials.Static = GcsStatic
GcsCredentials.Refreshable = GcsRefreshable

AnyGcsCredential: TypeAlias = GcsFromEnv | GcsAnonymous | GcsStatic | GcsRefreshable


def gcs_static_credentials(
    *,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
) -> AnyGcsStaticCredential:
    """Fixed credentials of Google Cloud Storage, of exactly one kind."""
    options = (service_account_file, service_account_key, application_credentials, bearer_token)
    check_one("gcs_static_credentials", options)
    if service_account_file is not None:
        return GcsServiceAccount(service_account_file)
    if service_account_key is not None:
        return GcsServiceAccountKey(service_account_key)
    if application_credentials is not None:
        return GcsApplicationCredentials(application_credentials)
    assert bearer_token is not None
    return GcsBearerToken(bearer_token)


def gcs_refreshable_credentials(
    get_credentials: Callable[[], GcsBearerCredential],
    scatter_initial_credentials: bool = False,
) -> GcsRefreshable:
    """An importable function that gives a token; pickles carry its first one if asked."""
    current = get_credentials() if scatter_initial_credentials else None
    return GcsRefreshable(get_credentials, current)


def gcs_anonymous_credentials() -> GcsAnonymous:
    """Requests are not signed."""
    return GcsAnonymous()


def gcs_from_env_credentials() -> GcsFromEnv:
    """The environment's: variables, application default credentials, instance."""
    return GcsFromEnv()


def gcs_credentials(  # noqa: PLR0913 - the reference library's signature
    *,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    get_credentials: Callable[[], GcsBearerCredential] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyGcsCredential:
    """Credentials of Google Cloud Storage by what is given; the environment's else."""
    options = {
        "service_account_file": service_account_file,
        "service_account_key": service_account_key,
        "application_credentials": application_credentials,
        "bearer_token": bearer_token,
    }
    static = {name: value for name, value in options.items() if value is not None}
    check_kinds("gcs_credentials", bool(static), anonymous, from_env, get_credentials)
    if get_credentials is not None:
        return gcs_refreshable_credentials(get_credentials, scatter_initial_credentials)
    if anonymous:
        return GcsAnonymous()
    return GcsStatic(gcs_static_credentials(**static)) if static else GcsFromEnv()
