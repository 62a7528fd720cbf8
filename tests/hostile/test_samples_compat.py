"""The hand-made objects that all damage starts from are ones that the reference library reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import icechunk
import pytest
from zarr.core.buffer import default_buffer_prototype

from tests.hostile.repositories import CHUNK, SOUND, id_of, in_folder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat


@pytest.mark.parametrize("version", SOUND)
def test_the_reference_reads_the_sound_repositories(version: str, tmp_path: Path) -> None:
    folder = in_folder(SOUND[version](), tmp_path)
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)))
    assert repository.lookup_branch("main") == repository.lookup_tag("tag") == id_of(1)
    assert [info.message for info in repository.ancestry(branch="main")] == ["message"]
    session = repository.readonly_session("main")
    buffer = asyncio.run(session.store.get("a/c/0/0", default_buffer_prototype()))
    assert buffer is not None
    assert buffer.to_bytes() == CHUNK
    assert session.all_virtual_chunk_locations() == ["s3://bucket/key"]
    if version == "v2":
        log = repository.inspect_transaction_log(id_of(1))
        assert [each["chunks"] for each in log["updated_chunks"]] == [[[0, 0], [0, 1]], [[]], []]
        assert len(list(repository.ops_log())) == 16
