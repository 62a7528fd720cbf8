"""What obstore raises, as failures without secrets: its own texts hold URLs and whole answers."""

from __future__ import annotations

import re
from http import HTTPStatus

from icechunk_stream.storage.failures import Failure, Trouble, trouble_of

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_BEYOND = re.compile(
    r"Wanted range starting at \d+, but object was only \d+ bytes long"
    r"|CONTENT_RANGE header: \"bytes \d+-.*/0\""
)
_TOKEN_REQUEST = "Error performing token request"  # noqa: S105 - no password
_DEBUG = "\n\nDebug source:\n"
# The comma tells it from a connection that was reset.
_NO_CONNECTION = "kind: Connect,"

_BY_CLASS = {
    "FileNotFoundError": Trouble.MISSING,
    "AlreadyExistsError": Trouble.CONFLICT,
    "PreconditionError": Trouble.CONFLICT,
    "NotModifiedError": Trouble.NOT_MODIFIED,
    "PermissionDeniedError": Trouble.DENIED,
    # Without an answer of the server: a credentials function failed.
    "UnauthenticatedError": Trouble.NO_CREDENTIALS,
}
_BY_CODE = {
    # Azure
    "ContainerNotFound": Trouble.REFUSED,
    "ContainerBeingDeleted": Trouble.REFUSED,
    "ContainerDisabled": Trouble.REFUSED,
    "ResourceNotFound": Trouble.REFUSED,
    "AuthenticationFailed": Trouble.DENIED,
    "ServerBusy": Trouble.BUSY,
    "OperationTimedOut": Trouble.LOST,
    # Google
    "UserProjectMissing": Trouble.REFUSED,
}


def failure_of(error: Exception) -> Failure:
    """Only the status, an error code and the kind of the failure are taken over."""
    said, _, source = str(error).partition(_DEBUG)
    status, code = _STATUS.search(said), _CODE.search(said)
    number, name = int(status[1]) if status else None, code[1] if code else ""
    if _TOKEN_REQUEST in said:
        return _without_token(number)
    if number is not None:
        return Failure(_BY_CODE.get(name) or trouble_of(number, name), number, name)
    return _without_status(type(error).__name__, said, source)


def _without_token(status: int | None) -> Failure:
    """The request was not sent, since there was no token to send with it."""
    if status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Failure(Trouble.UNSENT, status, detail="no token could be fetched")
    return Failure(Trouble.NO_CREDENTIALS, status, detail="a token was refused")


def _without_status(kind: str, said: str, source: str) -> Failure:
    if _BEYOND.search(said):
        return Failure(Trouble.OUT_OF_RANGE)
    if kind in _BY_CLASS:
        return Failure(_BY_CLASS[kind])
    if "HTTP error" not in said:
        # What obstore itself does not accept: names, options, ranges that a server ignored.
        return Failure(Trouble.REFUSED, code=kind)
    if _NO_CONNECTION in source:
        return Failure(Trouble.UNSENT)
    detail = "the connection broke, or the answer was late or cut short"
    return Failure(Trouble.LOST, detail=detail)
