"""Three commits that between them make every kind of call, and what each leaves in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icechunk_stream.errors import CommitStateUnknownError, StorageError
from icechunk_stream.repository import Repository
from tests.concurrency.contents import (
    GROUP,
    Contents,
    array,
    delete,
    numbers,
    read,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr.abc.store import Store

    from icechunk_stream.storage import Storage

BIG = bytes(range(256)) * 8  # beyond the inline threshold

FIRST: Contents = {
    "g/zarr.json": GROUP,
    "g/a/zarr.json": array((4,), (2,)),
    "g/a/c/0": numbers(1, 2),
    "g/a/c/1": numbers(3, 4),
    "g/b/zarr.json": array((512,), (256,)),
    "g/b/c/0": BIG,
    "g/b/c/1": BIG[::-1],
    "zarr.json": GROUP,
}
APPENDED: Contents = {
    "g/a/zarr.json": array((8,), (2,)),
    "g/a/c/3": numbers(7, 8),
    "g/b/zarr.json": array((768,), (256,)),
    "g/b/c/2": BIG[1:] + BIG[:1],
}
SHRUNK: Contents = {"g/a/zarr.json": array((6,), (2,)), "g/a/c/2": numbers(5, 6)}

_AFTER_SHRINKING = {**FIRST, **APPENDED, **SHRUNK}


@dataclass(frozen=True)
class Step:
    message: str
    change: Callable[[Store], None]
    after: Contents


def _shrink(store: Store) -> None:
    write(store, SHRUNK)
    delete(store, "g/b")


STEPS = (
    Step("create", lambda store: write(store, FIRST), FIRST),
    Step("append", lambda store: write(store, APPENDED), {**FIRST, **APPENDED}),
    Step(
        "shrink",
        _shrink,
        {
            key: data
            for key, data in _AFTER_SHRINKING.items()
            if not key.startswith("g/b/") and key != "g/a/c/3"
        },
    ),
)
MOST_ERRORS = 3
ROOT = "Repository initialized"
ALL = [ROOT, *(step.message for step in STEPS)]
AFTER = {ROOT: {}, **{step.message: step.after for step in STEPS}}


def messages(repository: Any) -> list[str]:
    """The history of main, oldest first; of either library."""
    return [info.message for info in repository.ancestry(branch="main")][::-1]


def assert_all_committed_once(repository: Any) -> None:
    """Every commit is in the history once, and holds its values; of either library."""
    assert messages(repository) == ALL
    for info in repository.ancestry(branch="main"):
        session = repository.readonly_session(snapshot_id=info.id)
        assert read(session.store) == AFTER[info.message], info.message


def commit_all(repository: Repository, plain: Storage) -> list[StorageError]:
    """Make the commits, each again until it succeeds; the errors on the way.

    ``plain`` is the storage by which the outcome of a failure is looked at.
    """
    errors: list[StorageError] = []
    for step in STEPS:
        errors += commit(repository, plain, step)
    return errors


def commit(repository: Repository, plain: Storage, step: Step) -> list[StorageError]:
    """One commit, which may fail a few times: its branch then is where it was."""
    errors: list[StorageError] = []
    session = None
    while len(errors) < MOST_ERRORS:
        before = messages(Repository.open(plain))
        try:
            session = session or changed(repository, step)
            id = session.commit(step.message)
        except StorageError as error:
            errors.append(error)
        else:
            assert Repository.open(plain).lookup_branch("main") == session.snapshot_id == id
            return errors
        after = messages(Repository.open(plain))
        assert after == before or is_landed(errors[-1], before, after, step)
    raise errors[-1]


def changed(repository: Repository, step: Step) -> Any:
    session = repository.writable_session("main")
    step.change(session.store)
    return session


def is_landed(error: StorageError, before: list[str], after: list[str], step: Step) -> bool:
    return isinstance(error, CommitStateUnknownError) and after == [*before, step.message]
