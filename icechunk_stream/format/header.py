"""The envelope of metadata objects: a 39-byte header, then zstd."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa
import zstandard

from icechunk_stream.errors import ErrorKind, FormatError
from icechunk_stream.version import VERSION

MAGIC = b"ICE\xf0\x9f\xa7\x8aCHUNK"
WRITER = f"icechunk_stream-{VERSION}".encode()
HEADER_SIZE = 39
SPEC_VERSIONS = (1, 2)
DEFAULT_LEVEL = 3

MAX_PAYLOAD = 2**31 - 1
MAX_WINDOW = 2**27
# No honest object shrinks by more: bounds what a small hostile one may unpack to.
MAX_RATIO = 1000
ALWAYS_ALLOWED = 16 * 2**20

_WRITER_END = 36
_ZSTD = 1
# A block of four bytes may unpack to 128 kB.
_STEP = 2**10
# Twice as fast as zstandard on large frames: its pool keeps memory that is mapped already.
_CODEC = pa.Codec("zstd")


class FileType(IntEnum):
    """What a metadata object holds."""

    SNAPSHOT = 1
    MANIFEST = 2
    TRANSACTION_LOG = 4
    REPO_INFO = 6


@dataclass(frozen=True, slots=True)
class Envelope:
    """An opened object: the spec version in its header, and the unpacked flatbuffer."""

    spec_version: int
    written_by: str
    payload: memoryview


def open_envelope(data: bytes, file_type: FileType, key: str) -> Envelope:
    """Check the header and unpack the payload, never to more than the caps allow."""
    if len(data) < HEADER_SIZE:
        raise _bad(key, f"{len(data)} bytes are too few for a header of {HEADER_SIZE}")
    if data[: len(MAGIC)] != MAGIC:
        raise _bad(key, "it does not begin with Icechunk's magic bytes")
    spec_version, found_type, compression = data[_WRITER_END:HEADER_SIZE]
    if spec_version not in SPEC_VERSIONS:
        message = f"format version {spec_version} is unknown; a newer library may read it"
        raise FormatError(message, ErrorKind.UNSUPPORTED_SPEC_VERSION, key=key)
    if found_type != file_type:
        raise _bad(key, f"file type {found_type} where {file_type} ({file_type.name}) is expected")
    if compression != _ZSTD:
        raise _bad(key, f"compression {compression} where {_ZSTD} (zstd) is expected")
    writer = data[len(MAGIC) : _WRITER_END].decode("utf-8", errors="replace").rstrip(" \0")
    return Envelope(spec_version, writer, _unpack(memoryview(data)[HEADER_SIZE:], key))


def seal_envelope(
    payload: bytes | bytearray | memoryview,
    file_type: FileType,
    spec_version: int,
    level: int = DEFAULT_LEVEL,
) -> bytes:
    """Header and packed payload, as they are stored."""
    kind = bytes((spec_version, file_type, _ZSTD))
    header = MAGIC + WRITER.ljust(_WRITER_END - len(MAGIC)) + kind
    return header + zstandard.ZstdCompressor(level=level).compress(payload)


def _unpack(packed: memoryview, key: str) -> memoryview:
    cap = min(MAX_PAYLOAD, max(ALWAYS_ALLOWED, MAX_RATIO * len(packed)))
    try:
        frame = zstandard.get_frame_parameters(packed)
        if frame.window_size > MAX_WINDOW and frame.content_size > MAX_WINDOW:
            raise _bad(key, f"its zstd window of {frame.window_size} bytes is too large")
        if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN:
            return _unpack_stream(packed, cap, key)
        if frame.content_size > cap:
            raise _bad(key, f"{len(packed)} bytes declare to unpack to {frame.content_size}")
        return memoryview(_CODEC.decompress(packed, frame.content_size)).toreadonly()
    except (zstandard.ZstdError, pa.ArrowInvalid, OSError) as error:
        raise _bad(key, f"its zstd data is damaged ({error})") from error
    except MemoryError as error:
        raise _bad(key, "its zstd data asks for more memory than there is") from error


def _unpack_stream(packed: memoryview, cap: int, key: str) -> memoryview:
    """A frame that does not state its size, as releases before 2.3 wrote: counted as it grows."""
    unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
    payload = bytearray()
    for start in range(0, len(packed), _STEP):
        payload += unpacker.decompress(packed[start : start + _STEP])
        if len(payload) > cap:
            raise _bad(key, f"{len(packed)} bytes unpack to more than {cap}")
    if not unpacker.eof or unpacker.unused_data:
        raise _bad(key, "its zstd data is cut, or something follows it")
    return memoryview(payload).toreadonly()


def _bad(key: str, message: str) -> FormatError:
    return FormatError(message, ErrorKind.INVALID_FILE_FORMAT, key=key)
