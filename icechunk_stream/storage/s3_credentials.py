"""The access key that a request is signed with: given, called for, or left out of a pickle."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from icechunk_stream.credentials import (
    AnyS3Credential,
    S3Anonymous,
    S3FromEnv,
    S3Refreshable,
    S3Static,
    S3StaticCredentials,
)
from icechunk_stream.effects import now_micros
from icechunk_stream.errors import ErrorKind, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A key without an end is called for again, should its function be the only one to know.
_UNBOUNDED_LIFE = timedelta(minutes=15)
_LARGEST_MARGIN = timedelta(minutes=5)
_MARGIN_PART = 5


@dataclass(frozen=True, slots=True)
class S3Withheld:
    """A secret that stayed behind when its storage was pickled."""


S3Secret: TypeAlias = AnyS3Credential | S3Withheld


def now() -> datetime:
    return _EPOCH + timedelta(microseconds=now_micros())


def without_secrets(credentials: S3Secret) -> S3Secret:
    """What a pickle may hold of credentials when nobody asked for more."""
    match credentials:
        case S3Static():
            return S3Withheld()
        case S3Refreshable():
            return replace(credentials, current=None)
        case S3FromEnv() | S3Anonymous() | S3Withheld():
            return credentials


def withheld() -> StorageError:
    message = (
        "the access key, or a secret header, of this storage was left out when it was pickled:"
        " pickle storage.with_pickled_credentials() and keep the pickle secret, or give"
        " credentials that each process finds itself (from_env, get_credentials)"
    )
    return StorageError(message, ErrorKind.INVALID_CREDENTIALS)


class KeyRing:
    """The keys of a refreshable credential: called for when the last one is about to expire."""

    def __init__(self, source: S3Refreshable, now: Callable[[], datetime] = now) -> None:
        self._source = source
        self._now = now
        self._lock = threading.Lock()
        self._key: S3StaticCredentials | None = None
        self._stale_at = now()
        if source.current is not None:
            self._keep(source.current)

    def current(self) -> S3StaticCredentials:
        """A key that is valid for a while; one thread calls for it, the others wait."""
        with self._lock:
            if self._key is None or self._now() >= self._stale_at:
                self._keep(self._call())
            assert self._key is not None
            return self._key

    def _keep(self, key: S3StaticCredentials) -> None:
        now = self._now()
        ends = now + _UNBOUNDED_LIFE if key.expires_after is None else _aware(key.expires_after)
        self._key = key
        self._stale_at = ends - min(_LARGEST_MARGIN, (ends - now) / _MARGIN_PART)

    def _call(self) -> S3StaticCredentials:
        function = self._source.get_credentials
        key = _as_key(_answer(function), function)
        if key.expires_after is not None and _aware(key.expires_after) <= self._now():
            message = f"the credentials function {_name(function)} returned an expired key"
            raise StorageError(message, ErrorKind.INVALID_CREDENTIALS)
        return key


def _answer(function: Callable[[], object]) -> Any:  # noqa: ANN401
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises
        reason = type(error).__name__
    # Outside of the handler: what the function says could hold a secret.
    message = (
        f"the credentials function {_name(function)} failed with {reason}: call it by itself to see"
        " why, and correct it; it runs in each process that opens the storage"
    )
    raise StorageError(message, ErrorKind.INVALID_CREDENTIALS)


def _as_key(answer: Any, function: Callable[[], object]) -> S3StaticCredentials:  # noqa: ANN401
    """The answer as a key; the reference library's class has the same attributes."""
    try:
        return S3StaticCredentials(
            answer.access_key_id,
            answer.secret_access_key,
            answer.session_token,
            answer.expires_after,
        )
    except AttributeError:
        message = (
            f"the credentials function {_name(function)} returned a {type(answer).__name__}:"
            " return S3StaticCredentials"
        )
        raise StorageError(message, ErrorKind.INVALID_CREDENTIALS) from None


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _name(function: Callable[[], object]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
