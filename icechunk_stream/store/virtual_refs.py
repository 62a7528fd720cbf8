"""The store's methods that refer to chunks outside of the repository."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from icechunk_stream.errors import ErrorKind, SessionStateError
from icechunk_stream.format.chunk_refs import VirtualChunk
from icechunk_stream.format.paths import canonical
from icechunk_stream.format.ref_rows import chosen_rows
from icechunk_stream.in_thread import in_thread
from icechunk_stream.store.keys import ChunkKey, parse_key
from icechunk_stream.virtual.locations import check_locations, normal_location
from icechunk_stream.virtual.specs import check_range, checksum_of
from icechunk_stream.virtual.tables import Box, table_of_box, table_of_specs

if TYPE_CHECKING:
    from datetime import datetime

    import numpy as np
    import numpy.typing as npt

    from icechunk_stream.format.ref_tables import RefTable
    from icechunk_stream.reading import SnapshotReader
    from icechunk_stream.virtual.specs import VirtualChunkSpec
    from icechunk_stream.writing import Edits

    Refused = list[tuple[int, ...]] | None
    Numbers = npt.NDArray[np.uint64]


class VirtualRefs:
    """References to ranges of objects outside of the repository, one or many at a time."""

    if TYPE_CHECKING:

        @property
        def _edits(self) -> Edits: ...

        @property
        def _reader(self) -> SnapshotReader: ...

    def set_virtual_ref(
        self,
        key: str,
        location: str,
        *,
        offset: int,
        length: int,
        checksum: str | datetime | None = None,
        validate_container: bool = True,
    ) -> None:
        """Refer to one chunk.

        Args:
            key: The chunk as zarr names it, as in ``group/array/c/0/1``.
            location: URL of the object; what a URL reserves is percent-encoded.
            offset: Where in the object the chunk begins.
            length: Bytes of the chunk.
            checksum: Reading fails once the object has another etag, or was modified later.
            validate_container: Refuse a location that no container of the configuration holds.
        """
        edits, parsed = self._edits, parse_key(key)
        if not isinstance(parsed, ChunkKey):
            message = f"{key!r} is no chunk: documents are written by set()"
            raise SessionStateError(message, ErrorKind.NOT_ALLOWED)
        first, size = check_range(offset, length)
        stored = normal_location(location)
        if validate_container:
            self._reader.containers.require(stored)
        chunk = VirtualChunk(stored, first, size, checksum_of(checksum))
        edits.set_virtual(parsed.path, parsed.index, chunk)

    def set_virtual_refs(
        self,
        array_path: str,
        chunks: list[VirtualChunkSpec],
        *,
        validate_containers: bool = True,
    ) -> Refused:
        """Refer to chunks of an array; None, or the indices that no container takes.

        Those are left out, the others are written.
        """
        edits, path = self._edits, canonical(array_path)
        table = table_of_specs(chunks, len(self._reader.array(path).shape))
        return self._set_table(edits, path, table, validate=validate_containers)

    def set_virtual_refs_arr(  # noqa: PLR0913 - the reference library's signature
        self,
        array_path: str,
        chunk_grid_shape: tuple[int, ...],
        locations: list[str],
        offsets: Numbers,
        lengths: Numbers,
        *,
        validate_containers: bool = True,
        arr_offset: tuple[int, ...] | None = None,
        checksum: datetime | str | None = None,
    ) -> Refused:
        """Refer to a box of an array's chunks; None, or the indices that no container takes.

        Args:
            array_path: The array, as in ``/group/array``.
            chunk_grid_shape: Chunks along every axis of the box.
            locations: An URL for each chunk, the last axis fastest; empty ones are left out.
            offsets: Where in its object each chunk begins.
            lengths: Bytes of each chunk.
            validate_containers: Leave out locations that no container of the configuration holds.
            arr_offset: Where in the array's grid the box begins.
            checksum: Reading fails once an object has another etag, or was modified later.
        """
        edits, path = self._edits, canonical(array_path)
        begin = (0,) * len(chunk_grid_shape) if arr_offset is None else tuple(arr_offset)
        box = Box(tuple(chunk_grid_shape), begin)
        table = table_of_box(box, locations, offsets, lengths, checksum_of(checksum))
        return self._set_table(edits, path, table, validate=validate_containers)

    set_virtual_ref_async = in_thread(set_virtual_ref)
    set_virtual_refs_async = in_thread(set_virtual_refs)
    set_virtual_refs_arr_async = in_thread(set_virtual_refs_arr)

    def _set_table(self, edits: Edits, path: str, table: RefTable, *, validate: bool) -> Refused:
        """Only the containers decide what is left out; all else that is wrong is an error."""
        assert table.locations is not None
        checked = check_locations(table.locations, self._reader.containers, validate=validate)
        table = replace(table, locations=checked.locations)
        if not checked.refused.any():
            edits.set_refs(path, table)
            return None
        edits.set_refs(path, chosen_rows(table, ~checked.refused))
        return [tuple(index) for index in table.indices[checked.refused].tolist()]
