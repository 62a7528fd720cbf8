"""What a signed URL gives away is in no message and no repr."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

from icechunk_stream import IcechunkError, Repository, VirtualChunkSpec, in_memory_storage
from icechunk_stream.format.chunk_refs import VirtualChunk
from tests.secret_marker import MARKER

SIGNED = f"https://user:{MARKER}@host/key?X-Amz-Signature={MARKER}"


@pytest.fixture
def store() -> Any:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4,), chunks=(1,), dtype="i4")
    return session.store


def said(call: Any) -> str:
    with pytest.raises(IcechunkError) as refused:
        call()
    return f"{refused.value} {refused.value!r}"


def test_a_location_that_no_container_takes_is_shown_without_its_signature(store: Any) -> None:
    message = said(lambda: store.set_virtual_ref("a/c/0", SIGNED, offset=0, length=4))

    assert "host/key" in message
    assert MARKER not in message


def test_a_chunk_that_may_not_be_fetched_is_shown_without_its_signature(store: Any) -> None:
    store.set_virtual_ref("a/c/0", SIGNED, offset=0, length=4, validate_container=False)
    store.set_virtual_refs_arr(
        "a",
        (1,),
        [SIGNED],
        np.zeros(1, np.uint64),
        np.full(1, 4, np.uint64),
        validate_containers=False,
        arr_offset=(1,),
    )

    for index in range(2):
        message = said(lambda at=index: zarr.open_array(store, path="a")[at])
        assert "host/key" in message
        assert MARKER not in message


def test_a_malformed_location_is_shown_without_its_signature(store: Any) -> None:
    spec = VirtualChunkSpec([0], f"host/key?X-Amz-Signature={MARKER}", 0, 4)

    assert MARKER not in said(lambda: store.set_virtual_refs("a", [spec]))


def test_references_are_shown_without_signatures() -> None:
    for shown in (repr(VirtualChunk(SIGNED, 0, 4)), repr(VirtualChunkSpec([0], SIGNED, 0, 4))):
        assert "host/key" in shown
        assert MARKER not in shown
