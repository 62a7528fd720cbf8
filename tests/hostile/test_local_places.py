"""Links, devices and directories where a repository keeps plain files."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

import icechunk_stream as icechunk
from icechunk_stream.errors import IcechunkError, StorageError
from icechunk_stream.storage import local_filesystem_storage
from tests.hostile import documents as doc
from tests.hostile.repositories import (
    CHUNK,
    CHUNK_KEY,
    LOG_KEY,
    MANIFEST_KEY,
    REF_KEY,
    SNAPSHOT_KEY,
    SOUND,
    in_folder,
    manifest,
    walk,
)

if TYPE_CHECKING:
    from pathlib import Path

PLACES = [
    *(("v1", key) for key in (REF_KEY, "config.yaml", SNAPSHOT_KEY, MANIFEST_KEY, CHUNK_KEY)),
    *(("v2", key) for key in ("repo", SNAPSHOT_KEY, MANIFEST_KEY, LOG_KEY, CHUNK_KEY)),
]

each_version = pytest.mark.parametrize("version", SOUND)
each_place = pytest.mark.parametrize(("version", "key"), PLACES)
each_foldered_place = pytest.mark.parametrize(
    ("version", "key"), [(version, key) for version, key in PLACES if "/" in key]
)


def read_everything(folder: Path, key: str) -> None:
    """Open the repository and read all of it; the first refusal is raised."""
    refusals = walk(local_filesystem_storage(str(folder)))
    about = [error for error in refusals if key in str(error)]
    assert about, f"nothing said about {key}"
    raise about[0]


@each_version
def test_a_sound_repository_in_a_folder_is_read(version: str, tmp_path: Path) -> None:
    storage = local_filesystem_storage(str(in_folder(SOUND[version](), tmp_path)))
    store = icechunk.Repository.open(storage).readonly_session("main").store
    buffer = store.get_sync("a/c/0/0")
    assert buffer is not None
    assert buffer.to_bytes() == CHUNK


@each_place
def test_a_link_in_place_of_an_object_is_refused(version: str, key: str, tmp_path: Path) -> None:
    folder = in_folder(SOUND[version](), tmp_path / "repository")
    outside = tmp_path / "outside"
    outside.write_bytes((folder / key).read_bytes())
    (folder / key).unlink()
    (folder / key).symlink_to(outside)
    with pytest.raises(StorageError, match="link"):
        read_everything(folder, key)


@each_foldered_place
def test_a_link_in_place_of_a_folder_is_refused(version: str, key: str, tmp_path: Path) -> None:
    folder = in_folder(SOUND[version](), tmp_path / "repository")
    parent = (folder / key).parent
    parent.rename(tmp_path / "outside")
    parent.symlink_to(tmp_path / "outside")
    with pytest.raises(StorageError, match="link"):
        read_everything(folder, key)


@each_place
def test_a_fifo_in_place_of_an_object_is_refused_without_waiting(
    version: str, key: str, tmp_path: Path
) -> None:
    folder = in_folder(SOUND[version](), tmp_path)
    (folder / key).unlink()
    os.mkfifo(folder / key)
    with pytest.raises(StorageError, match="FIFO"):
        read_everything(folder, key)


@each_place
def test_a_directory_in_place_of_an_object_is_refused(
    version: str, key: str, tmp_path: Path
) -> None:
    folder = in_folder(SOUND[version](), tmp_path)
    (folder / key).unlink()
    (folder / key).mkdir()
    with pytest.raises(StorageError, match="directory"):
        read_everything(folder, key)


@each_foldered_place
def test_a_file_in_place_of_a_folder_holds_nothing(version: str, key: str, tmp_path: Path) -> None:
    folder = in_folder(SOUND[version](), tmp_path)
    parent = (folder / key).parent
    shutil.rmtree(parent)
    parent.write_bytes(b"")
    assert walk(local_filesystem_storage(str(folder)))


@each_version
@pytest.mark.parametrize("offset", [0, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 2**41])
def test_a_chunk_of_1_tb_in_a_small_file_is_refused(
    version: str, offset: int, tmp_path: Path
) -> None:
    objects = SOUND[version]()
    objects[MANIFEST_KEY] = manifest(doc.native([0, 0], offset, 2**40))
    storage = local_filesystem_storage(str(in_folder(objects, tmp_path)))
    store = icechunk.Repository.open(storage).readonly_session("main").store
    with pytest.raises(IcechunkError, match=CHUNK_KEY):
        store.get_sync("a/c/0/0")


@each_place
def test_a_sparse_file_of_1_tb_is_refused(version: str, key: str, tmp_path: Path) -> None:
    objects = SOUND[version]()
    if key == CHUNK_KEY:
        objects[MANIFEST_KEY] = manifest(doc.native([0, 0], 0, 2**40))
    folder = in_folder(objects, tmp_path)
    os.truncate(folder / key, 2**40)
    with pytest.raises(StorageError, match="File too large"):
        read_everything(folder, key)
