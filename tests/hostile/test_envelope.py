"""Damaged headers and damaged zstd, around payloads that are sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import zstandard

from icechunk_stream.errors import ErrorKind, FormatError
from tests.hostile import frames, raw
from tests.hostile.reading import (
    HEADER_SIZE,
    KINDS,
    SAMPLES,
    Kind,
    Sample,
    header,
    opened,
)
from tests.hostile.refusals import reads_or_refuses, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

KNOWN_TYPES = {kind.file_type for kind in KINDS.values()}
CORPUS = [(kind, name, data) for kind in KINDS.values() for name, data in kind.corpus().items()]

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
each_sample = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
each_object = pytest.mark.parametrize(
    ("kind", "data"), [pytest.param(kind, data, id=name) for kind, name, data in CORPUS]
)


def refused(kind: Kind, data: bytes) -> FormatError:
    return refusal(lambda: kind.read(data))


@each_object
def test_what_the_reference_wrote_is_read(kind: Kind, data: bytes) -> None:
    kind.read(data)


@each_object
def test_every_object_cut_short_is_refused(kind: Kind, data: bytes) -> None:
    for size in range(len(data)):
        refused(kind, data[:size])


@each_object
def test_a_flipped_bit_is_harmless_or_refused(kind: Kind, data: bytes) -> None:
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        reads_or_refuses(lambda: kind.read(damaged))  # noqa: B023


@each_kind
@pytest.mark.parametrize("at", range(12))
def test_other_magic_bytes_are_refused(kind: Kind, at: int) -> None:
    data = bytearray(next(iter(kind.corpus().values())))
    data[at] ^= 0x20
    assert refused(kind, bytes(data)).kind == ErrorKind.INVALID_FILE_FORMAT


@each_kind
def test_objects_of_other_kinds_are_refused(kind: Kind) -> None:
    payload = opened(next(iter(kind.corpus().values())))
    for file_type in {*range(8), 255} - {kind.file_type}:
        data = header(file_type) + zstandard.compress(payload)
        assert refused(kind, data).kind == ErrorKind.INVALID_FILE_FORMAT


@each_sample
@pytest.mark.parametrize("version", [0, 3, 4, 127, 255])
def test_other_spec_versions_are_named(sample: Sample, version: int) -> None:
    payload = raw.payload(sample.document())
    data = header(sample.kind.file_type, version) + zstandard.compress(payload)
    error = refused(sample.kind, data)
    assert error.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION
    assert str(version) in error.message


@each_sample
@pytest.mark.parametrize("compression", [0, 2, 255])
@pytest.mark.parametrize("pack", [bytes, zstandard.compress], ids=["plain", "zstd"])
def test_other_compressions_are_refused(
    sample: Sample, compression: int, pack: Callable[[bytes], bytes]
) -> None:
    data = header(sample.kind.file_type, sample.spec_version, compression)
    refused(sample.kind, data + pack(raw.payload(sample.document())))


def _checksummed(payload: bytes) -> bytes:
    packed = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(payload))
    packed[-1] ^= 1
    return bytes(packed)


def _with_dictionary(payload: bytes) -> bytes:
    samples = cast("list[bytes | bytearray | memoryview]", [payload[n:] for n in range(16)] * 8)
    dictionary = zstandard.train_dictionary(256, samples)
    return zstandard.ZstdCompressor(dict_data=dictionary).compress(payload)


def _sizeless(payload: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(payload)


DAMAGED_FRAMES: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda _: b"",
    "no zstd": lambda payload: payload,
    "trailing byte": lambda payload: zstandard.compress(payload) + b"\0",
    "trailing garbage": lambda payload: zstandard.compress(payload) + payload,
    "trailing garbage, no size": lambda payload: _sizeless(payload) + payload,
    "packed twice": lambda payload: zstandard.compress(zstandard.compress(payload)),
    "two frames": lambda payload: (
        zstandard.compress(payload[:64]) + zstandard.compress(payload[64:])
    ),
    "two frames, no size": lambda payload: _sizeless(payload[:64]) + _sizeless(payload[64:]),
    "skippable frame": frames.skippable,
    "empty skippable frame": lambda _: frames.skippable(b""),
    "skippable frame of 4 GB": lambda _: frames.skippable(b"")[:4] + b"\xff" * 4,
    "skippable frame, then the data": lambda payload: (
        frames.skippable(b"abcd") + zstandard.compress(payload)
    ),
    "nothing packed": lambda _: zstandard.compress(b""),
    "nothing packed, no size": lambda _: _sizeless(b""),
    "false checksum": _checksummed,
    "unknown dictionary": _with_dictionary,
    "size one too large": lambda payload: frames.frame(
        frames.raw_blocks(payload), len(payload) + 1
    ),
    "size one too small": lambda payload: frames.frame(
        frames.raw_blocks(payload), len(payload) - 1
    ),
    "size 0": lambda payload: frames.frame(frames.raw_blocks(payload), 0),
    "size 15 MB": lambda payload: frames.frame(frames.raw_blocks(payload), 15 * 2**20),
    "size 17 MB": lambda payload: frames.frame(frames.raw_blocks(payload), 17 * 2**20),
    "size 2^31": lambda payload: frames.frame(frames.raw_blocks(payload), 2**31),
    "size 2^32": lambda payload: frames.frame(frames.raw_blocks(payload), 2**32),
    "size 2^63": lambda payload: frames.frame(frames.raw_blocks(payload), 2**63),
    "size 2^64 - 2": lambda payload: frames.frame(frames.raw_blocks(payload), 2**64 - 2),
    "size 2^64 - 1": lambda payload: frames.frame(frames.raw_blocks(payload), 2**64 - 1),
    "window of 1 TB": lambda payload: frames.frame(frames.raw_blocks(payload), window=2**40),
    "window of 2 GB": lambda payload: frames.frame(frames.raw_blocks(payload), window=2**31),
    "window of 2 GB, size 2 GB": lambda payload: frames.frame(
        frames.raw_blocks(payload), 2**31 - 1, window=2**31
    ),
    "reserved bit": lambda payload: frames.frame(
        frames.raw_blocks(payload), len(payload), flags=0x08
    ),
    "last block missing": lambda payload: frames.frame(
        frames.raw_blocks(payload + bytes(frames.BLOCK))[: len(payload) + 3], window=2**20
    ),
}


@each_sample
@pytest.mark.parametrize("damage", DAMAGED_FRAMES)
def test_damaged_frames_are_refused(sample: Sample, damage: str) -> None:
    packed = DAMAGED_FRAMES[damage](raw.payload(sample.document()))
    refused(sample.kind, header(sample.kind.file_type, sample.spec_version) + packed)


HARMLESS_FRAMES: dict[str, Callable[[bytes], bytes]] = {
    "no size": _sizeless,
    "window of 128 MB": lambda payload: frames.frame(frames.raw_blocks(payload), window=2**27),
    "checksum": zstandard.ZstdCompressor(write_checksum=True).compress,
    "level 22": zstandard.ZstdCompressor(level=22).compress,
    "not packed": lambda payload: frames.frame(frames.raw_blocks(payload), len(payload)),
}


@each_sample
@pytest.mark.parametrize("form", HARMLESS_FRAMES)
def test_frames_of_every_form_are_read(sample: Sample, form: str) -> None:
    packed = HARMLESS_FRAMES[form](raw.payload(sample.document()))
    sample.kind.read(header(sample.kind.file_type, sample.spec_version) + packed)


@each_sample
@pytest.mark.parametrize("level", [1, 19])
def test_a_large_payload_cut_in_its_frame_is_refused(sample: Sample, level: int) -> None:
    """A cut between two blocks leaves a frame that unpacks, to less."""
    payload = raw.payload(sample.document()) + bytes(range(256)) * 4096
    compressor = zstandard.ZstdCompressor(level=level, write_content_size=False)
    data = header(sample.kind.file_type, sample.spec_version) + compressor.compress(payload)
    for size in range(HEADER_SIZE, len(data), 64):
        refused(sample.kind, data[:size])
    sample.kind.read(data)
