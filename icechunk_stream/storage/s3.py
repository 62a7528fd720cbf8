"""Objects in a bucket of S3, or of a store that speaks its protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from icechunk_stream.config.repository import overlay
from icechunk_stream.credentials import S3FromEnv
from icechunk_stream.effects import random_uuid
from icechunk_stream.errors import ErrorKind, InvalidInputError, StorageError
from icechunk_stream.storage.bucket_storage import BucketStorage
from icechunk_stream.storage.optional import load
from icechunk_stream.storage.per_process import LazyPerProcess
from icechunk_stream.storage.retry import Retry
from icechunk_stream.storage.s3_credentials import S3Withheld, without_secrets
from icechunk_stream.storage.s3_names import find_names, normal_prefix
from icechunk_stream.storage.s3_settings import S3Access
from icechunk_stream.storage.values import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.config import StorageSettings
    from icechunk_stream.storage.retry import Waiting
    from icechunk_stream.storage.s3_bucket import S3Bucket
    from icechunk_stream.storage.s3_credentials import S3Secret
    from icechunk_stream.storage.s3_names import Names

_CLIENTS = "icechunk_stream.storage.s3_clients"
_DELETED_AT_ONCE = 1000

_State: TypeAlias = "tuple[str, str, S3Access, S3Secret, StorageSettings, Waiting]"


@dataclass(frozen=True, slots=True)
class _Tag:
    """What a storage shares with its copies, and with those of its pickles."""

    pickles_secrets: bool
    origin: str


class S3Storage(BucketStorage):
    """Objects below a prefix of a bucket; races are decided by If-Match and If-None-Match.

    A version is an ETag, which most stores make from the bytes: writing the same bytes again
    brings a version back. Nothing is lost by that: a swap builds on what an object says only.

    Args:
        bucket: The bucket's name.
        prefix: What all names begin with; one slash at its end is of no account.
        access: How to reach the server.
        credentials: None is the ambient chain of botocore.
        settings: Time-outs, retries, storage classes; they go before those of a repository.
        waiting: The clock and the pauses of retries.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str | None = None,
        access: S3Access | None = None,
        credentials: S3Secret | None = None,
        settings: StorageSettings | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        self._access = access or S3Access()
        super().__init__(self._access, settings, waiting)
        self._bucket = bucket
        self._prefix = prefix or ""
        self._secret: S3Secret = credentials or S3FromEnv()
        self._tag = _Tag(pickles_secrets=False, origin=random_uuid())
        self._found_names = LazyPerProcess(self._find_names)
        self._check()

    @property
    def bucket(self) -> str:
        return self._bucket

    @property
    def prefix(self) -> str:
        """What all names begin with, without a slash at its end."""
        return normal_prefix(self._prefix)

    @property
    def at_bucket_root(self) -> bool:
        return not self.prefix

    @property
    def access(self) -> S3Access:
        return self._access

    def __repr__(self) -> str:
        shown = [repr(self._bucket), f"prefix={self.prefix!r}"]
        if self._access.endpoint_url is not None:
            shown.append(f"endpoint_url={self._access.endpoint_url!r}")
        return f"S3Storage({', '.join(shown)})"

    def __reduce__(self) -> tuple[object, ...]:
        bucket, prefix, access, secret, settings, waiting = self._state
        if not self._tag.pickles_secrets:
            access = access.without_secrets()
            # What is missing must be missed: with half of its headers a request could go astray.
            secret = without_secrets(secret) if access == self._access else S3Withheld()
        state = (bucket, prefix, access, secret, settings, waiting)
        return (_rebuild, (state, self._tag))

    def __copy__(self) -> S3Storage:
        # Without this a copy would be made like a pickle, which leaves secrets out.
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> S3Storage:
        return self

    def with_pickled_credentials(self) -> S3Storage:
        """The same storage, whose pickles carry its access key: keep them as secret."""
        return _rebuild(self._state, replace(self._tag, pickles_secrets=True))

    def with_settings(self, settings: StorageSettings) -> S3Storage:
        """The same storage, with these settings where its own ones leave a gap."""
        filled = overlay(settings, self._settings, deep=True)
        bucket, prefix, access, secret, _, waiting = self._state
        state = (bucket, prefix, access, secret, filled, waiting)
        return _rebuild(state, self._tag)

    @property
    def _state(self) -> _State:
        return (
            self._bucket,
            self._prefix,
            self._access,
            self._secret,
            self._settings,
            self._waiting,
        )

    @property
    def _identity(self) -> tuple[object, ...]:
        return (self._bucket, self.prefix, self._access, self._usage)

    def _check(self) -> None:
        if not self._bucket:
            raise InvalidInputError("the bucket has no name", ErrorKind.STORAGE_CONFIG)
        if self.prefix and self._access.legacy_rooted_keys:
            message = "legacy_rooted_keys is for an empty prefix only: leave it out"
            raise InvalidInputError(message, ErrorKind.STORAGE_CONFIG)

    def _open(self) -> S3Bucket:
        module = load(_CLIENTS, package="boto3", extra="s3")
        origin = self._tag.origin if isinstance(self._secret, S3FromEnv) else ""
        spec = module.ClientSpec(self._bucket, self._access, self._secret, self._usage, origin)
        retry = Retry(self._usage.retries, self._waiting)
        opened: S3Bucket = module.open_bucket(spec, retry, self._pieces.value, repr(self))
        return opened

    def _find_names(self) -> Names:
        return find_names(self._prefix, self._access.legacy_rooted_keys, self._opened.value.stat)

    @property
    def _is_open(self) -> bool:
        return super()._is_open and self._found_names.is_made

    @property
    def _names(self) -> Names:
        return self._found_names.value

    def _name(self, key: str) -> str:
        return self._names.name(key)

    @property
    def _why_read_only(self) -> str | None:
        return "open it without that option to write" if self._access.read_only else None

    @property
    def _deleted_at_once(self) -> int:
        return _DELETED_AT_ONCE

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        if "\0" in prefix:
            return
        names, before = self._names, b""
        for entry in self._opened.value.list(names.name(prefix)):
            key = names.key(entry.name)
            if key is None:
                continue
            now = key.encode()
            if now < before:
                raise self._out_of_order()
            before = now
            yield ObjectInfo(key, entry.size, entry.modified_at)

    def _out_of_order(self) -> StorageError:
        message = (
            f"{self!r} lists its objects in another order than that of their names: use a general"
            " purpose bucket, or another server"
        )
        return StorageError(message, ErrorKind.OBJECT_STORE)


def _rebuild(state: Any, tag: _Tag) -> S3Storage:  # noqa: ANN401
    storage = S3Storage(*state)
    storage._tag = tag  # noqa: SLF001
    return storage
