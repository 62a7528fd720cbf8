"""Links, special files and directories where a repository keeps plain files."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from icechunk_stream.errors import StorageError
from icechunk_stream.storage import Last, LocalStorage, LostRace, Missing, ReadRequest, Version
from icechunk_stream.testing.storage_steps import create, fetch, keys

SECRET = b"of somebody else"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory beside the repository, laid out like one."""
    for name in ("chunks", "refs/branch.main"):
        (tmp_path / "outside" / name).mkdir(parents=True)
    for name in ("repo", "chunks/A", "refs/branch.main/ref.json"):
        (tmp_path / "outside" / name).write_bytes(SECRET)
    return tmp_path / "outside"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path / "repository", lock_timeout=1)
    storage.put_many([("chunks/B", b"own"), ("snapshots/S", b"own")])
    return storage


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


INTRUDERS: dict[str, Callable[[Path, Path], object]] = {
    "symbolic link": lambda path, outside: path.symlink_to(outside / "repo"),
    "symbolic link ": lambda path, outside: path.symlink_to("chunks/B"),
    "symbolic link  ": lambda path, outside: path.symlink_to("nothing"),
    "symbolic link   ": lambda path, outside: path.symlink_to(path.name),
    "FIFO": lambda path, outside: os.mkfifo(path),
    "directory": lambda path, outside: path.mkdir(),
    "device": lambda path, outside: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5)),
    "socket": lambda path, outside: make_socket(path),
}


@pytest.mark.parametrize("kind", INTRUDERS)
def test_an_intruder_is_refused_and_named(storage: LocalStorage, outside: Path, kind: str) -> None:
    INTRUDERS[kind](storage.path / "repo", outside)
    uses: list[Callable[[], object]] = [
        lambda: storage.get("repo"),
        lambda: storage.get("repo", Last(1)),
        lambda: storage.get_many([ReadRequest("chunks/B"), ReadRequest("repo")]),
        lambda: storage.read("repo"),
        lambda: storage.stat("repo"),
        lambda: storage.put_if("repo", b"new", None),
        lambda: storage.put_if("repo", b"new", Version("1.1.1.1")),
        lambda: storage.copy_if("repo", "overwritten/1", Version("1.1.1.1")),
    ]
    for use in uses:
        with pytest.raises(StorageError, match=f"'repo' leads to a {kind.strip()} where") as caught:
            use()
        assert caught.value.key == "repo"
    assert keys(storage) == ["chunks/B", "snapshots/S"]
    assert (outside / "repo").read_bytes() == SECRET


@pytest.mark.parametrize("kind", [kind for kind in INTRUDERS if kind != "directory"])
def test_put_replaces_an_intruder_and_not_what_it_leads_to(
    storage: LocalStorage, outside: Path, kind: str
) -> None:
    INTRUDERS[kind](storage.path / "repo", outside)
    storage.put("repo", b"new")
    assert storage.get("repo") == b"new"
    assert (outside / "repo").read_bytes() == SECRET
    assert storage.get("chunks/B") == b"own"


def test_a_directory_is_not_replaced_or_deleted(storage: LocalStorage) -> None:
    with pytest.raises(StorageError, match="move away the directory"):
        storage.put("chunks", b"new")
    [failure] = storage.delete_many(["chunks"])
    assert failure.key == "chunks"
    assert "move away the directory" in failure.reason
    assert keys(storage) == ["chunks/B", "snapshots/S"]
    assert os.listdir(storage.path / "chunks") == ["B"]


def test_a_file_is_no_directory(storage: LocalStorage) -> None:
    storage.put("repo", b"own")
    assert storage.read("repo/A") == Missing()
    assert storage.delete_many(["repo/A"]) == []
    assert keys(storage, "repo/") == []
    with pytest.raises(StorageError, match="move away the file"):
        storage.put("repo/A", b"new")


@pytest.mark.parametrize(
    ("link", "target", "key"),
    [
        ("manifests", "outside/chunks", "manifests/A"),
        ("refs", "outside/refs", "refs/branch.main/ref.json"),
        ("manifests", "repository/chunks", "manifests/B"),
        ("manifests", "nowhere", "manifests/A"),
    ],
)
def test_a_linked_directory_is_refused(
    storage: LocalStorage, outside: Path, link: str, target: str, key: str
) -> None:
    (storage.path / link).symlink_to(storage.path.parent / target)
    uses: list[Callable[[], object]] = [
        lambda: storage.get(key),
        lambda: storage.read(key),
        lambda: storage.stat(key),
        lambda: storage.put(key, b"new"),
        lambda: storage.put_many([(key, b"new"), ("chunks/C", b"new")]),
        lambda: storage.put_if(key, b"new", None),
        lambda: list(storage.list(f"{link}/")),
    ]
    for use in uses:
        with pytest.raises(StorageError, match="leads to a symbolic link where"):
            use()
    [failure] = storage.delete_many([key])
    assert "symbolic link" in failure.reason
    assert [name for name in keys(storage) if name != "chunks/C"] == ["chunks/B", "snapshots/S"]
    assert sorted(os.listdir(outside / "chunks")) == ["A"]
    assert (outside / "refs/branch.main/ref.json").read_bytes() == SECRET


def test_a_directory_swapped_for_a_link_after_its_first_use_leads_nowhere(
    storage: LocalStorage, outside: Path
) -> None:
    assert storage.get("chunks/B") == b"own"
    (storage.path / "chunks").rename(storage.path / "moved")
    (storage.path / "chunks").symlink_to(outside / "chunks")
    assert storage.get("chunks/B") == b"own"
    with pytest.raises(StorageError, match="symbolic link"):
        storage.get("chunks/A")
    with pytest.raises(StorageError, match="symbolic link"):
        storage.put("chunks/B", b"new")
    assert os.listdir(outside / "chunks") == ["A"]


def test_a_linked_root_is_the_repository(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(storage.path)
    linked = LocalStorage(tmp_path / "link")
    version = create(linked, "repo", b"own")
    assert fetch(storage, "repo").version == version
    assert keys(linked) == ["chunks/B", "repo", "snapshots/S"]


def test_a_file_as_root_holds_nothing_and_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(SECRET)
    storage = LocalStorage(tmp_path / "file")
    assert storage.read("repo") == Missing()
    assert keys(storage) == []
    with pytest.raises(StorageError, match="move away the file"):
        storage.put("repo", b"new")
    assert (tmp_path / "file").read_bytes() == SECRET


def test_a_hard_link_is_deleted_and_replaced_without_its_other_name(
    storage: LocalStorage, outside: Path
) -> None:
    os.link(outside / "repo", storage.path / "repo")
    os.link(outside / "repo", storage.path / "chunks" / "A")
    assert storage.put_if("repo", b"new", fetch(storage, "repo").version) != LostRace()
    assert storage.delete_many(["chunks/A"]) == []
    assert (outside / "repo").read_bytes() == SECRET


def test_names_that_no_key_has_are_passed_over(storage: LocalStorage) -> None:
    for name in (
        b"\xff",
        b"%41",
        b"%2F",
        b"%zz",
        b"%c3%a9",
        b"tmp#1",
        "é".encode(),
        b"a*b",
        b"%00",
    ):
        (storage.path / os.fsdecode(name)).write_bytes(b"")
    assert keys(storage) == ["chunks/B", "snapshots/S"]
