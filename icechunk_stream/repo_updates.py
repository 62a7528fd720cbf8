"""Replacing the ``repo`` object of spec v2: one operation, one backup, one swap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Self

from icechunk_stream.assets import REPO_KEY, backup_key
from icechunk_stream.config import with_defaults
from icechunk_stream.effects import now_micros, random_bytes, random_fraction, sleep
from icechunk_stream.errors import (
    CommitStateUnknownError,
    ConflictError,
    ErrorKind,
    ReadOnlyError,
    StorageError,
)
from icechunk_stream.format.ids import OBJECT_ID_SIZE, encode_id
from icechunk_stream.format.repo_info_encode import (
    RepoState,
    build_repo_info,
    seal_repo_info,
)
from icechunk_stream.format.updates import Availability, Update
from icechunk_stream.storage import LostRace, Written
from icechunk_stream.storage.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from icechunk_stream.assets import Assets, HeldRepo
    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.format.repo_info import RepoInfo
    from icechunk_stream.format.updates import UpdateKind
    from icechunk_stream.storage import Storage

# Names of backups count down from the year 3000, so that the newest are listed first.
_YEAR_3000_MILLIS = 32_503_680_000_000
_IMMEDIATE_TRIES = 5
# Fewer bytes are compressed sooner than a thread is woken to do it.
_LIGHT = 2**17


@dataclass(frozen=True, slots=True)
class UpdateRules:
    """How the ``repo`` object is written and how often a lost race is run again."""

    page_size: int
    level: int
    retry: RetryPolicy

    @classmethod
    def of(cls, config: RepositoryConfig) -> Self:
        filled = with_defaults(config)
        assert filled.num_updates_per_repo_info_file is not None
        assert filled.compression is not None
        assert filled.compression.level is not None
        return cls(
            page_size=filled.num_updates_per_repo_info_file,
            level=filled.compression.level,
            retry=_retry_policy(filled),
        )


@dataclass(frozen=True, slots=True, eq=False)
class RepoChange:
    """What an operation makes of a repository; ``state`` still has the log as it was."""

    state: RepoState
    kind: UpdateKind


@dataclass(frozen=True, slots=True, eq=False)
class RepoSwap:
    """One attempt to replace one version of the ``repo`` object."""

    held: HeldRepo
    backup: str
    moment: int
    made: _Made

    @classmethod
    def of(
        cls,
        storage: Storage,
        held: HeldRepo,
        change: RepoChange,
        rules: UpdateRules,
        *,
        at_least: int = 0,
    ) -> RepoSwap:
        """The new object; its entry in the log is newer than all others, and than ``at_least``."""
        backup = backup_name()
        moment = max(now_micros(), change.state.log().newest + 1, at_least)
        state = logged(change.state, Update(change.kind, moment), backup, rules.page_size)
        made = _Made(partial(_make, state, rules.level), storage, len(held.info.root.buffer))
        return cls(held, backup, moment, made)

    def copy_backup(self, storage: Storage) -> Written | LostRace:
        """Keep the version that is being replaced; it has to be there before ``send``."""
        return storage.copy_if(REPO_KEY, backup_key(self.backup), self.held.version)

    def send(self, assets: Assets) -> HeldRepo | LostRace:
        """The newest version, which holds this change, unless another one was quicker."""
        new, data = self.made.get()
        try:
            outcome = assets.storage.put_if(REPO_KEY, data, self.held.version)
        except CommitStateUnknownError as unknown:
            return self._look_again(assets, unknown)
        match outcome:
            case Written(version):
                return assets.hold_repo(version, new)
            case LostRace():
                return outcome

    def _look_again(self, assets: Assets, unknown: CommitStateUnknownError) -> HeldRepo | LostRace:
        """After a lost answer: the log tells whether the write took place."""
        try:
            found = assets.repo()
            if found.version != self.held.version:
                return found if self._is_logged(assets, found.info) else LostRace()
        except StorageError as error:
            raise unknown from error
        # It has not taken place yet, but the request may still be on its way.
        raise unknown

    def _is_logged(self, assets: Assets, info: RepoInfo) -> bool:
        """Whether the log names our backup, which only the object that we sent does."""
        page, seen = info, set[str]()
        while True:
            updates, before = page.updates(), page.repo_before_updates
            if self.backup in {before, *(update.backup for update in updates)}:
                return True
            # Damaged logs have pages without entries, and pages that follow themselves.
            if not updates or updates[-1].updated_at < self.moment:
                return False
            if before is None or before in seen:
                return False
            seen.add(before)
            earlier = assets.backup(before)
            if earlier is None:
                return False
            page = earlier


def _make(state: RepoState, level: int) -> tuple[RepoInfo, bytes]:
    """What the object of a state says, and the object as it is stored."""
    info = build_repo_info(state, REPO_KEY)
    return info, seal_repo_info(info, level)


class _Made:
    """An object that is made while others are written, unless all of that takes no time."""

    def __init__(
        self, make: Callable[[], tuple[RepoInfo, bytes]], storage: Storage, size: int
    ) -> None:
        self._make = make
        is_light = storage.writes_to_memory and size < _LIGHT
        self._pending = None if is_light else storage.executor.submit(make)
        self._made = make() if is_light else None

    def get(self) -> tuple[RepoInfo, bytes]:
        pending = self._pending
        if self._made is None and pending is not None:
            # A worker of the pool must not wait for one that is yet to begin.
            self._made = self._make() if pending.cancel() else pending.result()
        assert self._made is not None
        return self._made


def update_repo(
    assets: Assets,
    rules: UpdateRules,
    change: Callable[[RepoInfo], RepoChange | None],
    *,
    needs_online: bool = True,
) -> RepoInfo:
    """Apply a change to the newest ``repo`` object; on every lost race, to the one that won.

    Where there is nothing to change, it stays as it is.
    """
    for tries in range(1, _IMMEDIATE_TRIES + rules.retry.max_tries + 1):
        held = assets.repo()
        if needs_online:
            require_online(held.info)
        wanted = change(held.info)
        if wanted is None:
            return held.info
        swap = RepoSwap.of(assets.storage, held, wanted, rules)
        written = _attempt(swap, assets)
        if not isinstance(written, LostRace):
            return written.info
        _wait(rules.retry, tries - _IMMEDIATE_TRIES)
    raise _exhausted(assets, rules)


def require_online(info: RepoInfo) -> None:
    """Refuse to change a repository that was set to read-only."""
    if info.status.availability is Availability.ONLINE:
        return
    reason = "no reason is given" if info.status.reason is None else f"reason: {info.status.reason}"
    message = f"the repository is read-only ({reason}): set its status to online to change it"
    raise ReadOnlyError(message, ErrorKind.READ_ONLY_REPOSITORY)


def backup_name(key: str = REPO_KEY) -> str:
    """A fresh name under which the present state of a mutable object is kept."""
    countdown = _YEAR_3000_MILLIS - now_micros() // 1000
    return f"{key}.{countdown:014d}.{encode_id(random_bytes(OBJECT_ID_SIZE))}"


def logged(state: RepoState, entry: Update, backup: str, page_size: int) -> RepoState:
    """A state whose log begins with ``entry``; ``backup`` is where the log as it was lies."""
    page, before = state.log().backed_up(backup).page(page_size - 1)
    return replace(
        state,
        updates=(entry,),
        older=page,
        repo_before_updates=state.repo_before_updates if before is None else before,
    )


def _attempt(swap: RepoSwap, assets: Assets) -> HeldRepo | LostRace:
    match swap.copy_backup(assets.storage):
        case Written():
            return swap.send(assets)
        case LostRace() as lost:
            return lost


def _wait(policy: RetryPolicy, tries: int) -> None:
    if 0 < tries < policy.max_tries:
        sleep(policy.pause(tries, random_fraction()))


def _retry_policy(filled: RepositoryConfig) -> RetryPolicy:
    assert filled.repo_update_retries is not None
    retries = filled.repo_update_retries.default
    assert retries is not None
    assert retries.max_tries is not None
    assert retries.initial_backoff_ms is not None
    assert retries.max_backoff_ms is not None
    return RetryPolicy(
        retries.max_tries, retries.initial_backoff_ms / 1000, retries.max_backoff_ms / 1000
    )


def _exhausted(assets: Assets, rules: UpdateRules) -> ConflictError:
    tries = _IMMEDIATE_TRIES + rules.retry.max_tries
    message = (
        f"others changed {REPO_KEY!r} of {assets.storage!r} during each of {tries} attempts:"
        " try again later, or raise repo_update_retries"
    )
    return ConflictError(message=message, kind=ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED)
