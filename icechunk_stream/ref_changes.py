"""Branches and tags created, moved and deleted, in the way of either spec."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from icechunk_stream.assets import snapshot_key
from icechunk_stream.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    ObjectNotFoundError,
    RefNotFoundError,
    SessionStateError,
    SnapshotNotFoundError,
    StorageError,
)
from icechunk_stream.format.repo_info_encode import RepoState
from icechunk_stream.format.updates import (
    BranchCreated,
    BranchDeleted,
    BranchReset,
    TagCreated,
    TagDeleted,
)
from icechunk_stream.ops.feature_flags import CREATE_TAG, DELETE_TAG, require_flag
from icechunk_stream.refs import (
    MAIN,
    branch_key,
    encode_ref,
    no_branch,
    parse_ref,
    tag_key,
    tombstone_key,
)
from icechunk_stream.repo_updates import RepoChange, update_repo
from icechunk_stream.storage import Fetched, LostRace

if TYPE_CHECKING:
    from icechunk_stream.assets import Assets
    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.format.repo_info import RepoInfo
    from icechunk_stream.repo_updates import UpdateRules
    from icechunk_stream.storage import Version


class RefChanges(Protocol):
    """What can be done to the refs of a repository."""

    def create_branch(self, name: str, id: SnapshotId) -> None: ...

    def reset_branch(self, name: str, id: SnapshotId, expected: SnapshotId | None) -> None:
        """Point a branch elsewhere; where ``expected`` is given, only from there."""

    def delete_branch(self, name: str) -> None: ...

    def create_tag(self, name: str, id: SnapshotId) -> None: ...

    def delete_tag(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RefFileChanges:
    """Spec v1: each ref is a file of its own, and each change one conditional write."""

    assets: Assets

    def create_branch(self, name: str, id: SnapshotId) -> None:
        key = branch_key(name)
        self._require_snapshot(id)
        if isinstance(self.assets.storage.put_if(key, encode_ref(id), None), LostRace):
            raise self._moved(name, None)

    def reset_branch(self, name: str, id: SnapshotId, expected: SnapshotId | None) -> None:
        key = branch_key(name)
        self._require_snapshot(id)
        tip, version = self._branch(name)
        if expected not in (None, tip):
            raise _conflict(name, expected, tip)
        if isinstance(self.assets.storage.put_if(key, encode_ref(id), version), LostRace):
            raise self._moved(name, tip)

    def delete_branch(self, name: str) -> None:
        _refuse_main(name)
        self._branch(name)
        for failure in self.assets.storage.delete_many([branch_key(name)]):
            message = f"the branch {name!r} could not be deleted: {failure.reason}"
            raise StorageError(message, key=failure.key)

    def create_tag(self, name: str, id: SnapshotId) -> None:
        key = tag_key(name)
        self._require_snapshot(id)
        if isinstance(self.assets.storage.put_if(key, encode_ref(id), None), LostRace):
            raise _tag_exists(name)

    def delete_tag(self, name: str) -> None:
        key, tombstone = tag_key(name), tombstone_key(name)
        if self.assets.storage.stat(key) is None:
            raise _no_tag(name)
        if isinstance(self.assets.storage.put_if(tombstone, b"", None), LostRace):
            raise _no_tag(name)

    def _require_snapshot(self, id: SnapshotId) -> None:
        key = snapshot_key(id)
        if self.assets.storage.stat(key) is None:
            message = f"the repository has no snapshot {id}: name one that its history lists"
            raise ObjectNotFoundError(message, key=key)

    def _branch(self, name: str) -> tuple[SnapshotId, Version]:
        found = self._find_branch(name)
        if found is None:
            raise no_branch(name)
        return found

    def _find_branch(self, name: str) -> tuple[SnapshotId, Version] | None:
        key = branch_key(name)
        match self.assets.storage.read(key):
            case Fetched(data, version):
                return parse_ref(data, key), version
            case _:
                return None

    def _moved(self, name: str, expected: SnapshotId | None) -> ConflictError:
        found = self._find_branch(name)
        return _conflict(name, expected, None if found is None else found[0])


@dataclass(frozen=True, slots=True)
class RepoRefChanges:
    """Spec v2: all refs are in the ``repo`` object, which checks of a change are made against."""

    assets: Assets
    rules: UpdateRules

    def create_branch(self, name: str, id: SnapshotId) -> None:
        def change(info: RepoInfo) -> RepoChange:
            _require_listed(info, id)
            if name in info.branches:
                at = info.snapshots.id(info.branches[name])
                message = f"the branch {name!r} exists already, at {at}: reset it to move it"
                raise AlreadyExistsError(message, ErrorKind.BRANCH_ALREADY_EXISTS)
            return RepoChange(_with_branch(info, name, id), BranchCreated(name))

        update_repo(self.assets, self.rules, change)

    def reset_branch(self, name: str, id: SnapshotId, expected: SnapshotId | None) -> None:
        def change(info: RepoInfo) -> RepoChange:
            tip = _tip(info, name)
            if expected not in (None, tip):
                raise _conflict(name, expected, tip)
            _require_listed(info, id)
            return RepoChange(_with_branch(info, name, id), BranchReset(name, tip))

        update_repo(self.assets, self.rules, change)

    def delete_branch(self, name: str) -> None:
        _refuse_main(name)

        def change(info: RepoInfo) -> RepoChange:
            tip = _tip(info, name)
            state = RepoState.of(info)
            left = {other: at for other, at in state.branches.items() if other != name}
            return RepoChange(replace(state, branches=left), BranchDeleted(name, tip))

        update_repo(self.assets, self.rules, change)

    def create_tag(self, name: str, id: SnapshotId) -> None:
        def change(info: RepoInfo) -> RepoChange:
            _require_listed(info, id)
            require_flag(info, CREATE_TAG)
            _require_new_tag(info, name)
            state = RepoState.of(info)
            return RepoChange(replace(state, tags={**state.tags, name: id}), TagCreated(name))

        update_repo(self.assets, self.rules, change)

    def delete_tag(self, name: str) -> None:
        def change(info: RepoInfo) -> RepoChange:
            require_flag(info, DELETE_TAG)
            if name not in info.tags:
                raise _no_tag(name)
            state = RepoState.of(info)
            left = {other: at for other, at in state.tags.items() if other != name}
            deleted = (*state.deleted_tags, name)
            kind = TagDeleted(name, state.tags[name])
            return RepoChange(replace(state, tags=left, deleted_tags=deleted), kind)

        update_repo(self.assets, self.rules, change)


def _require_listed(info: RepoInfo, id: SnapshotId) -> None:
    if info.snapshots.row(id) is None:
        message = f"the repository has no snapshot {id}: name one that its history lists"
        raise SnapshotNotFoundError(message)


def _require_new_tag(info: RepoInfo, name: str) -> None:
    if name in info.deleted_tags:
        message = f"the tag {name!r} was deleted, and no tag can have its name again: use another"
        raise AlreadyExistsError(message, ErrorKind.TAG_PREVIOUSLY_DELETED)
    if name in info.tags:
        raise _tag_exists(name)


def _with_branch(info: RepoInfo, name: str, id: SnapshotId) -> RepoState:
    state = RepoState.of(info)
    return replace(state, branches={**state.branches, name: id})


def _tip(info: RepoInfo, name: str) -> SnapshotId:
    row = info.branches.get(name)
    if row is None:
        raise no_branch(name)
    return info.snapshots.id(row)


def _refuse_main(name: str) -> None:
    if name == MAIN:
        message = f"the branch {MAIN} cannot be deleted: reset it, or delete the whole repository"
        raise SessionStateError(message, ErrorKind.CANNOT_DELETE_MAIN)


def _conflict(name: str, expected: SnapshotId | None, actual: SnapshotId | None) -> ConflictError:
    known = "it was taken to be absent" if expected is None else f"it was expected at {expected}"
    found = "it is gone" if actual is None else f"it is at {actual}"
    message = f"the branch {name!r} is not as expected ({known}, {found}): look at it again"
    expected_text = None if expected is None else str(expected)
    actual_text = None if actual is None else str(actual)
    kind = ErrorKind.BRANCH_UPDATE_CONFLICT
    return ConflictError(expected_text, actual_text, message, kind)


def _no_tag(name: str) -> RefNotFoundError:
    message = f"the repository has no tag {name!r}, or it was deleted: name one of list_tags()"
    return RefNotFoundError(message)


def _tag_exists(name: str) -> AlreadyExistsError:
    message = f"the tag {name!r} exists already, and tags never move: use another name"
    return AlreadyExistsError(message, ErrorKind.TAG_ALREADY_EXISTS)
