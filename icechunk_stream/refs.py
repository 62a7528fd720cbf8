"""The tip: which snapshot every branch and tag names, and the history behind it.

Spec v1 keeps a file for each ref and the history in snapshot objects; spec v2 keeps all of it in
the ``repo`` object. Both answer the same questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from icechunk_stream.assets import snapshot_key
from icechunk_stream.errors import (
    ErrorKind,
    FormatError,
    InvalidInputError,
    RefNotFoundError,
    SnapshotNotFoundError,
)
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.repo_info import SnapshotRecord
from icechunk_stream.storage import Fetched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.assets import Assets
    from icechunk_stream.format.repo_info import RepoInfo
    from icechunk_stream.format.snapshot import Snapshot

MAIN = "main"
MAIN_REF_KEY = f"refs/branch.{MAIN}/ref.json"

_REFS = "refs/"
_BRANCH = "branch."
_TAG = "tag."
_REF_FILE = "ref.json"
_TOMBSTONE = "ref.json.deleted"
_MAX_REF_SIZE = 4096


class History(Protocol):
    """Refs and snapshots of a repository as they are now."""

    def branches(self) -> set[str]: ...

    def branch(self, name: str) -> SnapshotId: ...

    def tags(self) -> set[str]: ...

    def tag(self, name: str) -> SnapshotId: ...

    def record(self, id: SnapshotId) -> SnapshotRecord: ...

    def ancestry(self, id: SnapshotId) -> Iterator[SnapshotRecord]:
        """Records from a snapshot to its root, newest first."""

    def newest_at(self, id: SnapshotId, limit: int) -> SnapshotId | None:
        """A snapshot, or the first of its ancestors that is not younger than a time."""


class RefFiles:
    """Spec v1: a small JSON file for each ref."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets

    def branches(self) -> set[str]:
        return {name[len(_BRANCH) :] for name in self._names() if name.startswith(_BRANCH)}

    def branch(self, name: str) -> SnapshotId:
        found = self._read(_checked_name(_BRANCH, name))
        if found is None:
            raise no_branch(name)
        return found

    def tags(self) -> set[str]:
        names = [name[len(_TAG) :] for name in self._names() if name.startswith(_TAG)]
        return {name for name in names if self._tag(name) is not None}

    def tag(self, name: str) -> SnapshotId:
        found = self._tag(name)
        if found is None:
            raise _no_tag(name)
        return found

    def record(self, id: SnapshotId) -> SnapshotRecord:
        return _record_of(self._assets.snapshot(id))

    def ancestry(self, id: SnapshotId) -> Iterator[SnapshotRecord]:
        seen: set[SnapshotId] = set()
        at: SnapshotId | None = id
        while at is not None:
            if at in seen:
                raise FormatError(f"the ancestry of {id} is a loop", key=snapshot_key(at))
            seen.add(at)
            record = self.record(at)
            yield record
            at = record.parent_id

    def newest_at(self, id: SnapshotId, limit: int) -> SnapshotId | None:
        records = self.ancestry(id)
        return next((record.id for record in records if record.flushed_at <= limit), None)

    def _names(self) -> set[str]:
        """First components below ``refs/``, such as ``branch.main``."""
        names: set[str] = set()
        for info in self._assets.storage.list(_REFS):
            name = info.key[len(_REFS) :].partition("/")[0]
            if not name.startswith((_BRANCH, _TAG)):
                raise FormatError("it is neither a branch nor a tag", key=info.key)
            names.add(name)
        return names

    def _tag(self, name: str) -> SnapshotId | None:
        folder = _checked_name(_TAG, name)
        if self._assets.storage.stat(f"{_REFS}{folder}/{_TOMBSTONE}") is not None:
            return None
        return self._read(folder)

    def _read(self, folder: str) -> SnapshotId | None:
        key = f"{_REFS}{folder}/{_REF_FILE}"
        match self._assets.storage.read(key):
            case Fetched(data, _):
                return parse_ref(data, key)
            case _:
                return None


class RepoObject:
    """Spec v2: everything in one object, read once."""

    def __init__(self, info: RepoInfo) -> None:
        self.info = info

    def branches(self) -> set[str]:
        return set(self.info.branches)

    def branch(self, name: str) -> SnapshotId:
        row = self.info.branches.get(name)
        if row is None:
            raise no_branch(name)
        return self.info.snapshots.id(row)

    def tags(self) -> set[str]:
        return set(self.info.tags)

    def tag(self, name: str) -> SnapshotId:
        row = self.info.tags.get(name)
        if row is None:
            raise _no_tag(name)
        return self.info.snapshots.id(row)

    def record(self, id: SnapshotId) -> SnapshotRecord:
        return self.info.snapshots.record(self._row(id))

    def ancestry(self, id: SnapshotId) -> Iterator[SnapshotRecord]:
        return self.info.snapshots.ancestry(self._row(id))

    def newest_at(self, id: SnapshotId, limit: int) -> SnapshotId | None:
        row = self.info.snapshots.newest_at(self._row(id), limit)
        return None if row is None else self.info.snapshots.id(row)

    def _row(self, id: SnapshotId) -> int:
        row = self.info.snapshots.row(id)
        if row is None:
            raise SnapshotNotFoundError(f"the repository has no snapshot {id}")
        return row


def branch_key(name: str) -> str:
    """The ref file of a branch (spec v1)."""
    return f"{_REFS}{_checked_name(_BRANCH, name)}/{_REF_FILE}"


def tag_key(name: str) -> str:
    """The ref file of a tag (spec v1)."""
    return f"{_REFS}{_checked_name(_TAG, name)}/{_REF_FILE}"


def tombstone_key(name: str) -> str:
    """What lies beside the ref file of a deleted tag (spec v1)."""
    return f"{_REFS}{_checked_name(_TAG, name)}/{_TOMBSTONE}"


def encode_ref(id: SnapshotId) -> bytes:
    """A ref file that names a snapshot."""
    return msgspec.json.encode(_Ref(str(id)))


def parse_ref(data: bytes, key: str) -> SnapshotId:
    """The snapshot that a ref file names."""
    if len(data) > _MAX_REF_SIZE:
        raise FormatError(f"a ref file of {len(data)} bytes", key=key)
    try:
        return SnapshotId.parse(msgspec.json.decode(data, type=_Ref).snapshot)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it names no snapshot ({error})", key=key) from error


def no_branch(name: str) -> RefNotFoundError:
    message = f"the repository has no branch {name!r}: create it, or name one of list_branches()"
    return RefNotFoundError(message)


class _Ref(msgspec.Struct):
    snapshot: str


def _checked_name(prefix: str, name: str) -> str:
    if "/" in name or "\0" in name:
        message = f"invalid ref name {name!r}: names have no slash in repositories of spec v1"
        raise InvalidInputError(message, ErrorKind.INVALID_REF_NAME)
    return prefix + name


def _record_of(snapshot: Snapshot) -> SnapshotRecord:
    return SnapshotRecord(
        id=snapshot.id,
        parent_id=snapshot.parent_id,
        flushed_at=snapshot.flushed_at,
        message=snapshot.message,
        metadata=snapshot.metadata,
    )


def _no_tag(name: str) -> RefNotFoundError:
    return RefNotFoundError(f"the repository has no tag {name!r}, or it was deleted")
