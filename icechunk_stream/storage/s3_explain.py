"""Failures of S3 requests as errors that say what happened, where, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.errors import ErrorKind, ObjectNotFoundError, StorageError
from icechunk_stream.storage.failures import Failure, Trouble

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY_CODE: Mapping[str, str] = {
    "NoSuchBucket": "the bucket does not exist: check its name, region and endpoint_url",
    "PermanentRedirect": "the bucket is in another region: give its region",
    "AuthorizationHeaderMalformed": "the bucket is in another region: give its region",
    "InvalidAccessKeyId": "the access key is unknown there: check the credentials and the endpoint",
    "SignatureDoesNotMatch": "the secret access key is wrong: check the credentials",
    "ExpiredToken": "the credentials have expired: give new ones, or get_credentials",
    "InvalidToken": "the session token is wrong: check the credentials",
    "RequestTimeTooSkewed": "this machine's clock is off the server's: set it",
    "EntityTooLarge": "the object is too large for one write: lower"
    " minimum_size_for_multipart_upload",
    "KeyTooLongError": "the name is too long for the store: use a shorter prefix",
    "InvalidStorageClass": "the store has no such storage class: check storage_class",
}

_BY_TROUBLE: Mapping[Trouble, str] = {
    Trouble.UNSENT: "check endpoint_url and the network, then try again",
    Trouble.BUSY: "try again later, or with fewer requests at once",
    Trouble.LOST: "try again; if this goes on, check the network and the time-outs",
    Trouble.MISSING: "check the bucket and the prefix",
    Trouble.CONFLICT: "another request has the object, or a name below it, in use",
    Trouble.NOT_MODIFIED: "the server answered a plain request with 304: check for a proxy",
    Trouble.OUT_OF_RANGE: "check that the object is complete",
    Trouble.DENIED: "check the permissions (s3:GetObject, s3:PutObject, s3:DeleteObject, and"
    " s3:ListBucket, without which absent objects are denied too)",
    Trouble.NO_CREDENTIALS: "give an access key, anonymous=True or get_credentials, or set up the"
    " environment, profile or role that botocore reads",
    Trouble.REFUSED: "check the options of the storage against what the server supports",
}

_KINDS: Mapping[Trouble, ErrorKind] = {
    Trouble.NO_CREDENTIALS: ErrorKind.INVALID_CREDENTIALS,
    Trouble.MISSING: ErrorKind.OBJECT_NOT_FOUND,
}


def explain(failure: Failure, verb: str, key: str, where: str) -> StorageError:
    """The error of a request that failed for good; ``where`` describes the storage."""
    advice = _BY_CODE.get(failure.code) or _BY_TROUBLE[failure.trouble]
    object_named = f"{key!r} in {where}" if key else where
    if failure.trouble is Trouble.MISSING:
        return ObjectNotFoundError(f"there is no object {object_named}: {advice}", key=key)
    message = f"could not {verb} {object_named}: {failure}: {advice}"
    return StorageError(message, _KINDS.get(failure.trouble, ErrorKind.OBJECT_STORE), key=key)
