"""Credentials of object stores, with the reference library's names.

Their representation never shows a secret. Pickles of repositories and sessions leave static
credentials out unless that was asked for (``Authorization``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from icechunk_stream.errors import ErrorKind, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class S3StaticCredentials:
    """An access key of S3."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_after: datetime | None = None


class S3Credentials:
    """One of ``FromEnv``, ``Anonymous``, ``Static`` and ``Refreshable``."""

    FromEnv: ClassVar[type[S3FromEnv]]
    Anonymous: ClassVar[type[S3Anonymous]]
    Static: ClassVar[type[S3Static]]
    Refreshable: ClassVar[type[S3Refreshable]]


@dataclass(frozen=True, slots=True)
class S3FromEnv(S3Credentials):
    """The ambient chain: environment, profile (that of the environment, or this one), instance."""

    profile: str | None = None


@dataclass(frozen=True, slots=True)
class S3Anonymous(S3Credentials):
    """Requests are not signed."""


@dataclass(frozen=True, slots=True)
class S3Static(S3Credentials):
    """A fixed access key."""

    credentials: S3StaticCredentials


@dataclass(frozen=True, slots=True)
class S3Refreshable(S3Credentials):
    """An importable function that gives an access key, called where it is needed."""

    get_credentials: Callable[[], S3StaticCredentials]
    current: S3StaticCredentials | None = None


S3Credentials.FromEnv = S3FromEnv
S3Credentials.Anonymous = S3Anonymous
S3Credentials.Static = S3Static
S3Credentials.Refreshable = S3Refreshable


class Credentials:
    """Sentinels for containers that need no authentication."""

    LocalFileSystemAccess: ClassVar[type[LocalFileSystemAccess]]
    HttpAccess: ClassVar[type[HttpAccess]]


@dataclass(frozen=True, slots=True)
class LocalFileSystemAccess(Credentials):
    """Files below the container's prefix may be read."""


@dataclass(frozen=True, slots=True)
class HttpAccess(Credentials):
    """URLs below the container's prefix may be read, without authentication."""


Credentials.LocalFileSystemAccess = LocalFileSystemAccess
Credentials.HttpAccess = HttpAccess

AnyS3Credential = S3FromEnv | S3Anonymous | S3Static | S3Refreshable
AnyCredential = AnyS3Credential | LocalFileSystemAccess | HttpAccess


def s3_static_credentials(
    *,
    access_key_id: str,
    secret_access_key: str,
    session_token: str | None = None,
    expires_after: datetime | None = None,
) -> S3Static:
    """A fixed access key."""
    key = S3StaticCredentials(access_key_id, secret_access_key, session_token, expires_after)
    return S3Static(key)


def s3_anonymous_credentials() -> S3Anonymous:
    """Requests are not signed."""
    return S3Anonymous()


def s3_from_env_credentials(profile: str | None = None) -> S3FromEnv:
    """The ambient chain: environment, profile (that of the environment, or this one), instance."""
    return S3FromEnv(profile)


def s3_refreshable_credentials(
    get_credentials: Callable[[], S3StaticCredentials],
    scatter_initial_credentials: bool = False,
) -> S3Refreshable:
    """An importable function that gives an access key; pickles carry its first key if asked."""
    current = get_credentials() if scatter_initial_credentials else None
    return S3Refreshable(get_credentials, current)


def s3_credentials(
    *,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
) -> AnyS3Credential:
    """Credentials of S3 by what is given; the ambient chain where nothing is."""
    static = access_key_id is not None or secret_access_key is not None
    given = [static, bool(anonymous), bool(from_env), get_credentials is not None]
    if sum(given) > 1:
        message = "give only one of an access key, anonymous, from_env and get_credentials"
        raise InvalidInputError(message, ErrorKind.INVALID_CREDENTIALS)
    if get_credentials is not None:
        return s3_refreshable_credentials(get_credentials, scatter_initial_credentials)
    if anonymous:
        return S3Anonymous()
    if not static:
        return S3FromEnv()
    if access_key_id is None or secret_access_key is None:
        message = "an access key needs both access_key_id and secret_access_key"
        raise InvalidInputError(message, ErrorKind.INVALID_CREDENTIALS)
    return s3_static_credentials(
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        session_token=session_token,
        expires_after=expires_after,
    )


def containers_credentials(
    m: Mapping[str, AnyCredential | None],
) -> dict[str, AnyCredential | None]:
    """The credentials to use below each container's url_prefix."""
    return dict(m)


@dataclass(frozen=True, slots=True)
class Authorization:
    """Containers whose chunks may be read, by url_prefix, and with which credentials."""

    prefixes: Mapping[str, AnyCredential | None] = field(default_factory=dict, repr=False)
    pickle_static: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        kept = {
            prefix: credential
            for prefix, credential in self.prefixes.items()
            if self.pickle_static or not _holds_secret(credential)
        }
        return (Authorization, (kept, self.pickle_static))


def _holds_secret(credential: AnyCredential | None) -> bool:
    match credential:
        case S3Static():
            return True
        case S3Refreshable(current=current):
            return current is not None
        case _:
            return False
