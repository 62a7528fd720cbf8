"""What can go wrong with one request to an object store, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Trouble(Enum):
    """How a request failed, by what the sender may do next."""

    UNSENT = "no connection was made, so that nothing was sent"
    BUSY = "the server turned the request away without carrying it out"
    LOST = "no answer came, or one that leaves the outcome open"
    MISSING = "the object does not exist"
    CONFLICT = "the condition of the request does not hold"
    NOT_MODIFIED = "the object still is in the known version"
    OUT_OF_RANGE = "the object has none of the bytes asked for"
    DENIED = "the credentials do not allow it"
    NO_CREDENTIALS = "there are no usable credentials"
    REFUSED = "the server refuses the request"


_TRANSIENT = frozenset({Trouble.UNSENT, Trouble.BUSY, Trouble.LOST})


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed. ``code`` and ``detail`` hold no secret; ``detail`` is a clause."""

    trouble: Trouble
    status: int | None = None
    code: str = ""
    detail: str = ""

    @property
    def transient(self) -> bool:
        """Whether the same request may well succeed later."""
        return self.trouble in _TRANSIENT

    def __str__(self) -> str:
        answer = " ".join(str(part) for part in (self.status, self.code) if part)
        what = self.detail or self.trouble.value
        return f"{what} ({answer})" if answer else what


_BY_CODE: Mapping[str, Trouble] = MappingProxyType(
    {
        "NoSuchKey": Trouble.MISSING,
        "NoSuchBucket": Trouble.REFUSED,
        "NoSuchUpload": Trouble.REFUSED,
        "PreconditionFailed": Trouble.CONFLICT,
        "ConditionalRequestConflict": Trouble.CONFLICT,
        "ConcurrentModification": Trouble.CONFLICT,
        "OperationAborted": Trouble.CONFLICT,
        "InvalidRange": Trouble.OUT_OF_RANGE,
        "SlowDown": Trouble.BUSY,
        "ServiceUnavailable": Trouble.BUSY,
        "Throttling": Trouble.BUSY,
        "ThrottlingException": Trouble.BUSY,
        "ThrottledException": Trouble.BUSY,
        "RequestThrottled": Trouble.BUSY,
        "TooManyRequests": Trouble.BUSY,
        "TooManyRequestsException": Trouble.BUSY,
        "RequestLimitExceeded": Trouble.BUSY,
        "BandwidthLimitExceeded": Trouble.BUSY,
        # The server threw away a body that did not arrive whole.
        "RequestTimeout": Trouble.BUSY,
        "IncompleteBody": Trouble.BUSY,
        "BadDigest": Trouble.BUSY,
        "InternalError": Trouble.LOST,
        "InternalFailure": Trouble.LOST,
        "AccessDenied": Trouble.DENIED,
        "InvalidAccessKeyId": Trouble.DENIED,
        "SignatureDoesNotMatch": Trouble.DENIED,
        "ExpiredToken": Trouble.DENIED,
        "InvalidToken": Trouble.DENIED,
        "RequestTimeTooSkewed": Trouble.DENIED,
    }
)

_BY_STATUS: Mapping[int, Trouble] = MappingProxyType(
    {
        304: Trouble.NOT_MODIFIED,
        401: Trouble.DENIED,
        403: Trouble.DENIED,
        404: Trouble.MISSING,
        408: Trouble.BUSY,
        409: Trouble.CONFLICT,
        412: Trouble.CONFLICT,
        416: Trouble.OUT_OF_RANGE,
        429: Trouble.BUSY,
        499: Trouble.LOST,
        501: Trouble.REFUSED,
        505: Trouble.REFUSED,
    }
)

_SERVER_ERRORS = range(500, 600)


def trouble_of(status: int | None, code: str = "") -> Trouble:
    """What an error answer means; its code says more than its status."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status is None:
        return Trouble.LOST
    # A gateway in between may say 502, 503 or 504 of a request that was carried out.
    otherwise = Trouble.LOST if status in _SERVER_ERRORS else Trouble.REFUSED
    return _BY_STATUS.get(status, otherwise)
