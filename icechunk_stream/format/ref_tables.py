"""Chunk references of one array on their way into a manifest: columns, in any order of indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from icechunk_stream.format.chunk_refs import RefKind
from icechunk_stream.format.heaps import present_rows
from icechunk_stream.format.ids import ID12
from icechunk_stream.format.records import invalid
from icechunk_stream.format.refs_decode import MAX_RANK
from icechunk_stream.format.texts import byte_column, text_column

if TYPE_CHECKING:
    import numpy.typing as npt

    from icechunk_stream.format.chunk_refs import RefColumns

    Mask = npt.NDArray[np.bool_]

_MAX_U64 = np.uint64(2**64 - 1)


@dataclass(frozen=True, slots=True, eq=False)
class RefTable:
    """One row for each reference; a column that no row needs is None.

    ``offsets`` and ``lengths`` say nothing of inline rows, ``chunk_ids`` only of native ones.
    ``inline`` (binary), ``locations`` and ``etags`` (strings) may be dictionary-encoded; they are
    null, and ``modified`` is 0, where the row has no such value.
    """

    indices: npt.NDArray[np.uint32]
    kinds: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    chunk_ids: npt.NDArray[np.void] | None = None
    inline: pa.Array | None = None
    locations: pa.Array | None = None
    etags: pa.Array | None = None
    modified: npt.NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def rank(self) -> int:
        return int(self.indices.shape[1])

    @property
    def nbytes(self) -> int:
        """Memory that the columns take."""
        columns = (self.indices, self.kinds, self.offsets, self.lengths, self.chunk_ids)
        texts = (self.inline, self.locations, self.etags)
        return sum(each.nbytes for each in (*columns, *texts, self.modified) if each is not None)

    @classmethod
    def of(cls, columns: RefColumns, rows: npt.NDArray[np.intp] | None = None) -> Self:
        """Decoded references, or some of them; compressed locations become plain."""
        chosen = slice(None) if rows is None else rows
        kinds = columns.kinds[chosen]
        return cls(
            indices=columns.indices(rows),
            kinds=kinds,
            offsets=columns.offsets[chosen],
            lengths=columns.lengths[chosen],
            chunk_ids=None if columns.chunk_ids is None else columns.chunk_ids[chosen],
            inline=_inline(columns, chosen, kinds == RefKind.INLINE),
            locations=_locations(columns, chosen, kinds == RefKind.VIRTUAL),
            etags=_etags(columns, chosen),
            modified=None if columns.modified is None else columns.modified[chosen],
        )

    def check(self) -> None:
        """Refuse columns that do not fit each other, or that no reader could use."""
        self._check_sizes()
        native, virtual, inline = (self.kinds == kind for kind in RefKind)
        if not (native | virtual | inline).all():
            raise invalid("a chunk reference that is not native, virtual or inline")
        if native.any() and self.chunk_ids is None:
            raise invalid("native chunk references without chunk ids")
        _check_rows(self.inline, inline, "the inline bytes", every=True)
        _check_rows(self.locations, virtual, "the locations", every=True)
        _check_rows(self.etags, virtual, "the etags", every=False)
        if self.modified is not None and self.modified[~virtual].any():
            raise invalid("a time of modification on a chunk reference that is not virtual")
        if (~inline & (self.offsets > _MAX_U64 - self.lengths)).any():
            raise invalid("a chunk's offset and length add up to more than 64 bits")

    def _check_sizes(self) -> None:
        if self.indices.ndim != 2 or self.rank > MAX_RANK:  # noqa: PLR2004
            raise invalid(f"chunk indices of the shape {self.indices.shape}: (refs, dimensions)")
        _check_column("indices", self.indices, np.dtype(np.uint32), len(self))
        _check_column("kinds", self.kinds, np.dtype(np.uint8), len(self))
        _check_column("offsets", self.offsets, np.dtype(np.uint64), len(self))
        _check_column("lengths", self.lengths, np.dtype(np.uint64), len(self))
        _check_column("chunk_ids", self.chunk_ids, ID12, len(self))
        _check_column("modified", self.modified, np.dtype(np.uint32), len(self))
        for texts in (self.inline, self.locations, self.etags):
            if texts is not None and len(texts) != len(self):
                raise invalid(f"a column of {len(texts)} rows, {len(self)} are expected")


def _check_column(
    name: str, column: npt.NDArray[np.generic] | None, dtype: np.dtype[np.generic], count: int
) -> None:
    if column is not None and (len(column) != count or column.dtype != dtype):
        found = f"{len(column)} rows of {column.dtype}"
        raise invalid(f"{name}: {found}, {count} of {dtype} are expected")


def _check_rows(column: pa.Array | None, rows: Mask, what: str, *, every: bool) -> None:
    """A column has values only in rows of its kind, or in every one of them."""
    if column is None:
        if every and rows.any():
            raise invalid(f"{what} are missing")
        return
    present = present_rows(column)
    if (present & ~rows).any():
        raise invalid(f"{what} have a value in a row of another kind")
    if every and (rows & ~present).any():
        raise invalid(f"{what} have a null where a value is needed")


def _inline(
    columns: RefColumns, chosen: slice | npt.NDArray[np.intp], rows: Mask
) -> pa.Array | None:
    if columns.where is None or not rows.any():
        return None
    at, numbers = _distinct(columns.where[chosen][rows])
    return _sparse(byte_column(columns.source, at).cast(pa.large_binary()), numbers, rows)


def _locations(
    columns: RefColumns, chosen: slice | npt.NDArray[np.intp], rows: Mask
) -> pa.Array | None:
    if columns.where is None or not rows.any():
        return None
    if columns.compressed is not None:
        return _unpacked_locations(columns, np.arange(len(columns))[chosen][rows], rows)
    at, numbers = _distinct(columns.where[chosen][rows])
    return _sparse(text_column(columns.source, at).cast(pa.large_string()), numbers, rows)


def _unpacked_locations(
    columns: RefColumns, wanted: npt.NDArray[np.intp], rows: Mask
) -> pa.DictionaryArray:
    locations = columns.locations(wanted)
    if not pa.types.is_dictionary(locations.type):
        locations = locations.cast(pa.large_string()).dictionary_encode()
    return _sparse(locations.dictionary, locations.indices.to_numpy(), rows)


def _etags(columns: RefColumns, chosen: slice | npt.NDArray[np.intp]) -> pa.Array | None:
    if columns.etags is None:
        return None
    where = columns.etags[chosen]
    rows = where != 0
    at, numbers = _distinct(where[rows])
    return _sparse(text_column(columns.source, at).cast(pa.large_string()), numbers, rows)


def _distinct(
    at: npt.NDArray[np.uint32],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.integer]]:
    """Distinct positions, and which one each row has. Writers put equal ones side by side."""
    changes = np.empty(len(at), np.bool_)
    changes[:1] = True
    np.not_equal(at[1:], at[:-1], out=changes[1:])
    distinct, numbers = np.unique(at[changes], return_inverse=True)
    return distinct, numbers[np.cumsum(changes) - 1]


def _sparse(values: pa.Array, numbers: npt.NDArray[np.integer], rows: Mask) -> pa.DictionaryArray:
    """A column with values in some rows."""
    spread = np.zeros(len(rows), np.int32)
    spread[rows] = numbers
    return pa.DictionaryArray.from_arrays(pa.array(spread, mask=~rows), values)
