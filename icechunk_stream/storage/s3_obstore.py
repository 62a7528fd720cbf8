"""Bulk reads and writes through obstore, with botocore's credentials and endpoint."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError
from obstore.store import S3Store

from icechunk_stream.config import ChecksumAlgorithm
from icechunk_stream.storage.failures import Failure, Trouble, trouble_of
from icechunk_stream.storage.s3_credentials import now
from icechunk_stream.storage.s3_errors import CUT
from icechunk_stream.storage.s3_requests import checked, metadata_name
from icechunk_stream.storage.s3_session import USER_AGENT
from icechunk_stream.storage.s3_values import Got
from icechunk_stream.storage.values import From, Last, Span, Version

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials

    from icechunk_stream.storage.s3_session import S3Session
    from icechunk_stream.storage.s3_settings import Usage
    from icechunk_stream.storage.traits import Traits
    from icechunk_stream.storage.values import ByteRange, BytesLike

_CHECKSUMS = {ChecksumAlgorithm.Sha256: "sha256", ChecksumAlgorithm.Crc64Nvme: "crc64nvme"}
_STATUS = re.compile(r"status code: (\d{3})")
_NO_LIMIT = timedelta(days=7)
# botocore renews keys at least this long before they end.
_KEY_LIFE = timedelta(minutes=5)


class _Runtime:
    """obstore's threads do not follow into a forked child, where its calls would never end."""

    started = False
    lost = False
    left_behind: list[object] = []  # noqa: RUF012 - one for the process, on purpose


def _after_fork() -> None:
    _Runtime.lost = _Runtime.lost or _Runtime.started


os.register_at_fork(after_in_child=_after_fork)


def is_usable() -> bool:
    """Whether obstore works in this process."""
    return not _Runtime.lost


class ObstoreRequests:
    """Requests through obstore, each sent once; what it fails at is a failure without secrets."""

    def __init__(self, session: S3Session, bucket: str, usage: Usage) -> None:
        self._session = session
        self._usage = usage
        self._store = _open(session, bucket)
        _Runtime.started = True
        # A child that closed the connections of its parent's threads could wait for them.
        _Runtime.left_behind.append(self._store)

    @staticmethod
    def can_name(name: str) -> bool:
        """Whether obstore takes a name as it is."""
        return {"", ".", ".."}.isdisjoint(name.split("/"))

    def can_write(self) -> bool:
        """Whether obstore can do everything that is asked of writes."""
        access = self._session.access
        checksum = access.checksum_algorithm
        return not access.write_headers and (checksum is None or checksum in _CHECKSUMS)

    def can_read(self) -> bool:
        return not self._session.access.read_headers

    def get(self, name: str, byte_range: ByteRange | None) -> Got | Failure:
        try:
            result = self._store.get(name, options=_options(byte_range))
            data = bytes(result.bytes())
            result_range = result.range
            meta = result.meta
        except (BaseError, OSError, ValueError) as error:
            return _failure_of(error)
        got = Got(data, Version(meta["e_tag"] or ""), meta["size"])
        return checked(got, result_range, byte_range, name)

    def put(self, name: str, data: BytesLike, traits: Traits) -> Version | Failure:
        multipart = len(data) >= self._usage.multipart_from
        try:
            result = self._store.put(
                name,
                data,
                attributes=self._attributes(traits),
                use_multipart=multipart,
                chunk_size=self._usage.part_size(len(data)),
                max_concurrency=self._usage.parallel_pieces,
            )
        except (BaseError, OSError, ValueError) as error:
            return _failure_of(error)
        return Version(result["e_tag"] or "")

    def _attributes(self, traits: Traits) -> dict[str, str]:
        storage_class = self._usage.classes.of_role(traits.role)
        attributes = {}
        if self._usage.use_metadata:
            attributes = {metadata_name(key): text for key, text in traits.metadata}
        if traits.content_type is not None:
            attributes["Content-Type"] = traits.content_type
        if storage_class is not None:
            attributes["Storage-Class"] = storage_class
        return attributes


def _open(session: S3Session, bucket: str) -> S3Store:
    access = session.access
    base = session.object_base(bucket)
    virtual = not base.endswith(f"/{bucket}")
    endpoint = base if virtual else base.removesuffix(f"/{bucket}")
    # obstore looks into the environment for what is not given.
    config: dict[str, Any] = {
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,
        "region": session.region(),
        "virtual_hosted_style_request": virtual,
        "skip_signature": session.anonymous,
        "request_payer": access.requester_pays,
        "conditional_put": "etag",
    }
    if access.checksum_algorithm in _CHECKSUMS:
        config["checksum_algorithm"] = _CHECKSUMS[access.checksum_algorithm]
    return S3Store(
        bucket,
        config=config,
        client_options=_client_options(session),
        retry_config={"max_retries": 0},
        credential_provider=None if session.anonymous else _Provider(session),
    )


def _client_options(session: S3Session) -> dict[str, Any]:
    timeouts = session.timeouts
    options: dict[str, Any] = {
        "allow_http": session.access.allow_http,
        "connect_timeout": _duration(timeouts.connect),
        "read_timeout": _duration(timeouts.read),
        "timeout": _duration(timeouts.attempt),
        "user_agent": USER_AGENT,
    }
    bundle = session.ca_bundle()
    if bundle is not None:
        options["root_certificate"] = Path(bundle).read_bytes()
    return options


class _Provider:
    """Gives obstore the key that botocore would sign with."""

    def __init__(self, session: S3Session) -> None:
        self._session = session

    def __call__(self) -> dict[str, Any]:
        key: ReadOnlyCredentials | None = self._session.frozen_key()
        return {
            "access_key_id": key.access_key if key else "",
            "secret_access_key": key.secret_key if key else "",
            "token": key.token if key else None,
            "expires_at": now() + _KEY_LIFE,
        }


def _options(byte_range: ByteRange | None) -> Any:  # noqa: ANN401 - obstore's types are stubs only
    match byte_range:
        case None:
            return None
        case Span(start, end):
            return {"range": (start, end)}
        case From(start):
            return {"range": {"offset": start}}
        case Last(count):
            return {"range": {"suffix": count}}


def _duration(seconds: float | None) -> timedelta:
    return _NO_LIMIT if seconds is None else timedelta(seconds=seconds)


def _failure_of(error: Exception) -> Failure:
    """The status, where the text has one; nothing else of it is taken over."""
    found = _STATUS.search(str(error).split("<", 1)[0])
    if found is not None:
        status = int(found[1])
        return Failure(trouble_of(status), status)
    if isinstance(error, (FileNotFoundError, ValueError)):
        return Failure(Trouble.REFUSED, code=type(error).__name__)
    return Failure(Trouble.LOST, code=type(error).__name__, detail=CUT)
