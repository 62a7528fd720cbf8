"""The tip of a branch in the version that a session holds, and the one write that moves it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from icechunk_stream.errors import ErrorKind, FormatError, SessionStateError
from icechunk_stream.format.ids import INITIAL_SNAPSHOT
from icechunk_stream.format.repo_info_encode import RepoState
from icechunk_stream.format.updates import CommitAmended, NewCommit, NewDetachedSnapshot
from icechunk_stream.info import SpecVersion
from icechunk_stream.refs import branch_key, encode_ref, no_branch, parse_ref
from icechunk_stream.repo_updates import RepoChange, RepoSwap, require_online
from icechunk_stream.storage import Fetched, LostRace, Written

if TYPE_CHECKING:
    from icechunk_stream.assets import Assets, HeldRepo
    from icechunk_stream.format.ids import SnapshotId
    from icechunk_stream.format.repo_info import RepoInfo, SnapshotRecord
    from icechunk_stream.format.updates import UpdateKind
    from icechunk_stream.repo_updates import UpdateRules
    from icechunk_stream.storage import Version


@dataclass(frozen=True, slots=True)
class FileTip:
    """Spec v1: the ref file of a branch in one version."""

    branch: str
    id: SnapshotId
    version: Version


@dataclass(frozen=True, slots=True, eq=False)
class RepoTip:
    """Spec v2: a branch in one version of the ``repo`` object."""

    branch: str
    id: SnapshotId
    held: HeldRepo


Tip = FileTip | RepoTip


@dataclass(frozen=True, slots=True)
class Commit:
    """The branch moves on to a new snapshot, whose parent is its tip."""

    record: SnapshotRecord


@dataclass(frozen=True, slots=True)
class Amend:
    """The branch moves to a snapshot that takes the place of its tip."""

    record: SnapshotRecord


@dataclass(frozen=True, slots=True)
class Detach:
    """A snapshot is listed, and no branch moves."""

    record: SnapshotRecord


Move = Commit | Amend | Detach


class Swap(Protocol):
    """One attempt to make a snapshot visible."""

    def prepare(self) -> LostRace | None:
        """What has to be there before ``send``, and may be written beside all other objects."""

    def send(self) -> Written | LostRace:
        """The conditional write."""


def read_tip(assets: Assets, spec_version: SpecVersion, branch: str) -> Tip:
    """The newest tip of a branch: one request."""
    if spec_version == SpecVersion.v1:
        return _read_file_tip(assets, branch)
    return tip_in(assets.repo(), branch)


def tip_in(held: HeldRepo, branch: str) -> RepoTip:
    """The tip of a branch in a version of the ``repo`` object."""
    row = held.info.branches.get(branch)
    if row is None:
        raise no_branch(branch)
    return RepoTip(branch, held.info.snapshots.id(row), held)


def check_amendable(tip: Tip) -> None:
    """Refuse to replace a tip that nothing can take the place of."""
    if not isinstance(tip, RepoTip):
        text = "amending needs a repository of spec v2, and this one has spec v1: commit"
        raise FormatError(text, ErrorKind.UNSUPPORTED_SPEC_VERSION)
    if tip.id == INITIAL_SNAPSHOT:
        text = "the first snapshot of a repository cannot be amended: commit instead"
        raise SessionStateError(text, ErrorKind.NO_AMEND_FOR_INITIAL_COMMIT)


def swap_of(assets: Assets, tip: Tip, move: Move, rules: UpdateRules) -> Swap:
    """The attempt to apply a move to a tip."""
    match tip:
        case FileTip() if isinstance(move, Detach):
            return _NoSwap(tip)
        case FileTip():
            return _FileSwap(assets, tip, move.record.id)
        case RepoTip():
            require_online(tip.held.info)
            change = _moved(tip, move)
            swap = RepoSwap.of(
                assets.storage, tip.held, change, rules, at_least=move.record.flushed_at
            )
            return _RepoSwap(assets, swap)


@dataclass(frozen=True, slots=True)
class _NoSwap:
    """Spec v1 has no list in which a snapshot without a branch would stand."""

    tip: FileTip

    def prepare(self) -> None:
        return None

    def send(self) -> Written:
        return Written(self.tip.version)


@dataclass(frozen=True, slots=True)
class _FileSwap:
    assets: Assets
    tip: FileTip
    new: SnapshotId

    def prepare(self) -> None:
        return None

    def send(self) -> Written | LostRace:
        data = encode_ref(self.new)
        key = branch_key(self.tip.branch)
        return self.assets.storage.put_if(key, data, self.tip.version)


@dataclass(frozen=True, slots=True)
class _RepoSwap:
    assets: Assets
    swap: RepoSwap

    def prepare(self) -> LostRace | None:
        outcome = self.swap.copy_backup(self.assets.storage)
        return outcome if isinstance(outcome, LostRace) else None

    def send(self) -> Written | LostRace:
        outcome = self.swap.send(self.assets)
        return outcome if isinstance(outcome, LostRace) else Written(outcome.version)


def _moved(tip: RepoTip, move: Move) -> RepoChange:
    """The repository with one more snapshot; whether a branch moves to it is in the move."""
    info = tip.held.info
    state = RepoState.of(info)
    record = move.record
    state = replace(state, snapshots=(*state.snapshots, _with_logs(info, tip.id, move)))
    if not isinstance(move, Detach):
        state = replace(state, branches={**state.branches, tip.branch: record.id})
    return RepoChange(state, _kind(tip, move))


def _with_logs(info: RepoInfo, tip: SnapshotId, move: Move) -> SnapshotRecord:
    """An amended snapshot hands on the logs of ancestors that were expired."""
    row = info.snapshots.row(tip)
    if not isinstance(move, Amend) or row is None:
        return move.record
    return replace(move.record, pruned_logs=info.snapshots.record(row).pruned_logs)


def _kind(tip: RepoTip, move: Move) -> UpdateKind:
    match move:
        case Commit(record):
            return NewCommit(tip.branch, record.id)
        case Amend(record):
            return CommitAmended(tip.branch, tip.id, record.id)
        case Detach(record):
            return NewDetachedSnapshot(record.id)


def _read_file_tip(assets: Assets, branch: str) -> FileTip:
    key = branch_key(branch)
    match assets.storage.read(key):
        case Fetched(data, version):
            return FileTip(branch, parse_ref(data, key), version)
        case _:
            raise no_branch(branch)
