"""Encoded units are bytes of their own, whatever their codecs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import TransposeCodec
from zarr.storage import MemoryStore

from icechunk_stream.stream.unit_codec import UnitCodec

CODECS: dict[str, dict[str, Any]] = {
    "no compressor": {"compressors": None},
    "zstd": {"compressors": "auto"},
    "a shard without a compressor": {"compressors": None, "shards": (4, 4)},
    "transposed": {"compressors": None, "filters": TransposeCodec(order=(1, 0))},
}


@pytest.mark.parametrize("name", CODECS)
def test_encoded_units_do_not_change_with_the_cells_that_they_were_made_of(name: str) -> None:
    objects: dict[str, Any] = {}
    settings = {"shape": (8, 4), "chunks": (4, 4), "dtype": "float64"} | CODECS[name]
    array = zarr.create_array(MemoryStore(objects), **settings)
    cells = np.arange(32.0).reshape(2, 4, 4)
    array[...] = cells.reshape(8, 4)
    document = objects["zarr.json"].to_bytes()
    encoded = UnitCodec(document, (4, 4)).encode(cells)
    cells[...] = -1
    stored = [objects[f"c/{number}/0"].to_bytes() for number in range(2)]
    assert [bytes(each or b"") for each in encoded] == stored
