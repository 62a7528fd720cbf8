"""What is found at a location, and reading where nothing can be written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

import icechunk_stream as ic

HOLD_THE_LOCK = """
import fcntl, os, sys, time
folder = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(folder, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(600)
"""


def _sum(path: Path) -> int:
    session = ic.Repository.open(ic.local_filesystem_storage(path)).readonly_session("main")
    array = zarr.open_array(session.store, path="group1/small_chunks", mode="r")
    return int(array[...].sum())  # type: ignore[union-attr]


@pytest.mark.parametrize("folders", [["r", "s", "a", "m", "c"], ["r", "s"]])
def test_a_folder_in_the_layout_of_before_0_2_is_named_as_such(
    tmp_path: Path, folders: list[str]
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "object").write_bytes(b"?")

    with pytest.raises(ic.RepositoryNotFoundError, match=r"before 0\.2"):
        ic.Repository.open(ic.local_filesystem_storage(tmp_path))


def test_a_state_file_is_named_as_a_layout_of_before_0_2(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")

    with pytest.raises(ic.RepositoryNotFoundError, match=r"before 0\.2"):
        ic.Repository.open(ic.local_filesystem_storage(tmp_path))


def test_an_empty_place_holds_no_repository_and_stays_empty(tmp_path: Path) -> None:
    storage = ic.local_filesystem_storage(tmp_path / "nothing")

    assert not ic.Repository.exists(storage)
    assert ic.Repository.fetch_spec_version(storage) is None
    with pytest.raises(ic.RepositoryNotFoundError) as caught:
        ic.Repository.open(storage)
    assert caught.value.kind == ic.ErrorKind.REPOSITORY_NOT_FOUND
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_mount_is_read(tmp_path: Path, fixture_repository: Path) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    expected = _sum(fixture_repository)
    subprocess.run(["mount", "--bind", fixture_repository, mounted], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", mounted], check=True)
        with pytest.raises(OSError, match="Read-only"):
            (mounted / "probe").write_bytes(b"")
        assert _sum(mounted) == expected
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)


def test_a_repository_is_read_while_another_process_holds_its_lock(
    tmp_path: Path, fixture_repository: Path
) -> None:
    path = tmp_path / "locked"
    shutil.copytree(fixture_repository, path)
    expected = _sum(fixture_repository)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        assert _sum(path) == expected
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


def test_a_repository_of_both_versions_is_one_of_v2(tmp_path: Path, fixtures: Path) -> None:
    path = tmp_path / "both"
    shutil.copytree(fixtures / "test-repo-v1", path)
    shutil.copytree(fixtures / "test-repo-v2", path, dirs_exist_ok=True)

    repository = ic.Repository.open(ic.local_filesystem_storage(path))

    assert repository.spec_version == ic.SpecVersion.v2
    expected = ic.Repository.open(ic.local_filesystem_storage(fixtures / "test-repo-v2"))
    assert repository.lookup_branch("main") == expected.lookup_branch("main")
