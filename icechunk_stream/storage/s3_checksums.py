"""Checksums that S3 checks a write with, in the form in which its requests carry them."""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64encode
from functools import cache
from typing import assert_never

import google_crc32c

from icechunk_stream.config import ChecksumAlgorithm

_CRC64_NVME = 0x9A6C9329AC4BC9B5
_MASK64 = 2**64 - 1


def checksum_field(algorithm: ChecksumAlgorithm, data: bytes) -> tuple[str, str]:
    """The request parameter of an algorithm, and its value for these bytes."""
    return f"Checksum{checksum_name(algorithm)}", b64encode(_digest(algorithm, data)).decode()


def checksum_name(algorithm: ChecksumAlgorithm) -> str:
    """The name of an algorithm in S3's API."""
    return algorithm.name.upper()


def _digest(algorithm: ChecksumAlgorithm, data: bytes) -> bytes:
    match algorithm:
        case ChecksumAlgorithm.Crc32:
            return zlib.crc32(data).to_bytes(4, "big")
        case ChecksumAlgorithm.Crc32c:
            return int(google_crc32c.value(data)).to_bytes(4, "big")
        case ChecksumAlgorithm.Crc64Nvme:
            return _crc64_nvme(data).to_bytes(8, "big")
        case ChecksumAlgorithm.Sha1:
            return hashlib.sha1(data, usedforsecurity=False).digest()
        case ChecksumAlgorithm.Sha256:
            return hashlib.sha256(data).digest()
        case _:
            assert_never(algorithm)


def _crc64_nvme(data: bytes) -> int:
    """Byte by byte: only small objects come here, obstore writes the others."""
    table, crc = _table(), _MASK64
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _MASK64


@cache
def _table() -> tuple[int, ...]:
    return tuple(_entry(byte) for byte in range(256))


def _entry(crc: int) -> int:
    for _ in range(8):
        crc = (crc >> 1) ^ (_CRC64_NVME if crc & 1 else 0)
    return crc
