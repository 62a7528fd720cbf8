"""Single requests to one bucket, each sent once; what fails is a value."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from icechunk_stream.errors import StorageError
from icechunk_stream.storage.failures import Failure, Trouble
from icechunk_stream.storage.s3_checksums import checksum_field, checksum_name
from icechunk_stream.storage.s3_errors import BOTO_ERRORS, failure_of, failure_of_code
from icechunk_stream.storage.s3_values import Condition, Entry, Got, Head, Page
from icechunk_stream.storage.traits import WRITE_ID, metadata_name
from icechunk_stream.storage.values import From, Last, Span, Version, resolve_range

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from icechunk_stream.config import ChecksumAlgorithm
    from icechunk_stream.storage.s3_session import S3Session
    from icechunk_stream.storage.s3_settings import Usage
    from icechunk_stream.storage.traits import Traits
    from icechunk_stream.storage.values import ByteRange, BytesLike

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_TOO_LONG = "KeyTooLongError"
_BAD_REQUEST = 400
_FIRST_BYTE = Span(0, 1)
_INCOMPLETE = Failure(Trouble.LOST, detail="the answer is incomplete")
_NOT_IN_XML = re.compile("[\x00-\x1f\x7f\ufffe\uffff]")


class S3Requests:
    """Requests through botocore."""

    def __init__(self, session: S3Session, bucket: str, usage: Usage) -> None:
        self.bucket = bucket
        self.client = session.client
        self._usage = usage
        self._checksum = session.access.checksum_algorithm
        self._common: dict[str, Any] = {"Bucket": bucket}
        if session.access.requester_pays:
            self._common["RequestPayer"] = "requester"

    def ask(self, operation: Callable[..., dict[str, Any]], **params: Any) -> Any:  # noqa: ANN401
        """The answer of an operation on this bucket, or the failure."""
        try:
            return operation(**self._common, **params)
        except BOTO_ERRORS as error:
            return failure_of(error)

    def get(
        self, name: str, byte_range: ByteRange | None, unless: Version | None = None
    ) -> Got | Failure:
        params: dict[str, Any] = {"Key": name}
        if byte_range is not None:
            params["Range"] = range_header(byte_range)
        if unless is not None:
            params["IfNoneMatch"] = unless.token
        answer = self.ask(self.client.get_object, **params)
        if not isinstance(answer, Failure):
            return _got(answer, byte_range, name)
        # There is nothing under a name that the store could not hold.
        missing = answer.code == _TOO_LONG
        return replace(answer, trouble=Trouble.MISSING) if missing else answer

    def head(self, name: str) -> Head | Failure:
        answer = self.ask(self.client.head_object, Key=name)
        if isinstance(answer, Failure):
            return self._explained(answer, name)
        if "ContentLength" not in answer or "LastModified" not in answer:
            return _INCOMPLETE
        return Head(
            size=answer["ContentLength"],
            modified_at=_micros(answer["LastModified"]),
            version=Version(answer.get("ETag", "")),
            write_id=answer.get("Metadata", {}).get(metadata_name(WRITE_ID)),
        )

    def _explained(self, failure: Failure, name: str) -> Failure:
        """Answers to HEAD have no body: a bad request says why to GET only."""
        if failure.status != _BAD_REQUEST:
            return failure
        answer = self.get(name, _FIRST_BYTE)
        return answer if isinstance(answer, Failure) else failure

    def put(
        self,
        name: str,
        data: BytesLike,
        traits: Traits,
        condition: Condition | None = None,
        otherwise: ChecksumAlgorithm | None = None,
    ) -> Version | Failure:
        """Write an object; ``otherwise`` is the checksum where nobody asked for one."""
        body = data if isinstance(data, bytes) else bytes(data)
        params = self.write_params(traits, None if condition is None else condition.write_id)
        params |= self.checksum_of(body, otherwise)
        if condition is not None:
            params |= _condition_params(condition)
        answer = self.ask(self.client.put_object, Key=name, Body=body, **params)
        return answer if isinstance(answer, Failure) else Version(answer.get("ETag", ""))

    def write_params(self, traits: Traits, write_id: str | None = None) -> dict[str, Any]:
        """Class, type and metadata of a new object."""
        metadata = dict(traits.metadata) | ({WRITE_ID: write_id} if write_id else {})
        storage_class = self._usage.classes.of_role(traits.role)
        params: dict[str, Any] = {}
        if metadata and self._usage.use_metadata:
            params["Metadata"] = {metadata_name(key): text for key, text in metadata.items()}
        if traits.content_type is not None:
            params["ContentType"] = traits.content_type
        if storage_class is not None:
            params["StorageClass"] = storage_class
        return params

    def checksum_of(
        self, body: bytes, otherwise: ChecksumAlgorithm | None = None
    ) -> dict[str, str]:
        algorithm = self._checksum or otherwise
        return {} if algorithm is None else dict([checksum_field(algorithm, body)])

    def checksum_kind(self) -> dict[str, str]:
        return (
            {} if self._checksum is None else {"ChecksumAlgorithm": checksum_name(self._checksum)}
        )

    def copy(self, source: str, target: str, etag: str) -> Version | Failure:
        answer = self.ask(
            self.client.copy_object,
            Key=target,
            CopySource={"Bucket": self.bucket, "Key": source},
            CopySourceIfMatch=etag,
        )
        if isinstance(answer, Failure):
            return answer
        return Version(answer.get("CopyObjectResult", {}).get("ETag", ""))

    def page(self, prefix: str, token: str | None) -> Page | Failure:
        params = {"Prefix": prefix} | ({"ContinuationToken": token} if token else {})
        answer = self.ask(self.client.list_objects_v2, **params)
        if isinstance(answer, Failure):
            return answer
        if "IsTruncated" not in answer and "Name" not in answer:
            # botocore takes an empty answer for an empty bucket.
            return _INCOMPLETE
        entries = tuple(
            Entry(item["Key"], item["Size"], _micros(item["LastModified"]))
            for item in answer.get("Contents", ())
        )
        more = answer.get("NextContinuationToken") if answer.get("IsTruncated") else None
        return Page(entries, more)

    def delete(self, names: Sequence[str]) -> dict[str, Failure] | Failure:
        """Delete up to 1000 objects; those that could not be, each with its failure."""
        if len(names) == 1 or any(_NOT_IN_XML.search(name) for name in names):
            return self._delete_singly(names)
        objects = {"Objects": [{"Key": name} for name in names]}
        answer = self.ask(self.client.delete_objects, Delete=objects, **self.checksum_kind())
        if isinstance(answer, Failure):
            return answer
        if len(answer.get("Deleted", ())) + len(answer.get("Errors", ())) < len(names):
            return _INCOMPLETE
        failed = {
            item.get("Key", ""): failure_of_code(str(item.get("Code", "")))
            for item in answer.get("Errors", ())
        }
        return _without_missing(failed)

    def _delete_singly(self, names: Sequence[str]) -> dict[str, Failure]:
        failed = {}
        for name in names:
            answer = self.ask(self.client.delete_object, Key=name)
            if isinstance(answer, Failure):
                failed[name] = answer
        return _without_missing(failed)


def range_header(byte_range: ByteRange) -> str:
    match byte_range:
        case Span(start, end):
            return f"bytes={start}-{end - 1}"
        case From(start):
            return f"bytes={start}-"
        case Last(count):
            return f"bytes=-{count}"


def _got(answer: dict[str, Any], byte_range: ByteRange | None, name: str) -> Got | Failure:
    body = answer["Body"]
    try:
        data = body.read()
    except BOTO_ERRORS as error:
        return failure_of(error)
    finally:
        body.close()
    version = Version(answer.get("ETag", ""))
    if byte_range is None:
        return Got(data, version, len(data))
    sent = _CONTENT_RANGE.fullmatch(answer.get("ContentRange", ""))
    if sent is None:
        return _cut(Got(data, version, len(data)), byte_range, name)
    first, last, size = (int(number) for number in sent.groups())
    return checked(Got(data, version, size), (first, last + 1), byte_range, name)


def _cut(whole: Got, byte_range: ByteRange, name: str) -> Got | Failure:
    """A server may answer a range with the whole object."""
    try:
        start, end = resolve_range(byte_range, whole.size, name)
    except StorageError:
        return Failure(Trouble.OUT_OF_RANGE)
    return Got(whole.data[start:end], whole.version, whole.size)


def checked(
    got: Got, sent: tuple[int, int], byte_range: ByteRange | None, name: str
) -> Got | Failure:
    """An answer to a range, if it holds the bytes that were asked for."""
    start, end = sent
    if sent == resolve_range(byte_range, got.size, name) and len(got.data) == end - start:
        return got
    return Failure(Trouble.LOST, detail="other bytes came than were asked for")


def _condition_params(condition: Condition) -> dict[str, str]:
    return {"IfNoneMatch": "*"} if condition.etag is None else {"IfMatch": condition.etag}


def _without_missing(failed: dict[str, Failure]) -> dict[str, Failure]:
    return {
        name: failure for name, failure in failed.items() if failure.trouble is not Trouble.MISSING
    }


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND
