"""The clients of one process, shared by all storages that are reached and used alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError

from icechunk_stream.config import ChecksumAlgorithm
from icechunk_stream.errors import StorageError
from icechunk_stream.storage.client_cache import ClientCache
from icechunk_stream.storage.failures import Failure, Trouble
from icechunk_stream.storage.optional import is_installed
from icechunk_stream.storage.s3_bucket import S3Bucket
from icechunk_stream.storage.s3_errors import failure_of
from icechunk_stream.storage.s3_explain import explain
from icechunk_stream.storage.s3_obstore import S3Obstore
from icechunk_stream.storage.s3_requests import S3Requests
from icechunk_stream.storage.s3_session import S3Session

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from icechunk_stream.storage.retry import Retry
    from icechunk_stream.storage.s3_credentials import S3Secret
    from icechunk_stream.storage.s3_settings import S3Access, Usage
    from icechunk_stream.storage.s3_values import Got
    from icechunk_stream.storage.traits import Traits
    from icechunk_stream.storage.values import ByteRange, BytesLike, Span, Version

_LARGE = 4 * 2**20
_REFUSALS = frozenset({400, 501})


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """All that clients depend on.

    Ambient credentials may be others by the time that the next storage is made: ``origin`` is the
    same for one storage and its copies only.
    """

    bucket: str
    access: S3Access
    secret: S3Secret
    usage: Usage
    origin: str


class S3Clients:
    """botocore for everything, and obstore where it is faster.

    What obstore fails at goes to botocore at once, whose answers say more, or with the next try.
    Objects go in parts through botocore: an upload that obstore gave up left parts behind. Large
    bodies are botocore's as well: it can write them with a checksum that costs neither side much;
    without one, servers make their own.
    """

    def __init__(self, spec: ClientSpec) -> None:
        session = _open_session(spec)
        self.requests = S3Requests(session, spec.bucket, spec.usage)
        self.obstore = _open_obstore(session, spec)
        self.flips_etags = False
        self._adds_checksums = spec.access.checksum_algorithm is None

    def get(self, name: str, byte_range: ByteRange | None, tries: int) -> Got | Failure:
        obstore = self.obstore
        if obstore is not None and obstore.reads and _has_turn(obstore, name, tries):
            answer = obstore.get(name, byte_range)
            if not isinstance(answer, Failure) or answer.transient:
                return answer
        return self.requests.get(name, byte_range)

    @property
    def begins(self) -> bool:
        """Whether a read can be begun in an event loop."""
        return self.obstore is not None and self.obstore.reads

    async def begin(self, name: str, span: Span) -> BytesLike | Failure | None:
        """The first try of ``get`` in an event loop; None where more than obstore is needed."""
        if self.obstore is None or not self.begins or not _has_turn(self.obstore, name, 0):
            return None
        answer = await self.obstore.get_async(name, span)
        settled = isinstance(answer, Failure) and not answer.transient
        return None if settled else answer

    def put(self, name: str, data: BytesLike, traits: Traits, tries: int) -> Version | Failure:
        if not (self._adds_checksums and len(data) >= _LARGE):
            return self._put(name, data, traits, tries)
        answer = self.requests.put(name, data, traits, otherwise=ChecksumAlgorithm.Crc32c)
        if not (isinstance(answer, Failure) and _is_refusal(answer)):
            return answer
        # There are servers that refuse checksums.
        plain = self._put(name, data, traits, tries)
        self._adds_checksums = isinstance(plain, Failure)
        return plain

    def _put(self, name: str, data: BytesLike, traits: Traits, tries: int) -> Version | Failure:
        obstore = self.obstore
        if obstore is not None and obstore.writes and _has_turn(obstore, name, tries):
            answer = obstore.put(name, data, traits)
            if not isinstance(answer, Failure) or answer.transient:
                return answer
        return self.requests.put(name, data, traits)


def _is_refusal(failure: Failure) -> bool:
    return failure.trouble is Trouble.REFUSED and failure.status in _REFUSALS


def _has_turn(obstore: S3Obstore, name: str, tries: int) -> bool:
    return tries % 2 == 0 and obstore.can_name(name)


def _open_session(spec: ClientSpec) -> S3Session:
    try:
        return S3Session(spec.access, spec.secret, spec.usage.timeouts, spec.access.concurrency)
    except (BotoCoreError, ValueError) as error:
        failure = failure_of(error)
    raise explain(failure, "open", "", f"the bucket {spec.bucket!r}")


def _open_obstore(session: S3Session, spec: ClientSpec) -> S3Obstore | None:
    choice = spec.access.bulk
    if choice == "boto3" or (choice == "auto" and not is_installed("obstore")):
        return None
    try:
        return S3Obstore(session, spec.bucket, spec.usage)
    except StorageError:
        # A forked process may have no room for a copy of obstore.
        if choice == "obstore":
            raise
        return None


_clients = ClientCache(S3Clients)


def open_bucket(spec: ClientSpec, retry: Retry, pieces: ThreadPoolExecutor, where: str) -> S3Bucket:
    """The bucket as this process reaches it; ``where`` describes its storage in errors."""
    return S3Bucket(spec.usage, retry, pieces, where, clients=_clients.get(spec))
