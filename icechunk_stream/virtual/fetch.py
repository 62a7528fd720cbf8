"""Bytes of virtual chunks, from the containers that the caller authorised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icechunk_stream.config.redact import redact_location as shown
from icechunk_stream.errors import ErrorKind, StorageError
from icechunk_stream.virtual.files import SCHEME as FILE
from icechunk_stream.virtual.files import read_file

if TYPE_CHECKING:
    from icechunk_stream.format.chunk_refs import VirtualChunk
    from icechunk_stream.virtual.containers import Containers


def fetch_virtual(containers: Containers, chunk: VirtualChunk, start: int, end: int) -> bytes:
    """Bytes ``start`` to ``end`` of a virtual chunk."""
    location = containers.resolve(chunk.location)
    grant = containers.grant(location)
    scheme = location.partition("://")[0].lower()
    if scheme != FILE:
        message = (
            f"virtual chunks in {scheme}:// are listed, but cannot be fetched by this release:"
            f" {shown(location)!r}"
        )
        raise StorageError(message, ErrorKind.VIRTUAL_CHUNK_FETCH)
    return read_file(chunk, location, grant, start, end)
