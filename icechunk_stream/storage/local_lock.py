"""The lock under which writers of a directory take turns; readers never take it."""

from __future__ import annotations

import errno
import fcntl
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from icechunk_stream.errors import ErrorKind, StorageError
from icechunk_stream.storage.local_errors import LACKING, explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.storage.local_tree import Directory

_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.02
# Network file systems without locks of their own answer EBADF or ENOLCK.
_ADVICE = dict.fromkeys(
    (*LACKING, errno.EBADF, errno.ENOLCK),
    "conditional writes and deletes need flock on directories, which the file system does not do:"
    " move the repository to one that does, or to an object store",
)


@contextmanager
def locked(directory: Directory, key: str, timeout: float) -> Iterator[None]:
    """Hold the lock of a freshly opened directory."""
    _lock(directory, key, timeout)
    try:
        yield
    finally:
        # A child forked meanwhile shares the lock: closing our descriptor alone would not free it.
        fcntl.flock(directory.fd, fcntl.LOCK_UN)


def _lock(directory: Directory, key: str, timeout: float) -> None:
    pause, waited = _FIRST_PAUSE, 0.0
    while not _try_lock(directory, key):
        if waited >= timeout:
            raise _too_late(key, timeout)
        time.sleep(pause)
        waited += pause
        pause = min(2 * pause, _LONGEST_PAUSE)


def _try_lock(directory: Directory, key: str) -> bool:
    try:
        fcntl.flock(directory.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise explain(error, "lock the directory of", key, _ADVICE) from error
    return True


def _too_late(key: str, timeout: float) -> StorageError:
    message = (
        f"cannot write {key!r}: another process has held the lock on its directory for more than"
        f" {timeout:g} s; find it (lslocks lists it), let it end, and try again"
    )
    return StorageError(message, ErrorKind.IO, key=key)
