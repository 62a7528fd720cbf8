"""What botocore raises, as failures without secrets: its own texts hold URLs, keys and headers."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from botocore.parsers import ResponseParserError

from icechunk_stream.storage.failures import Failure, Trouble, trouble_of

BOTO_ERRORS = (ClientError, BotoCoreError, ResponseParserError)

_NO_CREDENTIALS = (
    CredentialRetrievalError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
_UNSENT = (ConnectTimeoutError, EndpointConnectionError)
_CUT = (
    BotoConnectionError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    ResponseParserError,
    ResponseStreamingError,
)
CUT = "the connection broke, or the answer was cut short"
_ABSENT = frozenset({"KeyNotFound", "NoSuchKey", "NoSuchObject", "NoSuchVersion", "NotFound"})
_LONGEST_CODE = 60
_WRONG_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"


def failure_of(error: Exception) -> Failure:
    """Only class names and error codes are taken over from what botocore says."""
    match error:
        case ClientError():
            return _answer(error.response)
        case SSLError() if _WRONG_CERTIFICATE in str(error):
            return Failure(Trouble.REFUSED, detail="the server's certificate is not trusted")
        case ReadTimeoutError():
            return Failure(Trouble.LOST, detail="no answer came in time")
        case _:
            return _by_class(error)


def _by_class(error: Exception) -> Failure:
    code = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return Failure(Trouble.NO_CREDENTIALS, code=code)
    if isinstance(error, _UNSENT):
        return Failure(Trouble.UNSENT, code=code)
    if isinstance(error, _CUT):
        return Failure(Trouble.LOST, code=code, detail=CUT)
    return Failure(Trouble.REFUSED, code=code)


def _answer(response: dict[str, Any]) -> Failure:
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code = str(response.get("Error", {}).get("Code", ""))
    # Without a body, botocore gives the status for the code.
    return failure_of_code("" if code == str(status) else code, status)


def failure_of_code(code: str, status: int | None = None) -> Failure:
    code = clean_code(code)
    trouble = trouble_of(status, code)
    if trouble is Trouble.MISSING and code and code not in _ABSENT:
        # Of something else than the object: a user, a tenant.
        trouble = Trouble.REFUSED
    return Failure(trouble, status, code)


def clean_code(code: str) -> str:
    """The code if it looks like one: a server may put anything there."""
    return code if code.isascii() and code.isalnum() and len(code) <= _LONGEST_CODE else ""
