"""Full, read-only and crippled file systems: clear errors, old bytes, nothing left behind."""

import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from icechunk_stream.errors import ErrorKind, StorageError
from icechunk_stream.storage import LocalStorage, Storage, Version, Written
from icechunk_stream.testing.storage_steps import create, fetch, keys, update
from tests.storage import fuse_server as fuse
from tests.storage.mounts import mounted_fuse, mounted_tmpfs, remount_read_only

Write = Callable[[Storage, Version, bytes], object]

WRITES: dict[str, Write] = {
    "put": lambda storage, version, data: storage.put("repo", data),
    "put_many": lambda storage, version, data: storage.put_many(
        [("repo", data), ("chunks/B", b"")]
    ),
    "create": lambda storage, version, data: storage.put_if("other", data, None),
    "update": lambda storage, version, data: storage.put_if("repo", data, version),
    "copy": lambda storage, version, data: storage.copy_if("repo", "overwritten/repo.1", version),
    "nested": lambda storage, version, data: storage.put("new/directory/object", data),
}
SMALL = b"small"
LARGE = bytes(600_000)

# What fails, how it is answered, in which writes, and what the error says.
FAILURES: dict[str, tuple[int, int, list[str], str]] = {
    "no links": (fuse.LINK, errno.ENOSYS, ["create"], "hard link"),
    "links refused": (fuse.LINK, errno.EPERM, ["create"], "hard link"),
    "links unsupported": (fuse.LINK, errno.EOPNOTSUPP, ["create"], "hard link"),
    "no rename": (fuse.RENAME, errno.ENOSYS, ["put", "put_many", "update"], "atomic rename"),
    "rename invalid": (fuse.RENAME, errno.EINVAL, ["put", "update", "copy"], "atomic rename"),
    "quota": (fuse.WRITE, errno.EDQUOT, ["put", "create", "update"], "quota"),
    "quota at close": (fuse.FLUSH, errno.EDQUOT, ["put", "create", "update"], "quota"),
    "disk at fsync": (fuse.FSYNC, errno.EIO, ["put", "create", "update"], "check the disk"),
    "refused": (fuse.CREATE, errno.EACCES, ["put", "create", "update"], "owner and the mode"),
    "no directory": (fuse.MKDIR, errno.ENOSPC, ["nested"], "free space"),
}
CASES = [(failure, write) for failure, case in FAILURES.items() for write in case[2]]


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    with mounted_tmpfs(tmp_path / "full", "size=1m") as target:
        yield target


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


@contextmanager
def lock_held(directory: Path) -> Iterator[None]:
    """Another process holds the lock that writers take."""
    script = (
        "import fcntl, os; fcntl.flock(os.open('.', 0), fcntl.LOCK_EX); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        yield
        holder.kill()


@pytest.mark.parametrize("write", ["put", "put_many", "create", "update", "nested"])
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_full_disk_keeps_the_old_bytes(full: Path, write: str, durability: str) -> None:
    storage = LocalStorage(full, durability="fsync" if durability == "fsync" else "os")
    version = create(storage, "repo", LARGE)
    with pytest.raises(StorageError, match=r"No space left on device; free space") as caught:
        WRITES[write](storage, version, LARGE)
    assert caught.value.kind == ErrorKind.IO
    assert caught.value.key in {"repo", "other", "new/directory/object"}
    assert fetch(storage, "repo").data == LARGE
    assert fetch(storage, "repo").version == version
    assert set(files(full)) <= {"repo", "chunks/B"}


def test_a_full_disk_has_no_room_for_a_backup(full: Path) -> None:
    storage = LocalStorage(full)
    version = create(storage, "repo", LARGE)
    with pytest.raises(StorageError, match="free space"):
        storage.copy_if("repo", "overwritten/repo.1", version)
    assert files(full) == ["repo"]


def test_a_disk_without_inodes_keeps_the_old_bytes(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "full", "size=1m,nr_inodes=3") as target:
        storage = LocalStorage(target)
        version = create(storage, "repo", SMALL)
        (target / "last").mkdir()
        with pytest.raises(StorageError, match="free space or inodes"):
            storage.put_if("repo", b"newer", version)
        assert storage.get("repo") == SMALL


@pytest.mark.parametrize("write", WRITES)
def test_a_read_only_mount_refuses_writes(full: Path, write: str) -> None:
    storage = LocalStorage(full)
    version = create(storage, "repo", SMALL)
    remount_read_only(full)
    with pytest.raises(StorageError, match="Read-only file system; mount") as caught:
        WRITES[write](storage, version, SMALL)
    assert caught.value.kind == ErrorKind.READ_ONLY_STORAGE
    assert files(full) == ["repo"]


def test_deletes_on_a_read_only_mount_are_reported_one_by_one(full: Path) -> None:
    storage = LocalStorage(full)
    storage.put_many([("chunks/A", SMALL), ("repo", SMALL)])
    remount_read_only(full)
    failures = storage.delete_many(["repo", "chunks/A"])
    assert sorted(failure.key for failure in failures) == ["chunks/A", "repo"]
    assert all("Read-only file system" in failure.reason for failure in failures)
    assert keys(storage) == ["chunks/A", "repo"]


def test_everything_is_read_from_a_read_only_mount_while_a_writer_has_the_lock(full: Path) -> None:
    version = create(LocalStorage(full), "repo", SMALL)
    LocalStorage(full).put("chunks/A", SMALL)
    remount_read_only(full)
    with lock_held(full), lock_held(full / "chunks"):
        assert_readable(LocalStorage(full), version)


@pytest.mark.parametrize(("failure", "write"), CASES)
def test_a_failing_call_keeps_the_old_bytes(tmp_path: Path, failure: str, write: str) -> None:
    opcode, number, _, advice = FAILURES[failure]
    # The kernel renames by the newer call where the server has it.
    failures = {opcode: number} | ({fuse.RENAME2: number} if opcode == fuse.RENAME else {})
    with mounted_fuse(tmp_path / "fuse", failures) as target:
        storage = LocalStorage(target)
        version = create(storage, "repo", SMALL)
        (target / "armed").mkdir()
        with pytest.raises(StorageError, match=advice):
            WRITES[write](storage, version, b"newer")
        assert fetch(storage, "repo").data == SMALL
        assert files(target) == ["repo"]


def test_a_directory_that_is_not_made_durable_is_told(tmp_path: Path) -> None:
    with mounted_fuse(tmp_path / "fuse", {fuse.FSYNCDIR: errno.EIO}) as target:
        storage = LocalStorage(target)
        version = create(storage, "repo", SMALL)
        (target / "armed").mkdir()
        with pytest.raises(StorageError, match="in place, but a loss of power may undo"):
            storage.put_if("repo", b"newer", version)
        assert storage.get("repo") == b"newer"
        update(LocalStorage(target, durability="os"), "repo", SMALL, fetch(storage, "repo").version)


def test_all_but_creation_works_without_links(tmp_path: Path) -> None:
    with mounted_fuse(tmp_path / "fuse", {fuse.LINK: errno.EPERM}) as target:
        (target / "armed").mkdir()
        storage = LocalStorage(target)
        storage.put("repo", SMALL)
        version = update(storage, "repo", b"newer", fetch(storage, "repo").version)
        storage.put_many([("chunks/A", SMALL), ("chunks/B", SMALL)])
        assert isinstance(storage.copy_if("repo", "overwritten/1", version), Written)
        assert storage.delete_many(["chunks/A"]) == []
        assert keys(storage) == ["chunks/B", "overwritten/1", "repo"]


def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    version = create(LocalStorage(tmp_path), "repo", SMALL)
    LocalStorage(tmp_path).put("chunks/A", SMALL)
    with lock_held(tmp_path), lock_held(tmp_path / "chunks"):
        assert_readable(LocalStorage(tmp_path), version)


def test_a_lock_that_is_never_given_back_ends_in_an_error(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, lock_timeout=0.05)
    version = create(storage, "repo", SMALL)
    with lock_held(tmp_path):
        with pytest.raises(StorageError, match=r"held the lock .* more than 0.05 s; find it"):
            storage.put_if("repo", b"newer", version)
        [failure] = storage.delete_many(["repo"])
        assert "held the lock" in failure.reason
        storage.put("chunks/A", SMALL)
    assert files(tmp_path) == ["chunks/A", "repo"]
    update(storage, "repo", b"newer", version)


def assert_readable(storage: Storage, version: Version) -> None:
    assert storage.get("chunks/A") == storage.get("repo") == SMALL
    assert fetch(storage, "repo").version == version
    assert storage.stat("repo") is not None
    assert keys(storage) == ["chunks/A", "repo"]
