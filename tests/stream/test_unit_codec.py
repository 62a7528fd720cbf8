"""Encoded units are the bytes that zarr stores, in memory of their own, whatever their codecs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer
from zarr.registry import register_codec
from zarr.storage import MemoryStore

from icechunk_stream.stream.unit_codec import UnitCodec

CODECS: dict[str, dict[str, Any]] = {
    "no compressor": {"compressors": None},
    "zstd": {"compressors": "auto"},
    "several compressors": {"compressors": [ZstdCodec(level=3), Crc32cCodec()]},
    "blosc": {"compressors": BloscCodec(cname="lz4", shuffle="bitshuffle")},
    "gzip": {"compressors": GzipCodec(level=1)},
    "big-endian": {"compressors": None, "serializer": BytesCodec(endian="big")},
    "a shard": {"compressors": "auto", "shards": (64, 64)},
    "a shard without a compressor": {"compressors": None, "shards": (64, 64)},
    "transposed": {"compressors": None, "filters": TransposeCodec(order=(1, 0))},
}
# As many bytes as several threads encode, in units of which each thread gets some.
UNITS = 13
FILLED = 5


def units() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Units of noise, one of which is nothing but fill value."""
    cells = np.random.default_rng(0).standard_normal((UNITS, 64, 64))
    cells[FILLED] = 0
    return cells


def timeless(data: bytes) -> bytes:
    """Bytes of a chunk without the second in which gzip made them."""
    return data[:4] + bytes(4) + data[8:] if data.startswith(b"\x1f\x8b") else data


def stored_by_zarr(cells: np.ndarray[Any, Any], **settings: Any) -> tuple[bytes, list[Any]]:
    """The zarr.json of an array, and its chunks; None where there is none."""
    objects: dict[str, Any] = {}
    shape = (len(cells) * cells.shape[1], *cells.shape[2:])
    chunks = cells.shape[1:]
    if "shards" in settings:
        chunks = tuple(length // 4 for length in chunks)
    array = zarr.create_array(
        MemoryStore(objects), shape=shape, chunks=chunks, dtype=cells.dtype, **settings
    )
    array[...] = cells.reshape(shape)
    document = objects["zarr.json"].to_bytes()
    found = [objects.get(f"c/{number}/0") for number in range(len(cells))]
    return document, [None if each is None else timeless(each.to_bytes()) for each in found]


def decoded_by_us(
    document: bytes, stored: list[Any], unit: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """The cells of those units that are stored."""
    return UnitCodec(document, unit).decode([each for each in stored if each is not None])


def encoded_by_us(document: bytes, cells: np.ndarray[Any, Any]) -> list[Any]:
    encoded = UnitCodec(document, cells.shape[1:]).encode(cells)
    return [None if each is None else timeless(bytes(each)) for each in encoded]


@pytest.mark.parametrize("name", CODECS)
def test_units_are_encoded_as_zarr_stores_them(name: str) -> None:
    cells = units()
    document, stored = stored_by_zarr(cells, **CODECS[name])
    assert encoded_by_us(document, cells) == stored
    assert [number for number, each in enumerate(stored) if each is None] == [FILLED]


@pytest.mark.parametrize("name", CODECS)
def test_what_zarr_stored_is_decoded_to_the_cells_that_it_was_given(name: str) -> None:
    cells = units()
    document, stored = stored_by_zarr(cells, **CODECS[name])
    decoded = decoded_by_us(document, stored, cells.shape[1:])
    np.testing.assert_array_equal(decoded, np.delete(cells, FILLED, axis=0))
    assert decoded.dtype == cells.dtype


@pytest.mark.parametrize("name", CODECS)
def test_encoded_units_do_not_change_with_the_cells_that_they_were_made_of(name: str) -> None:
    cells = units()
    document, _ = stored_by_zarr(cells, **CODECS[name])
    encoded = UnitCodec(document, cells.shape[1:]).encode(cells)
    before = [None if each is None else bytes(each) for each in encoded]
    cells[...] = -1
    assert [None if each is None else bytes(each) for each in encoded] == before


def test_units_of_texts_are_encoded_and_decoded_as_by_zarr() -> None:
    texts = np.array([f"station {number}" for number in range(40)], "T").reshape(4, 5, 2)
    texts[2] = ""
    document, stored = stored_by_zarr(texts)
    assert encoded_by_us(document, texts) == stored
    assert stored[2] is None
    decoded = decoded_by_us(document, stored, texts.shape[1:])
    assert decoded.tolist() == np.delete(texts, 2, axis=0).tolist()


def test_units_whose_fill_value_is_nan_are_none_where_all_cells_are_nan() -> None:
    cells = units()
    cells[FILLED] = np.nan
    document, stored = stored_by_zarr(cells, fill_value=np.nan)
    assert encoded_by_us(document, cells) == stored
    assert stored[FILLED] is None


@pytest.mark.parametrize("kind", ["T", "f8"])
def test_units_that_lie_otherwise_in_memory_are_encoded_alike(kind: str) -> None:
    cells = np.arange(24.0).astype(kind).reshape(2, 4, 3)
    document, stored = stored_by_zarr(cells, compressors=None)
    turned = np.ascontiguousarray(cells.transpose(0, 2, 1)).transpose(0, 2, 1)
    assert not turned.flags.c_contiguous
    assert encoded_by_us(document, turned) == stored


def test_units_of_another_type_are_encoded_as_the_array_has_them() -> None:
    cells = units()
    document, _ = stored_by_zarr(cells.astype("f4"), compressors=None)
    assert encoded_by_us(document, cells)[0] == cells[0].astype("f4").tobytes()


def test_no_units_are_encoded_and_decoded_to_none() -> None:
    document, _ = stored_by_zarr(units())
    codec = UnitCodec(document, (64, 64))
    assert codec.encode(units()[:0]) == []
    assert codec.decode([]).shape == (0, 64, 64)


class Reversed(ZstdCodec):
    """Someone's codec that builds on one of zarr's, and changes only what zarr awaits."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": "tests.reversed", "configuration": {"level": 1, "checksum": False}}

    @classmethod
    def from_dict(cls, data: Any) -> Reversed:
        return cls(level=1)

    async def _encode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer | None:
        return chunk_spec.prototype.buffer.from_bytes(chunk_bytes.to_bytes()[::-1])

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return chunk_spec.prototype.buffer.from_bytes(chunk_bytes.to_bytes()[::-1])


class Awaited(BytesBytesCodec):
    """A codec of someone else that has to be awaited: it turns bytes around."""

    is_fixed_size = True

    @classmethod
    def from_dict(cls, data: Any) -> Awaited:
        return cls()

    def to_dict(self) -> dict[str, Any]:
        return {"name": "tests.awaited", "configuration": {}}

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        return input_byte_length

    async def _encode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return chunk_spec.prototype.buffer.from_bytes(chunk_data.to_bytes()[::-1])

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return await self._encode_single(chunk_data, chunk_spec)


@pytest.mark.parametrize(
    ("name", "codec"), [("tests.awaited", Awaited()), ("tests.reversed", Reversed(level=1))]
)
def test_codecs_of_others_are_awaited(name: str, codec: BytesBytesCodec) -> None:
    register_codec(name, type(codec))
    cells = units()
    document, stored = stored_by_zarr(cells, compressors=codec)
    assert encoded_by_us(document, cells) == stored
    assert stored[0] == cells[0].tobytes()[::-1]
    decoded = decoded_by_us(document, stored, cells.shape[1:])
    np.testing.assert_array_equal(decoded, np.delete(cells, FILLED, axis=0))
