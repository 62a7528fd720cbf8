"""What an operating system error means for a repository, and what to do about it."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from icechunk_stream.errors import ErrorKind, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The call itself is not there; EPERM is what some file systems say instead.
LACKING = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_ADVICE = {
    errno.EACCES: "check the owner and the mode of the file and of its directories",
    errno.EPERM: "check the owner, the mode and the attributes of the file and of its directories",
    errno.EROFS: "mount the file system writable, or open the repository for reading only",
    errno.ENOSPC: "free space or inodes on the file system and try again",
    errno.EDQUOT: "free space within the quota, or raise it, and try again",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOTDIR: "move away the file that stands where a directory belongs",
    errno.EISDIR: "move away the directory that stands where an object belongs",
    errno.ENOTEMPTY: "move away the directory that stands where an object belongs",
    errno.ENOENT: "the directory was removed at the same time: try again",
    errno.EMFILE: "raise the limit of open files, or work with fewer threads",
    errno.ENFILE: "raise the system's limit of open files",
    errno.EFBIG: "restore the object: none of a repository's is this large",
    errno.EIO: "check the disk, or the connection to the file server",
} | dict.fromkeys(
    LACKING,
    "the file system lacks a call that a repository needs:"
    " move the repository to another file system or to an object store",
)
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_NO_ADVICE: dict[int, str] = {}


def is_missing(error: OSError) -> bool:
    """Whether a failed read says that there is no such object."""
    return error.errno in _MISSING


def explain(
    error: OSError, doing: str, key: str, advice: Mapping[int, str] = _NO_ADVICE
) -> StorageError:
    """The storage error for an operating system error; ``advice`` goes before the general one."""
    number = error.errno or 0
    hint = advice.get(number) or _ADVICE.get(number, "see the system's log")
    kind = ErrorKind.READ_ONLY_STORAGE if number == errno.EROFS else ErrorKind.IO
    reason = error.strerror or str(error)
    return StorageError(f"cannot {doing} {key!r}: {reason}; {hint}", kind, key=key)


@contextmanager
def explained(doing: str, key: str, advice: Mapping[int, str] = _NO_ADVICE) -> Iterator[None]:
    """Let no operating system error out of the block."""
    try:
        yield
    except OSError as error:
        raise explain(error, doing, key, advice) from error
