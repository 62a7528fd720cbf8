"""Virtual chunks in local files: contained in what the caller authorised, and unchanged."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream as ic

pytestmark = pytest.mark.compat

CONTENT = bytes(range(100))
Checksum = str | datetime | None


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.bin").write_bytes(CONTENT)
    (tmp_path / "outside.bin").write_bytes(b"secret" * 20)
    return folder


@pytest.fixture(params=[1, 2])
def spec(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def _repository(
    path: Path, data: Path, spec: int, location: str, checksum: Checksum = None
) -> Path:
    """A repository of one array, whose only chunk is ten bytes at a location."""
    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(str(data))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"file://{data}/", store))
    storage = icechunk.local_filesystem_storage(str(path))
    repository = icechunk.Repository.create(storage, config=config, spec_version=spec)
    session = repository.writable_session("main")
    zarr.create_array(
        session.store, name="v", shape=(10,), chunks=(10,), dtype="u1", compressors=None
    )
    session.store.set_virtual_ref(
        "v/c/0", location, offset=5, length=10, checksum=checksum, validate_container=False
    )
    session.commit("one virtual chunk")
    return path


def _read(path: Path, data: Path | None) -> bytes | None:
    granted: dict[str, Any] = {} if data is None else {f"file://{data}/": None}
    repository = ic.Repository.open(
        ic.local_filesystem_storage(path), authorize_virtual_chunk_access=granted
    )
    store = repository.readonly_session("main").store
    value = asyncio.run(store.get("v/c/0", default_buffer_prototype()))
    return None if value is None else value.to_bytes()


def test_a_chunk_in_an_authorised_container_is_read(tmp_path: Path, data: Path, spec: int) -> None:
    path = _repository(tmp_path / "repo", data, spec, f"file://{data}/a.bin")

    assert _read(path, data) == CONTENT[5:15]


def test_nothing_is_read_from_a_container_that_was_not_authorised(
    tmp_path: Path, data: Path, spec: int
) -> None:
    path = _repository(tmp_path / "repo", data, spec, f"file://{data}/a.bin")

    with pytest.raises(ic.InvalidInputError, match="authorize_virtual_chunk_access") as caught:
        _read(path, None)
    assert caught.value.kind == ic.ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER


def test_a_location_in_no_container_is_refused(tmp_path: Path, data: Path, spec: int) -> None:
    path = _repository(tmp_path / "repo", data, spec, f"file://{tmp_path}/outside.bin")

    with pytest.raises(ic.InvalidInputError) as caught:
        _read(path, data)
    assert caught.value.kind == ic.ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK


def test_a_folder_with_a_longer_name_is_not_the_container(
    tmp_path: Path, data: Path, spec: int
) -> None:
    (tmp_path / "data-evil").mkdir()
    (tmp_path / "data-evil" / "a.bin").write_bytes(CONTENT)
    path = _repository(tmp_path / "repo", data, spec, f"file://{tmp_path}/data-evil/a.bin")

    with pytest.raises(ic.InvalidInputError):
        _read(path, data)


def test_a_link_that_leaves_the_container_is_refused(tmp_path: Path, data: Path, spec: int) -> None:
    (data / "link.bin").symlink_to(tmp_path / "outside.bin")
    path = _repository(tmp_path / "repo", data, spec, f"file://{data}/link.bin")

    with pytest.raises(ic.InvalidInputError, match="outside of its container"):
        _read(path, data)


@pytest.mark.parametrize("escape", ["%2e%2e/outside.bin", "x/%2e%2e/%2E%2E/outside.bin"])
def test_dots_that_leave_the_container_are_refused(
    tmp_path: Path, data: Path, spec: int, escape: str
) -> None:
    location = f"file://{data}/{escape}"
    path = _repository(tmp_path / "repo", data, spec, location)

    with pytest.raises(ic.IcechunkError):
        _read(path, data)


def test_a_pipe_in_place_of_a_file_is_refused_at_once(
    tmp_path: Path, data: Path, spec: int
) -> None:
    os.mkfifo(data / "pipe.bin")
    path = _repository(tmp_path / "repo", data, spec, f"file://{data}/pipe.bin")

    with pytest.raises(ic.StorageError, match="not a regular file"):
        _read(path, data)


def test_a_file_that_is_too_short_is_an_error(tmp_path: Path, data: Path, spec: int) -> None:
    path = _repository(tmp_path / "repo", data, spec, f"file://{data}/a.bin")
    (data / "a.bin").write_bytes(CONTENT[:14])

    with pytest.raises(ic.StorageError, match="5 to 15 of 14"):
        _read(path, data)


def test_a_file_changed_after_its_time_was_recorded_is_refused(
    tmp_path: Path, data: Path, spec: int
) -> None:
    recorded = datetime(2025, 1, 1, tzinfo=UTC)
    os.utime(data / "a.bin", (recorded.timestamp(), recorded.timestamp()))
    path = _repository(tmp_path / "repo", data, spec, f"file://{data}/a.bin", recorded)
    assert _read(path, data) == CONTENT[5:15]

    os.utime(data / "a.bin", (recorded.timestamp() + 1, recorded.timestamp() + 1))
    with pytest.raises(ic.StorageError, match="has changed") as caught:
        _read(path, data)
    assert caught.value.kind == ic.ErrorKind.VIRTUAL_CHUNK_MODIFIED


def test_a_file_with_another_etag_is_refused(tmp_path: Path, data: Path, spec: int) -> None:
    path = _repository(tmp_path / "repo", data, spec, f"file://{data}/a.bin", "1-2-3")

    with pytest.raises(ic.StorageError) as caught:
        _read(path, data)
    assert caught.value.kind == ic.ErrorKind.VIRTUAL_CHUNK_MODIFIED
