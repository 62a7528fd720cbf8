"""Credentials of clouds: left out of pickles, and called for when a client needs new ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from icechunk_stream.cloud_credentials import (
    AzureRefreshable,
    AzureStatic,
    GcsApplicationCredentials,
    GcsRefreshable,
    GcsServiceAccount,
    GcsStatic,
)
from icechunk_stream.storage.failures import Failure, Trouble
from icechunk_stream.storage.s3_credentials import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.cloud_credentials import (
        AnyAzureCredential,
        AnyAzureRefreshableCredential,
        AnyGcsCredential,
        GcsBearerCredential,
    )

T = TypeVar("T")

# A credential without an end is called for again, should its function be the only one to know.
_UNBOUNDED_LIFE = timedelta(minutes=15)
_LARGEST_MARGIN = timedelta(minutes=5)
_MARGIN_PART = 5


@dataclass(frozen=True, slots=True)
class Withheld:
    """A secret that stayed behind when its storage was pickled."""


def without_azure_secrets(
    credentials: AnyAzureCredential | Withheld,
) -> AnyAzureCredential | Withheld:
    """What a pickle may hold of credentials when nobody asked for more."""
    match credentials:
        case AzureStatic():
            return Withheld()
        case AzureRefreshable():
            return replace(credentials, current=None)
        case _:
            return credentials


def without_gcs_secrets(credentials: AnyGcsCredential | Withheld) -> AnyGcsCredential | Withheld:
    """The paths of files are no secrets."""
    match credentials:
        case GcsStatic(GcsServiceAccount() | GcsApplicationCredentials()):
            return credentials
        case GcsStatic():
            return Withheld()
        case GcsRefreshable():
            return replace(credentials, current=None)
        case _:
            return credentials


class Refreshing:
    """What obstore calls for a credential when the last one is about to end."""

    def __init__(
        self,
        source: AzureRefreshable | GcsRefreshable,
        spell: Callable[[Any], dict[str, Any]],
    ) -> None:
        self._function: Callable[[], object] = source.get_credentials
        self._current: object | None = source.current
        self._spell = spell
        self.failure: Failure | None = None
        """Why the last call gave no credential: obstore's own words could hold a secret."""

    def __call__(self) -> dict[str, Any]:
        self.failure = None
        credential, self._current = self._current, None
        spelled = None if credential is None else self._spelled(credential)
        if spelled is None or spelled["expires_at"] <= now():
            spelled = self._called()
        return spelled

    def _called(self) -> dict[str, Any]:
        try:
            credential = self._function()
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            raise self._failed(f"failed with {type(error).__name__}") from None
        spelled = self._spelled(credential)
        if spelled is None:
            raise self._failed(f"returned a {type(credential).__name__}")
        if spelled["expires_at"] <= now():
            raise self._failed("returned an expired credential")
        return spelled

    def _spelled(self, credential: Any) -> dict[str, Any] | None:  # noqa: ANN401
        try:
            ends: datetime | None = credential.expires_after
            spelled = self._spell(credential)
        except (AttributeError, TypeError):
            return None
        return spelled | {"expires_at": now() + _UNBOUNDED_LIFE if ends is None else _early(ends)}

    def _failed(self, how: str) -> RuntimeError:
        name = getattr(self._function, "__qualname__", type(self._function).__name__)
        detail = f"the credentials function {name} {how}"
        self.failure = Failure(Trouble.NO_CREDENTIALS, detail=detail)
        return RuntimeError(detail)


def spell_azure(credential: AnyAzureRefreshableCredential) -> dict[str, Any]:
    """A credential in obstore's words; the reference library's classes have the same attributes."""
    kind = type(credential).__name__
    if hasattr(credential, "bearer"):
        return {"token": credential.bearer}
    if hasattr(credential, "token"):
        return {"sas_token": credential.token}
    if hasattr(credential, "key"):
        return {"access_key": credential.key}
    raise TypeError(kind)


def spell_gcs(credential: GcsBearerCredential) -> dict[str, Any]:
    return {"token": credential.bearer}


def _early(ends: datetime) -> datetime:
    """When to ask for another credential: some time before one ends, so that requests do."""
    aware = ends if ends.tzinfo is not None else ends.replace(tzinfo=UTC)
    return aware - min(_LARGEST_MARGIN, max(aware - now(), timedelta()) / _MARGIN_PART)
