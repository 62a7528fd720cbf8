import gc
import os
import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from icechunk_stream.errors import InvalidInputError, ObjectNotFoundError
from icechunk_stream.storage import (
    Durability,
    LocalStorage,
    LostRace,
    Missing,
    ReadRequest,
    Storage,
    local_filesystem_storage,
)
from icechunk_stream.testing.storage_contract import StorageContract
from icechunk_stream.testing.storage_steps import create, fetch, keys


class TestLocalStorage(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return local_filesystem_storage(tmp_path / "repository")


class TestLocalStorageWithoutFsync(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return local_filesystem_storage(str(tmp_path / "repository"), durability="os")


def test_reading_makes_no_directory_and_writing_makes_all(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "a" / "b" / "c")
    with pytest.raises(ObjectNotFoundError, match=r"check the path"):
        storage.get("repo")
    assert storage.read("repo") == Missing()
    assert storage.stat("repo") is None
    assert keys(storage) == []
    assert storage.delete_many(["repo"]) == []
    assert not (tmp_path / "a").exists()
    create(storage, "repo", b"")
    assert (tmp_path / "a/b/c/repo").is_file()


def test_a_relative_path_stays_where_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage("repository")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    storage.put("repo", b"")
    assert (tmp_path / "repository/repo").is_file()


def test_a_pickled_storage_keeps_its_options_and_works(tmp_path: Path) -> None:
    storage = LocalStorage(
        tmp_path, durability="os", file_mode=0o600, lock_timeout=3, concurrency=2
    )
    storage.put_many([("chunks/A", b"a"), ("chunks/B", b"b")])
    copy = pickle.loads(pickle.dumps(storage))
    assert copy == storage
    assert hash(copy) == hash(storage)
    assert copy.__reduce__()[0].keywords == {
        "durability": "os",
        "file_mode": 0o600,
        "lock_timeout": 3,
        "concurrency": 2,
    }
    assert keys(copy) == ["chunks/A", "chunks/B"]
    assert copy.put_if("chunks/A", b"", None) == LostRace()


def test_storages_are_equal_by_place_and_durability(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    assert storage == LocalStorage(str(tmp_path))
    assert storage != LocalStorage(tmp_path / "a")
    assert storage != LocalStorage(tmp_path, durability="os")
    assert storage != tmp_path


def test_the_representation_says_where_and_how(tmp_path: Path) -> None:
    assert repr(LocalStorage(tmp_path)) == f"LocalStorage({str(tmp_path)!r}, durability='fsync')"


@pytest.mark.parametrize("options", [{"durability": "none"}, {"concurrency": 0}])
def test_unknown_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="give"):
        LocalStorage(tmp_path, **options)


@pytest.mark.parametrize(("mode", "directory_mode"), [(0o640, 0o750), (0o600, 0o700)])
def test_without_a_umask_files_still_are_private(
    tmp_path: Path, mode: int, directory_mode: int
) -> None:
    storage = LocalStorage(tmp_path / "repository", file_mode=mode)
    umask = os.umask(0)
    try:
        storage.put("chunks/A", b"")
        create(storage, "repo", b"")
    finally:
        os.umask(umask)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in tmp_path.rglob("*")}
    assert modes == {
        "repository": directory_mode,
        "chunks": directory_mode,
        "A": mode,
        "repo": mode,
    }


def test_a_repository_that_was_replaced_is_found(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "repository")
    storage.put_many([("chunks/A", b"old"), ("chunks/B", b"old")])
    assert storage.get("chunks/A") == b"old"
    shutil.rmtree(tmp_path / "repository")
    with pytest.raises(ObjectNotFoundError):
        storage.get("chunks/A")
    storage.put("chunks/A", b"new")
    assert storage.get("chunks/A") == b"new"
    (tmp_path / "repository").rename(tmp_path / "moved")
    create(storage, "repo", b"")
    with pytest.raises(ObjectNotFoundError):
        storage.get("chunks/A")


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_writes_find_a_repository_that_was_removed_moved_or_replaced(
    tmp_path: Path, durability: Durability
) -> None:
    root = tmp_path / "repository"
    storage = LocalStorage(root, durability=durability)
    storage.put("chunks/A", b"first")
    shutil.rmtree(root)
    storage.put("chunks/A", b"second")
    root.rename(tmp_path / "moved")
    storage.put("chunks/A", b"third")
    (root / "chunks").rename(root / "aside")
    LocalStorage(root).put("chunks/B", b"other")
    storage.put("chunks/A", b"fourth")
    found = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert found == {
        "moved/chunks/A": b"second",
        "repository/aside/A": b"third",
        "repository/chunks/A": b"fourth",
        "repository/chunks/B": b"other",
    }


def test_a_storage_that_is_let_go_closes_its_directories_and_threads(tmp_path: Path) -> None:
    def use() -> None:
        storage = LocalStorage(tmp_path)
        storage.put_many([(f"{number}/A", b"") for number in range(100)])
        assert (
            storage.get_many([ReadRequest(f"{number}/A") for number in range(100)]) == [b""] * 100
        )
        assert 0 < len(open_below(tmp_path)) < 70
        threads.extend(storage_threads() - before)

    before, threads = storage_threads(), list[threading.Thread]()
    gc.disable()
    try:
        use()
    finally:
        gc.enable()
    assert threads
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert open_below(tmp_path) == []


def open_below(root: Path) -> list[str]:
    """What this process has open below a directory."""
    links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [link for link in links if link.startswith(str(root))]


def storage_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "icechunk-storage" in thread.name}


def test_content_changed_in_place_is_another_version(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    version = create(storage, "repo", b"old")
    path = tmp_path / "repo"
    times = path.stat()
    path.write_bytes(b"new")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (times.st_ino, times.st_mtime_ns)
    assert fetch(storage, "repo").version != version
    assert storage.put_if("repo", b"lost", version) == LostRace()
    assert path.read_bytes() == b"new"


def test_a_swap_is_later_than_what_it_replaces(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    create(storage, "repo", b"A")
    os.utime(tmp_path / "repo", ns=(0, 10**9 * 4_000_000_000))
    before = (tmp_path / "repo").stat().st_mtime_ns
    storage.put_if("repo", b"B", fetch(storage, "repo").version)
    assert (tmp_path / "repo").stat().st_mtime_ns > before


def test_durable_writes_reach_the_disk_before_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path / "repository")
    calls = recorded(monkeypatch)
    storage.put("chunks/A", b"")
    # Each new directory's entry, then the file, its name, and the entry of that.
    assert calls == [
        "fsync directory",
        "fsync directory",
        "fsync file",
        "rename",
        "fsync directory",
    ]
    calls.clear()
    version = create(storage, "chunks/B", b"")
    assert calls == ["fsync file", "link", "fsync directory"]
    calls.clear()
    storage.put_if("chunks/B", b"new", version)
    assert calls == ["fsync file", "rename", "fsync directory"]
    calls.clear()
    storage.put_many([(f"chunks/{number}", b"") for number in range(10)])
    assert sorted(calls[:-1]) == ["fsync file"] * 10 + ["rename"] * 10
    assert calls[-1] == "fsync directory"
    calls.clear()
    storage.delete_many(["chunks/A", "chunks/B"])
    assert calls == ["fsync directory"]


def test_another_process_s_new_directory_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    (tmp_path / "chunks").mkdir()
    calls = recorded(monkeypatch)
    storage.put("chunks/A", b"")
    assert calls == ["fsync directory", "fsync file", "rename", "fsync directory"]


def test_without_durability_nothing_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path / "repository", durability="os")
    calls = recorded(monkeypatch)
    version = create(storage, "repo", b"")
    storage.put_if("repo", b"new", version)
    storage.put_many([("chunks/A", b""), ("chunks/B", b"")])
    storage.delete_many(["chunks/A"])
    assert calls == ["link", "rename", "rename", "rename"]


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that decide what survives a loss of power, as they happen."""
    calls: list[str] = []
    fsync, rename, link = os.fsync, os.rename, os.link

    def recorded_fsync(fd: int) -> None:
        calls.append("fsync directory" if Path(f"/dev/fd/{fd}").is_dir() else "fsync file")
        fsync(fd)

    def recorded_rename(*arguments: Any, **options: Any) -> None:
        rename(*arguments, **options)
        calls.append("rename")

    def recorded_link(*arguments: Any, **options: Any) -> None:
        link(*arguments, **options)
        calls.append("link")

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "rename", recorded_rename)
    monkeypatch.setattr(os, "link", recorded_link)
    return calls
