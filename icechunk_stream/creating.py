"""A new repository: its first snapshot, and the one object that makes it exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.assets import (
    CONFIG_KEY,
    REPO_KEY,
    snapshot_key,
    transaction_log_key,
)
from icechunk_stream.effects import now_micros, sleep
from icechunk_stream.errors import ConflictError, ErrorKind, InvalidInputError
from icechunk_stream.format.config_flex import encode_config_flexbuffer
from icechunk_stream.format.ids import INITIAL_SNAPSHOT
from icechunk_stream.format.repo_info import SnapshotRecord
from icechunk_stream.format.repo_info_encode import RepoState, encode_repo_info
from icechunk_stream.format.snapshot import decode_snapshot
from icechunk_stream.format.snapshot_encode import SnapshotContents, encode_snapshot
from icechunk_stream.format.transaction_log_encode import LogContents, encode_transaction_log
from icechunk_stream.format.updates import Availability, RepoInitialized, Status, Update
from icechunk_stream.info import SpecVersion
from icechunk_stream.opening import Found, find_repository
from icechunk_stream.preparing import prepare_to_write
from icechunk_stream.refs import MAIN, MAIN_REF_KEY, encode_ref
from icechunk_stream.repo_updates import UpdateRules
from icechunk_stream.storage import Fetched, LostRace, Version, Written
from icechunk_stream.storage.probe import PROBE_FOLDER, PROBE_SIZE
from icechunk_stream.stored_config import ConfigState, is_default, save_config_file

if TYPE_CHECKING:
    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.storage import ObjectInfo, Storage

_MESSAGE = "Repository initialized"
_METADATA = {"__icechunk": {"is_root": True}}
_FIRST_KEY = snapshot_key(INITIAL_SNAPSHOT)

# Seconds that another creator gets to finish, or to give way.
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


def create_repository(
    storage: Storage, spec_version: SpecVersion, config: RepositoryConfig, *, check_clean_root: bool
) -> Found:
    """Create one, or raise; of several creators at once at most one succeeds."""
    _refuse_bucket_root(storage)
    _require_absent(storage, check_clean_root=check_clean_root)
    prepare_to_write(storage, config.storage)
    level = UpdateRules.of(config).level
    first = _write_first_snapshot(storage, spec_version, level)
    if spec_version == SpecVersion.v1:
        return Found(spec_version, config, _create_files(storage, config))
    return Found(spec_version, config, _create_repo(storage, config, first, level))


def await_repository(storage: Storage) -> Found | None:
    """The repository that somebody else is creating, if it comes into being soon."""
    found = find_repository(storage)
    if found is not None or storage.stat(_FIRST_KEY) is None:
        return found
    for pause in _PAUSES:
        sleep(pause)
        found = find_repository(storage)
        if found is not None:
            return found
    return None


def _refuse_bucket_root(storage: Storage) -> None:
    if storage.at_bucket_root:
        message = (
            f"{storage!r} has no prefix, and repositories at the root of a bucket are not created"
            " any more: give a prefix; existing ones can still be opened"
        )
        raise InvalidInputError(message, ErrorKind.EMPTY_PREFIX_CREATION)


def _require_absent(storage: Storage, *, check_clean_root: bool) -> None:
    if check_clean_root:
        there = next((info for info in storage.list("") if not _is_left_over(info)), None)
        if there is not None:
            raise _not_clean(storage, there.key)
        return
    for key in (REPO_KEY, MAIN_REF_KEY):
        if storage.stat(key) is not None:
            raise _exists(storage, key)


def _is_left_over(info: ObjectInfo) -> bool:
    """Whether an object is one that a creator who stopped half-way leaves: another one goes on."""
    is_probe = info.key.startswith(PROBE_FOLDER) and info.size == PROBE_SIZE
    return is_probe or info.key in (_FIRST_KEY, transaction_log_key(INITIAL_SNAPSHOT))


def _write_first_snapshot(storage: Storage, spec_version: SpecVersion, level: int) -> int:
    """When the first snapshot was written: by us, or by another creator of the same spec.

    It has the same name in every repository, so it also decides between creators of both specs.
    """
    flushed_at = now_micros()
    contents = SnapshotContents(
        id=INITIAL_SNAPSHOT,
        parent_id=None,
        flushed_at=flushed_at,
        message=_MESSAGE,
        metadata=_METADATA,
        manifest_files=(),
        nodes=(),
    )
    data = encode_snapshot(contents, spec_version, level)
    if isinstance(storage.put_if(_FIRST_KEY, data, None), Written):
        return flushed_at
    there = decode_snapshot(storage.get(_FIRST_KEY), _FIRST_KEY)
    if there.spec_version != spec_version:
        raise _exists(storage, _FIRST_KEY)
    return there.flushed_at


def _create_files(storage: Storage, config: RepositoryConfig) -> ConfigState:
    """Spec v1: the ref of main is what makes a repository of a location."""
    data = encode_ref(INITIAL_SNAPSHOT)
    if isinstance(storage.put_if(MAIN_REF_KEY, data, None), LostRace):
        raise _exists(storage, MAIN_REF_KEY)
    if not _has_given_way(storage):
        raise _exists(storage, REPO_KEY)
    if is_default(config):
        return None
    return save_config_file(storage, config, _config_version(storage))


def _config_version(storage: Storage) -> Version | None:
    """A configuration that a creator left who lost after writing it."""
    found = storage.read(CONFIG_KEY)
    return found.version if isinstance(found, Fetched) else None


def _has_given_way(storage: Storage) -> bool:
    """Whether no ``repo`` object shadows our refs; its creator may be about to take it back."""
    for pause in _PAUSES:
        if storage.stat(REPO_KEY) is None:
            return True
        sleep(pause)
    return storage.stat(REPO_KEY) is None


def _create_repo(storage: Storage, config: RepositoryConfig, first: int, level: int) -> ConfigState:
    """Spec v2: the ``repo`` object is what makes a repository of a location."""
    log = encode_transaction_log(LogContents(INITIAL_SNAPSHOT), SpecVersion.v2, level)
    # Another creator's log is the same, and whoever put it may have stopped before the next step.
    storage.put_if(transaction_log_key(INITIAL_SNAPSHOT), log, None)
    stored = None if is_default(config) else encode_config_flexbuffer(config)
    data = encode_repo_info(_first_state(first, stored), level)
    match storage.put_if(REPO_KEY, data, None):
        case Written(version):
            _give_way(storage, version)
            return stored
        case LostRace():
            raise _exists(storage, REPO_KEY)


def _first_state(flushed_at: int, config: bytes | None) -> RepoState:
    now = max(now_micros(), flushed_at)
    record = SnapshotRecord(INITIAL_SNAPSHOT, None, flushed_at, _MESSAGE, _METADATA)
    return RepoState(
        branches={MAIN: INITIAL_SNAPSHOT},
        tags={},
        deleted_tags=(),
        snapshots=(record,),
        status=Status(Availability.ONLINE, now, None),
        updates=(Update(RepoInitialized(), now),),
        metadata={},
        config=config,
    )


def _give_way(storage: Storage, version: Version) -> None:
    """Take our ``repo`` object back where it would hide a repository of spec v1 just created.

    Whoever created that one may know already that it succeeded, and be committing to it.
    """
    if storage.stat(MAIN_REF_KEY) is None:
        return
    there = storage.read(REPO_KEY)
    if isinstance(there, Fetched) and there.version == version:
        storage.delete_many([REPO_KEY])
    raise _exists(storage, MAIN_REF_KEY)


def _not_clean(storage: Storage, key: str) -> InvalidInputError:
    message = (
        f"{storage!r} is not empty, {key!r} is there: open the repository, or give an empty place;"
        " check_clean_root=False creates one beside what is there"
    )
    return InvalidInputError(message, ErrorKind.PARENT_DIRECTORY_NOT_CLEAN)


def _exists(storage: Storage, key: str) -> ConflictError:
    """The codes are those by which the reference tells that another creator was quicker."""
    message = f"{storage!r} has a repository, or one is being created, as {key!r} shows: open it"
    if key == REPO_KEY:
        return ConflictError(message=message, kind=ErrorKind.REPO_INFO_UPDATED)
    actual = str(INITIAL_SNAPSHOT)
    return ConflictError(None, actual, message, ErrorKind.BRANCH_UPDATE_CONFLICT)
